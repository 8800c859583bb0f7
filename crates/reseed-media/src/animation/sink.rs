//! Writing animations: frames are kept in a folder until all are there, then joined.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Animation, AnimationFormat, Delay, apng, gif, webp};
use crate::error::{Error, Result};
use crate::folder::FolderSink;
use crate::frame::{Depth, Frame};
use crate::image_file::{self, ImageCodec, encode_error};
use crate::partial::Partial;
use crate::stream::{ImageTags, Info, Kind, Sink};

/// Writes an animation.
pub(crate) struct AnimationSink {
    path: PathBuf,
    format: AnimationFormat,
    info: Info,
    frames: FolderSink,
    written: usize,
}

impl AnimationSink {
    pub fn create(path: &Path, format: AnimationFormat, info: &Info) -> Result<AnimationSink> {
        if path.is_dir() {
            return Err(Error::IsFolder { path: path.to_owned() });
        }
        gif::check(format, path)?;
        let frames = FolderSink::new(Partial::frames(path)?, path, &plain(info));
        Ok(AnimationSink { path: path.to_owned(), format, info: info.clone(), frames, written: 0 })
    }

    /// Continues after the first `frames` frames.
    pub fn resume(path: &Path, format: AnimationFormat, info: &Info, frames: usize) -> Result<AnimationSink> {
        gif::check(format, path)?;
        let sink = FolderSink::resume(path, &plain(info), frames)?;
        Ok(AnimationSink { path: path.to_owned(), format, info: info.clone(), frames: sink, written: frames })
    }

    /// The times of the frames that were written.
    fn animation(&self) -> Animation {
        let regular = || {
            let delay = Delay::new(self.info.rate.den.into(), self.info.rate.num.into());
            Animation { delays: vec![delay; self.written], plays: 0 }
        };
        match &self.info.kind {
            Kind::Animation(animation) if animation.delays.len() == self.written => animation.clone(),
            #[cfg(feature = "ffmpeg")]
            Kind::Video(video) => {
                let per_second = u64::from(video.timeline.clock().per_second);
                let times: Vec<i64> = (0..=self.written as i64).map(|i| video.timeline.time(i)).collect();
                let delay = |pair: &[i64]| Delay::new((pair[1] - pair[0]).max(0) as u64, per_second);
                Animation { delays: times.windows(2).map(delay).collect(), plays: 0 }
            }
            _ => regular(),
        }
    }
}

/// The description of the folder that keeps the frames: eight bits, because no animation is read with more, numbered,
/// without tags.
fn plain(info: &Info) -> Info {
    Info { kind: Kind::Folder, names: Vec::new(), tags: ImageTags::default(), ..info.clone() }
}

impl Sink for AnimationSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.frames.write(&eight_bits(frame, self.info.alpha))?;
        self.written += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<usize> {
        self.frames.sync()
    }

    fn keep_unfinished(&mut self) {
        self.frames.keep_unfinished();
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let animation = self.animation();
        let AnimationSink { path, format, info, frames, written } = *self;
        let (file, partial) = Partial::file(&path)?;
        let read = |i: usize| Ok(image_file::read(&frames.path_of(i))?.frame);
        let files = Frames { info: &info, animation: &animation, read: &read };
        let codec = if format == AnimationFormat::WebP { ImageCodec::WebP } else { ImageCodec::Png };
        let join = || -> Result<()> {
            let mut output = BufWriter::new(file);
            let joined = match format {
                AnimationFormat::Apng => apng::write(&mut output, &files),
                AnimationFormat::WebP => webp::write(&mut output, &files),
                AnimationFormat::Gif => {
                    drop(output);
                    return gif::write(frames.folder(), partial.path(), &path, &animation, info.alpha);
                }
            };
            joined?.map_err(|cause| encode_error(&path, codec, cause))?;
            let synced = output.flush().and_then(|()| output.get_ref().sync_all());
            synced.map_err(|cause| Error::Write { path: path.clone(), cause })
        };
        assert!(written > 0, "an animation needs a frame");
        join()?;
        partial.commit()?;
        frames.discard();
        Ok(())
    }
}

/// A frame of eight bits, with alpha if `alpha` is set.
fn eight_bits(frame: &Frame, alpha: bool) -> Frame {
    let fit = |samples: &crate::frame::Samples| samples.to_depth(Depth::Eight);
    let opaque = || crate::frame::Samples::U8(vec![255; frame.size.pixels()]);
    let transparency = alpha.then(|| frame.alpha.as_ref().map_or_else(opaque, fit));
    Frame { size: frame.size, samples: fit(&frame.samples), alpha: transparency }
}

/// The frames that an encoder joins.
pub(super) struct Frames<'a> {
    pub info: &'a Info,
    pub animation: &'a Animation,
    /// Reads frame `i`.
    pub read: &'a dyn Fn(usize) -> Result<Frame>,
}
