//! Videos in parts: segments that are encoded in different places and joined later.
//!
//! A video is written in segments of [`FRAMES`] frames. The bytes of a segment depend on its own frames, the options
//! and the build of ffmpeg only, so that it does not matter which run or machine encodes it.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::stream::{Info, Sink};
use crate::video::{Options, SEGMENT_FRAMES, is_segment};

/// Frames of a segment; the last one of a video may have fewer.
pub const FRAMES: usize = SEGMENT_FRAMES;

/// Creates a sink for the frames of a video from number `first * FRAMES` on. It creates `folder` and writes their
/// segments to it. `output` and `options` choose the format as in [`create_with`](crate::create_with).
pub fn create(folder: &Path, output: &Path, info: &Info, options: &Options, first: usize) -> Result<Box<dyn Sink>> {
    #[cfg(feature = "ffmpeg")]
    return Ok(Box::new(crate::ffmpeg::SegmentSink::create(folder, output, info, options, first)?));
    #[cfg(not(feature = "ffmpeg"))]
    {
        let _ = (folder, info, options, first);
        Err(Error::FfmpegDisabled { path: output.to_owned() })
    }
}

/// The names of the finished segments in a folder, in order.
pub fn list(folder: &Path) -> Result<Vec<String>> {
    let cannot_read = |cause| Error::Read { path: folder.to_owned(), cause };
    let entries = fs::read_dir(folder).map_err(cannot_read)?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_segment(name)).collect();
    names.sort();
    Ok(names)
}

/// Joins the segments in the [work folder](crate::video::work_folder) of `output`, which have `frames` frames, with the
/// other tracks of the source that `info` describes. Removes the work folder when the output is complete.
pub fn join(output: &Path, info: &Info, options: &Options, frames: usize) -> Result<()> {
    #[cfg(feature = "ffmpeg")]
    return crate::ffmpeg::Writer::open(output, info, options, Some(frames))?.join_finished(frames);
    #[cfg(not(feature = "ffmpeg"))]
    {
        let _ = (info, options, frames);
        Err(Error::FfmpegDisabled { path: output.to_owned() })
    }
}
