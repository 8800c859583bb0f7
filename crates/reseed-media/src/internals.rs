//! Not part of the public interface: parsers of bytes in memory, for fuzzing. May change in any version.

use std::io::Cursor;

use crate::error::Result;
use crate::stream::Source;
#[cfg(feature = "ffmpeg")]
use crate::stream::{Info, Kind};
use crate::y4m::Reader;

const NAME: &str = "input.y4m";

/// A Y4M stream as a pipe brings it.
pub fn y4m_pipe(bytes: Vec<u8>) -> Result<Box<dyn Source>> {
    Ok(Box::new(Reader::new(Cursor::new(bytes), NAME)?))
}

/// A Y4M file, whose frames are counted first.
pub fn y4m_file(bytes: Vec<u8>) -> Result<Box<dyn Source>> {
    Ok(Box::new(Reader::seekable(Cursor::new(bytes), NAME)?))
}

/// A video as ffprobe describes it: a JSON object with the reports `facts` and `frame`, and the timestamps `stamps` of
/// its frames. `None` where there is no video.
#[cfg(feature = "ffmpeg")]
pub fn ffprobe(reports: &[u8]) -> Option<Result<Info>> {
    let mut case: serde_json::Value = serde_json::from_slice(reports).ok()?;
    let frame = case["frame"]["frames"].get(0).cloned().unwrap_or_default();
    let described = crate::ffmpeg::describe(case.get_mut("facts")?.take(), &frame)?;
    if let Ok(Info { kind: Kind::Video(video), .. }) = &described {
        for timestamp in case["stamps"].as_array().into_iter().flatten().map(serde_json::Value::as_i64) {
            video.timeline.push(crate::frame::Mark { timestamp, digest: 0 });
        }
    }
    Some(described)
}
