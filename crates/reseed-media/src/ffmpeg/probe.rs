//! Describes a video file through ffprobe.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::completeness::is_complete;
use super::fields::{Decision, SAMPLE, Sampler, decide};
use super::report::{Report, number};
use super::tools::{self, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::problem::Problem;
use crate::stream::Info;
use crate::video::{Clip, Deinterlace};

/// What a file holds, and the version of ffprobe.
const CONTENTS: &str = "-show_program_version -show_streams -show_format -show_chapters";

/// Seconds that may be missing at the end of a video before it counts as incomplete.
const TOLERANCE: f64 = 1.0;

/// The largest file in bytes whose packets are counted, because all of it must be read.
const MAX_COUNTED: u64 = 4 << 30;

/// Demuxers that read nothing but their file. Others, such as `hls`, `concat`, `dash`, `sdp` and `image2`, open files
/// and addresses that the file names.
const SELF_CONTAINED: &str = "3g2,3gp,asf,av1,avi,dv,flv,gxf,h264,hevc,ivf,m4a,m4v,matroska,mj2,mjpeg,mov,mp4,mpeg,\
                              mpegts,mpegvideo,mxf,nut,obu,ogg,vc1,webm,wtv,yuv4mpegpipe";

/// Fails unless one of the self-contained demuxers reads the file.
pub(super) fn check_self_contained(tools: &Tools, path: &Path) -> Result<()> {
    let path = std::path::absolute(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    let file = File { tools, path };
    file.query(&format!("-format_whitelist {SELF_CONTAINED} -show_entries format=format_name")).map(drop)
}

/// Describes the first video stream of `path` that is not a cover image.
pub(super) fn probe(tools: &Tools, path: &Path, clip: Clip) -> Result<(Info, Vec<Problem>)> {
    let path = std::path::absolute(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    let file = File { tools, path };
    let mut report = file.query(&format!("{CONTENTS} -show_frames -read_intervals %+#{SAMPLE}"))?;
    if let Some(version) = report["program_version"]["version"].as_str() {
        tools.set_version(version);
    }
    let frames = report["frames"].take();
    let mut report = Report::new(report).ok_or_else(|| Error::NoVideo { path: file.path.clone() })?;
    let frames = file.video_frames(&report, frames)?;
    let missing_end = file.missing_end(&report, clip);
    let fields = file.fields(&report, &frames, clip.deinterlace);
    if let Some(count) = file.counted_frames(&report) {
        report.set_frame_count(count);
    }
    let first = frames.first().cloned().unwrap_or_default();
    let info = report.describe(file.path, &first, clip, fields)?;
    Ok((info, missing_end.into_iter().collect()))
}

struct File<'a> {
    tools: &'a Tools,
    path: PathBuf,
}

impl File<'_> {
    fn query(&self, options: &str) -> Result<Value> {
        let mut command = tools::command(&self.tools.ffprobe);
        command.args(words("-v error -of json -protocol_whitelist file")).args(words(options));
        command.arg(file_url(&self.path));
        let json = tools::output(command)?.map_err(|reason| self.unreadable(&reason))?;
        serde_json::from_slice(&json).map_err(|cause| self.unreadable(&cause.to_string()))
    }

    fn unreadable(&self, reason: &str) -> Error {
        let name = file_url(&self.path);
        // The message of ffmpeg repeats the file name; ours already begins with it.
        let reason = reason.strip_prefix(&*name.to_string_lossy()).map_or(reason, |rest| rest.trim_start_matches(": "));
        Error::Unreadable { path: self.path.clone(), reason: reason.to_owned() }
    }

    /// The first frames of the video, out of the first frames of all streams. Where those hold too few, because
    /// there are many streams or the video starts late, the frames of the video alone are queried.
    fn video_frames(&self, report: &Report, frames: Value) -> Result<Vec<Value>> {
        let index = report.index();
        let all = list(frames);
        let read = all.len();
        let video: Vec<Value> = all.into_iter().filter(|frame| frame["stream_index"] == index).collect();
        if video.len() >= SAMPLE / 4 || (read < SAMPLE / 2 && !video.is_empty()) {
            return Ok(video);
        }
        let mut alone = self.query(&format!("-select_streams {index} -show_frames -read_intervals %+#{SAMPLE}"))?;
        Ok(list(alone["frames"].take()))
    }

    /// Decides what is done with the fields of the video.
    fn fields(&self, report: &Report, frames: &[Value], choice: Deinterlace) -> Decision {
        let (index, rows, seconds) = (report.index(), report.rows(), report.span().1);
        let sampler = Sampler { tools: self.tools, path: &self.path, index, rows, seconds };
        let flags = report.flags(frames);
        let choice = match choice {
            Deinterlace::Auto if flags.parity().is_none() && !sampler.is_large_enough() => Deinterlace::Off,
            choice => choice,
        };
        decide(choice, flags, report.rate(), || sampler.looks(), || sampler.is_combed())
    }

    /// Counts the frames of an AVI file, whose header also counts frames that were dropped while recording.
    fn counted_frames(&self, report: &Report) -> Option<u64> {
        let length = std::fs::metadata(&self.path).ok()?.len();
        if report.format() != "avi" || length > MAX_COUNTED {
            return None;
        }
        let select = format!("-select_streams {} -count_packets", report.index());
        let count = self.query(&format!("{select} -show_entries stream=nb_read_packets")).ok()?;
        count["streams"][0]["nb_read_packets"].as_str()?.parse().ok()
    }

    /// Compares the duration in the header with the last packets, so that an interrupted copy is found before the job
    /// starts.
    fn missing_end(&self, report: &Report, clip: Clip) -> Option<Problem> {
        let exact = report.format().contains("mov") || report.format().contains("matroska");
        let (start, seconds) = report.span();
        let seconds = seconds.filter(|_| exact)?;
        let needed = clip.end.map_or(seconds, |end| end.as_secs_f64().min(seconds));
        if needed < 2.0 * TOLERANCE || is_complete(&self.path) {
            return None;
        }
        let (from, end) = (start + needed - TOLERANCE, start + needed);
        let packets = self.query(&format!("-show_entries packet=pts_time -read_intervals {from:.6}%{end:.6}"));
        let packets = packets.unwrap_or_default();
        let packets: &[Value] = packets["packets"].as_array().map_or(&[], Vec::as_slice);
        let last = packets.iter().filter_map(|packet| number(&packet["pts_time"])).reduce(f64::max);
        let missing = last.is_none_or(|last| last < from - TOLERANCE);
        missing.then(|| Problem::MissingEnd { path: self.path.clone(), seconds })
    }
}

/// The elements of an array; none of another value.
fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(all) => all,
        _ => Vec::new(),
    }
}
