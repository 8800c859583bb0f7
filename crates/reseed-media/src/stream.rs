//! The traits for reading and writing frames, and the description of a stream that both share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::delays::Animation;
use crate::error::Result;
use crate::format::Format;
use crate::frame::{Depth, Frame, Mark, Rate, Samples, Size};
use crate::problem::Problem;
#[cfg(feature = "ffmpeg")]
use crate::video::Timeline;
use crate::video::{Family, Pixels, Video};

/// The kind of a source. A sink of the same kind is created from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An image file.
    Image,
    /// The pages of a TIFF file, one per frame.
    Pages,
    /// A folder of images, one per frame.
    Folder,
    /// An animated GIF, PNG or WebP file.
    Animation(Animation),
    /// A Y4M stream and its pixel format.
    Y4m(Format),
    /// Any other video, read through ffmpeg.
    Video(Box<Video>),
}

impl Kind {
    /// Whether the frames are images that have nothing to do with each other, so that no frame helps another.
    pub fn is_still(&self) -> bool {
        matches!(self, Kind::Image | Kind::Pages)
    }
}

/// The description of a stream, known before its first frame is read. To describe an output, clone the description of
/// the input and change what differs: `Info { size: larger, ..source.info().clone() }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Height and width of every frame.
    pub size: Size,
    /// The number of frames; unknown for a pipe.
    pub frames: Option<usize>,
    /// Frames per second.
    pub rate: Rate,
    /// The depth that holds the input without loss.
    pub depth: Depth,
    /// Whether frames have alpha. Image formats store it, except for JPEG, which composites on white. ProRes and FFV1
    /// store it; Y4M and other video codecs drop it.
    pub alpha: bool,
    /// The kind of the source.
    pub kind: Kind,
    /// The file names of a folder's images in order, which the output reuses; empty for all other kinds.
    pub names: Vec<OsString>,
    /// What an image, or the first image of a folder, holds besides its pixels.
    pub tags: ImageTags,
}

/// What an image holds besides its pixels. An output copies what its format can store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageTags {
    /// Whether the image has no colour. The output has none either, where its format can store that.
    pub grey: bool,
    /// The colour profile. It is copied, not applied.
    pub icc: Option<Vec<u8>>,
    /// EXIF, without a header. Its orientation is upright, as the pixels are.
    pub exif: Option<Vec<u8>>,
    /// The XMP packet.
    pub xmp: Option<Vec<u8>>,
    /// The IPTC data set, without the resource of Photoshop around it.
    pub iptc: Option<Vec<u8>>,
    /// The folder of a source's images, or the file of its pages. The output reads the tags of each of them there.
    pub source: Option<PathBuf>,
}

impl Info {
    /// The marks of the frames of a video that were read so far, from `first` on; none for other kinds.
    pub fn marks(&self, first: usize) -> Vec<Mark> {
        self.video().map_or_else(Vec::new, |video| video.marks(first))
    }

    /// Tells the source of a video the marks of an earlier run, so that [`Source::skip`] can seek.
    pub fn expect_marks(&self, marks: &[Mark]) {
        self.video().into_iter().for_each(|video| video.expect_marks(marks));
    }

    /// Gives the frames of a video the times of an earlier run, without reading them.
    pub fn set_marks(&self, marks: &[Mark]) {
        self.video().into_iter().for_each(|video| video.set_marks(marks));
    }

    fn video(&self) -> Option<&Video> {
        match &self.kind {
            Kind::Video(video) => Some(video),
            _ => None,
        }
    }

    /// The times of the frames; `None` for a constant rate.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        match &self.kind {
            Kind::Video(video) => Some(video.timeline.clone()),
            Kind::Animation(animation) => Some(animation.timeline()),
            _ => None,
        }
    }

    /// The planar pixel format that holds the source's frames without loss.
    pub(crate) fn pixels(&self) -> Pixels {
        match &self.kind {
            Kind::Video(video) => video.pixels(),
            Kind::Y4m(format) => Pixels { family: Family::of(format.chroma), bits: format.bits, alpha: false },
            Kind::Image | Kind::Pages | Kind::Folder | Kind::Animation(_) => {
                let bits = if self.depth == Depth::Eight { 8 } else { 16 };
                Pixels { family: Family::Gbr, bits, alpha: self.alpha }
            }
        }
    }
}

/// A reader of frames, in order.
pub trait Source: Send {
    /// The description of the stream.
    fn info(&self) -> &Info;
    /// The next frame, or `None` after the last.
    fn next(&mut self) -> Result<Option<Frame>>;
    /// Gives back the samples of a frame that is no longer needed; the source may reuse their memory for the next
    /// frame.
    fn reuse(&mut self, _done: Samples) {}
    /// Skips up to `frames` frames, faster than reading them, and returns how many it skipped.
    fn skip(&mut self, frames: usize) -> Result<usize> {
        for skipped in 0..frames {
            if self.next()?.is_none() {
                return Ok(skipped);
            }
        }
        Ok(frames)
    }
    /// When the last frame that was read is shown, from the start of the file. `None` where frames follow each other at
    /// the rate of the stream, from 0 on.
    fn time(&self) -> Option<Duration> {
        None
    }
    /// The damage of the input that was found so far and not yet returned. The source reads on as far as it goes.
    fn problems(&mut self) -> Vec<Problem> {
        Vec::new()
    }
}

/// A writer of frames, in order.
pub trait Sink: Send {
    /// Appends a frame of the size that the sink was created for.
    fn write(&mut self, frame: &Frame) -> Result<()>;
    /// Writes all frames through to the disk and returns how many frames survive a power cut.
    /// [`resume_with`](crate::resume_with) can continue after any of them.
    fn sync(&mut self) -> Result<usize> {
        Ok(0)
    }
    /// A digest of all frames that were written before the last [`Sink::sync`], and in a resumed sink of the frames
    /// that it continues. A sink that checks its own files returns 0.
    fn digest(&self) -> u64 {
        0
    }
    /// Makes the sink keep its temporary files when it is dropped unfinished.
    fn keep_unfinished(&mut self) {}
    /// Completes the output and gives it its final name.
    fn finish(self: Box<Self>) -> Result<()>;
}
