//! The two ends of a job, and what one tells the other.

use std::ffi::OsString;

use crate::error::Result;
use crate::frame::{Depth, Frame, Rate, Samples, Size};
use crate::video::Video;
use crate::y4m;

/// What was opened; a sink of the same kind is made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// One picture in one file.
    Image,
    /// A folder of pictures, one a frame.
    Folder,
    /// A Y4M stream and the pixel format it carries.
    Y4m(y4m::Format),
    /// Any other video, read through ffmpeg.
    Video(Box<Video>),
}

/// What is known of a stream before its first frame is read. To describe an output, clone the input's and change what
/// differs: `Info { size: larger, ..source.info().clone() }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Height and width of every frame.
    pub size: Size,
    /// How many frames there are; unknown for a pipe.
    pub frames: Option<usize>,
    /// Frames per second.
    pub rate: Rate,
    /// The depth that loses nothing of the input.
    pub depth: Depth,
    /// Whether pictures carry alpha. Sinks write it where their format holds it: not in JPEG, not in Y4M.
    pub alpha: bool,
    /// What was opened.
    pub kind: Kind,
    /// The file names of a folder's pictures, in order, so that the output can carry the same; otherwise empty.
    pub names: Vec<OsString>,
    /// The RGB colour profile embedded in a picture, or in a folder's first; written back, never applied.
    pub icc: Option<Vec<u8>>,
}

/// Frames from somewhere, in order.
pub trait Source: Send {
    /// What is known before reading.
    fn info(&self) -> &Info;
    /// The next frame, or `None` after the last.
    fn next(&mut self) -> Result<Option<Frame>>;
    /// Takes the samples of a frame that nobody needs any more, as memory for the next.
    fn reuse(&mut self, _done: Samples) {}
    /// Passes over so many frames, which costs less than reading them; gives how many there were.
    fn skip(&mut self, frames: usize) -> Result<usize> {
        for skipped in 0..frames {
            if self.next()?.is_none() {
                return Ok(skipped);
            }
        }
        Ok(frames)
    }
}

/// Frames to somewhere, in order.
pub trait Sink: Send {
    /// Appends a frame of the size that the sink was created for.
    fn write(&mut self, frame: &Frame) -> Result<()>;
    /// Makes what was written safe, so that it is there even after a power cut, and says how many frames that are: those
    /// that [`resume_with`](crate::resume_with) can go on behind.
    fn secure(&mut self) -> Result<usize> {
        Ok(0)
    }
    /// From here on, what is written stays under its temporary name when the sink is dropped unfinished.
    fn keep_unfinished(&mut self) {}
    /// Completes the output and puts it in place under its final name.
    fn finish(self: Box<Self>) -> Result<()>;
}
