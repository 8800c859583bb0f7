//! Reading animations.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::LoopCount;
use image::{AnimationDecoder, ImageDecoder, ImageFormat, ImageResult, RgbaImage};

use super::{Animation, AnimationFormat, Delay, gif};
use crate::error::{Error, Result};
use crate::frame::{Depth, Frame, Samples, Size};
use crate::image_file::{self, ImageCodec, Input, Retry};
use crate::problem::Problem;
use crate::stream::{ImageTags, Info, Kind, Source};

/// Frames that the decoder is ahead.
const AHEAD: usize = 1;

impl AnimationFormat {
    fn image_format(self) -> ImageFormat {
        match self {
            AnimationFormat::Gif => ImageFormat::Gif,
            AnimationFormat::Apng => ImageFormat::Png,
            AnimationFormat::WebP => ImageFormat::WebP,
        }
    }
}

/// The format of an animated file; `None` for other files. GIF files count as animated.
pub(crate) fn is_animated(path: &Path, head: &[u8]) -> Result<Option<AnimationFormat>> {
    if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        return Ok(Some(AnimationFormat::Gif));
    }
    let format = match ImageCodec::from_content(head) {
        Some(ImageCodec::Png) => AnimationFormat::Apng,
        Some(ImageCodec::WebP) => AnimationFormat::WebP,
        _ => return Ok(None),
    };
    let input = input(open(path)?);
    // The error of a damaged file occurs again when it is read as an image.
    let animated = image_file::catch(format.image_format(), || match format {
        AnimationFormat::WebP => Ok(WebPDecoder::new(input)?.has_animation()),
        _ => png_decoder(input)?.is_apng(),
    });
    Ok(animated.unwrap_or(false).then_some(format))
}

/// A decoder that allocates little before the size is known.
fn png_decoder(input: Input) -> ImageResult<PngDecoder<Input>> {
    PngDecoder::with_limits(input, image_file::limits(image_file::MAX_METADATA))
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

fn input(file: File) -> Input<'static> {
    Box::new(BufReader::new(Retry(file)))
}

/// What a decoder knows before the first frame.
struct Header {
    size: Size,
    plays: u32,
    tags: ImageTags,
}

/// Decodes an animation. `start` gets its header and `each` every frame; both return whether to go on.
fn decode(
    input: Input,
    format: AnimationFormat,
    start: impl FnOnce(Header) -> bool,
    mut each: impl FnMut(image::Frame) -> bool,
) -> ImageResult<()> {
    fn run<'a, D: ImageDecoder>(
        mut decoder: D,
        animate: impl FnOnce(D) -> ImageResult<(LoopCount, image::Frames<'a>)>,
        start: impl FnOnce(Header) -> bool,
        each: &mut dyn FnMut(image::Frame) -> bool,
    ) -> ImageResult<()> {
        let (w, h) = decoder.dimensions();
        let size = Size { h: h as usize, w: w as usize };
        // A decoder keeps up to four images of four bytes per pixel.
        let bytes = u64::from(w).saturating_mul(u64::from(h)).saturating_mul(16);
        decoder.set_limits(image_file::limits(bytes.saturating_add(image_file::MAX_METADATA)))?;
        let icc = decoder.icc_profile().ok().flatten().filter(|icc| icc.get(16..20) == Some(b"RGB "));
        let (exif, xmp) = (decoder.exif_metadata().ok().flatten(), decoder.xmp_metadata().ok().flatten());
        let tags = ImageTags { icc, exif, xmp, ..ImageTags::default() };
        let (count, frames) = animate(decoder)?;
        let plays = match count {
            LoopCount::Infinite => 0,
            LoopCount::Finite(count) => count.get(),
        };
        if start(Header { size, plays, tags }) {
            for frame in frames {
                if !each(frame?) {
                    break;
                }
            }
        }
        Ok(())
    }
    match format {
        AnimationFormat::Gif => {
            run(GifDecoder::new(input)?, |d| Ok((d.loop_count(), d.into_frames())), start, &mut each)
        }
        AnimationFormat::WebP => {
            run(WebPDecoder::new(input)?, |d| Ok((d.loop_count(), d.into_frames())), start, &mut each)
        }
        AnimationFormat::Apng => {
            let animate = |decoder: PngDecoder<_>| {
                let decoder = decoder.apng()?;
                Ok((decoder.loop_count(), decoder.into_frames()))
            };
            run(png_decoder(input)?, animate, start, &mut each)
        }
    }
}

