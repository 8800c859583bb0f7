//! Reading and writing videos through ffmpeg and ffprobe as child processes with pipes.
//!
//! A reader takes the decoded planes from ffmpeg in the format of the file, this crate converts them, and the time of
//! every frame is recorded. A [`Writer`] writes segments of a fixed number of frames, each with its own encoder
//! process, into a work folder beside the output. At the end it joins the segments and copies audio, subtitles,
//! chapters and metadata from the source. A segment is renamed when it is complete, and its bytes depend on its own
//! frames only, so that an interrupted job can resume.

mod closing;
mod color;
mod completeness;
mod cut;
mod decode_log;
mod decoder;
mod direct_file;
mod encoder;
mod feeder;
mod fields;
mod gif;
mod group;
mod marks;
mod messages;
mod mux;
mod opus;
mod output_format;
mod probe;
mod process;
mod reader;
mod report;
mod seek;
mod segment_sink;
mod segments;
mod settings;
mod spool;
mod timecode;
mod tools;
mod verify;
mod watchdog;
mod work_folder;
mod writer;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::digest::digest;
use crate::error::Result;
use crate::stream::{Info, Source};
use crate::video::{Clip, FieldAction};

pub(crate) use gif::join_gif;
pub(crate) use segment_sink::SegmentSink;
pub(crate) use writer::Writer;

/// The path of an ffmpeg that starts.
pub(crate) fn path() -> Result<PathBuf> {
    let tools = tools::Tools::find()?;
    tools.check()?;
    Ok(tools.ffmpeg)
}

/// Identifies the build of ffmpeg, its libraries and its options.
pub(crate) fn version() -> Result<String> {
    let tools = tools::Tools::find()?;
    let mut command = tools::command(&tools.ffmpeg);
    command.args(["-hide_banner", "-version"]);
    let text = tools::output(command)?.unwrap_or_default();
    let first = String::from_utf8_lossy(text.split(|byte| *byte == b'\n').next().unwrap_or_default()).into_owned();
    let name = first.split(" Copyright").next().unwrap_or_default();
    Ok(format!("{name} ({:016x})", digest(0, &text)))
}

/// Kills all child processes, for a process that exits without dropping its sources and sinks.
pub(crate) fn kill_children() {
    watchdog::kill_all();
}

/// Opens a video of any format that ffmpeg reads.
pub(crate) fn open(path: &Path, clip: Clip) -> Result<Box<dyn Source>> {
    let tools = tools::Tools::find()?;
    let (info, problems) = probe::probe(&tools, path, clip)?;
    Ok(Box::new(reader::Reader::new(tools, info, problems)?))
}

/// Fails for a file whose demuxer may open other files.
pub(crate) fn check_self_contained(path: &Path) -> Result<()> {
    probe::check_self_contained(&tools::Tools::find()?, path)
}

/// Describes a video by ffprobe's reports on its streams and on its first frame; `None` where there is no video stream.
pub(crate) fn describe(streams: Value, frame: &Value) -> Option<Result<Info>> {
    let keep = fields::Decision { action: FieldAction::Keep, note: None };
    Some(report::Report::new(streams)?.describe("input".into(), frame, Clip::default(), keep))
}