/// A source of the frames of an animation.
pub(crate) struct AnimationSource {
    path: PathBuf,
    format: AnimationFormat,
    info: Info,
    frames: Option<Receiver<RgbaImage>>,
    read: usize,
    problems: Vec<Problem>,
}

impl AnimationSource {
    /// Decodes the whole animation once, because only its frames tell their delays and whether they have alpha.
    pub fn open(path: &Path, format: AnimationFormat) -> Result<AnimationSource> {
        let length = std::fs::metadata(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?.len();
        let input = input(open(path)?);
        let (mut header, mut refused, mut alpha, mut delays) = (None, None, false, Vec::new());
        let decoded = image_file::catch(format.image_format(), || {
            let start = |found: Header| {
                refused = image_file::check(found.size, 4 * found.size.pixels() as u64, length, path).err();
                header = Some(found);
                refused.is_none()
            };
            let each = |frame: image::Frame| {
                let (num, den) = frame.delay().numer_denom_ms();
                delays.push(Delay::new(num.into(), 1000 * u64::from(den)));
                alpha |= frame.buffer().pixels().any(|pixel| pixel.0[3] != 255);
                true
            };
            decode(input, format, start, each)
        });
        if let Some(error) = refused {
            return Err(error);
        }
        let failed = |cause| Error::Decode { path: path.to_owned(), format: format.name(), cause };
        let problem = match decoded {
            Ok(()) => None,
            Err(cause) if delays.is_empty() => return Err(failed(cause)),
            Err(cause) => {
                let message = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                Some(Problem::Animation { path: path.to_owned(), frame: delays.len(), message })
            }
        };
        let none = || Error::NoVideo { path: path.to_owned() };
        let Header { size, mut plays, tags } = header.filter(|_| !delays.is_empty()).ok_or_else(none)?;
        if format == AnimationFormat::Gif {
            let file = std::fs::read(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
            plays = gif::plays(&file);
        }
        let animation = Animation { delays, plays };
        let (frames, rate) = (Some(animation.delays.len()), animation.rate());
        let kind = if frames == Some(1) { Kind::Image } else { Kind::Animation(animation) };
        let info = Info { size, frames, rate, depth: Depth::Eight, alpha, kind, names: Vec::new(), tags };
        let problems = problem.into_iter().collect();
        Ok(AnimationSource { path: path.to_owned(), format, info, frames: None, read: 0, problems })
    }

    /// Starts a thread that decodes, because decoders cannot move between threads.
    fn start(&self) -> Result<Receiver<RgbaImage>> {
        let (sender, frames) = sync_channel(AHEAD);
        let (file, format) = (open(&self.path)?, self.format);
        thread::spawn(move || {
            // The first pass has reported the errors. Sending fails when the source is dropped.
            let each = |frame: image::Frame| sender.send(frame.into_buffer()).is_ok();
            let _ = image_file::catch(format.image_format(), || decode(input(file), format, |_| true, each));
        });
        Ok(frames)
    }
}

impl Source for AnimationSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        if Some(self.read) == self.info.frames {
            return Ok(None);
        }
        if self.frames.is_none() {
            self.frames = Some(self.start()?);
        }
        let image = self.frames.as_ref().and_then(|frames| frames.recv().ok());
        let missing = || Error::Truncated { path: self.path.clone(), frame: self.read + 1 };
        let rgba = image.ok_or_else(missing)?.into_raw();
        self.read += 1;
        let (colour, alpha) = image_file::split_alpha(&rgba);
        let alpha = self.info.alpha.then_some(Samples::U8(alpha));
        Ok(Some(Frame { size: self.info.size, samples: Samples::U8(colour), alpha }))
    }

    fn time(&self) -> Option<Duration> {
        let Kind::Animation(animation) = &self.info.kind else { return None };
        let times = animation.shown().times(1_000_000);
        times.get(self.read.saturating_sub(1)).map(|micros| Duration::from_micros(*micros))
    }

    fn problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }
}
