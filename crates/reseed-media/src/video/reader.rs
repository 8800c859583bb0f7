//! A video as a source of frames.

use std::io::{self, Read};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::Video;
use super::tools::{self, Process, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::planes::Planes;
use crate::stream::{Info, Kind, Source};
use crate::y4m::Range;

/// How long a timestamp may take that was written before its frame. One that never comes must not stop the film.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads frames from ffmpeg, one at a time.
pub(super) struct Reader {
    info: Info,
    planes: Planes,
    buffer: Vec<u8>,
    stdout: ChildStdout,
    /// Timestamps as the decoder says them, each before its frame.
    stamps: Receiver<Option<i64>>,
    /// Taken when it has ended.
    process: Option<Process>,
}

impl Reader {
    /// Starts decoding what a probe has described.
    pub fn new(tools: Tools, info: Info) -> Result<Reader> {
        let video = described(&info);
        let mut command = tools::command(&tools.ffmpeg);
        command.args(words("-nostdin -hide_banner -v error -protocol_whitelist file"));
        if let Some(start) = video.clip.start {
            command.arg("-ss").arg(format!("{}us", start.as_micros()));
        }
        command.arg("-i").arg(file_url(&video.path)).arg("-map").arg(format!("0:{}", video.index));
        command.arg("-vf").arg(filters(video)).args(tools.passthrough());
        command.args(["-f", "rawvideo", "-pix_fmt", &video.pipe.name, "pipe:1"]).stdout(Stdio::piped());

        let (to, stamps) = channel();
        // Whoever no longer listens has stopped reading.
        let listen = move |line: &str| timestamp(line).map(|stamp| to.send(stamp)).is_some() || line == MARK;
        let mut process = Process::start(command, listen)?;
        let stdout = process.child.stdout.take().expect("a pipe was asked for");
        let planes = Planes::new(info.size, video.layout);
        Ok(Reader { info, planes, buffer: Vec::new(), stdout, stamps, process: Some(process) })
    }

    /// Reads the planes of the next frame and notes its time. Nothing behind the last.
    fn fill(&mut self) -> Result<bool> {
        let bytes = self.planes.frame_bytes();
        self.buffer.resize(bytes, 0);
        let video = described(&self.info);
        let read = read_all(&mut self.stdout, &mut self.buffer);
        let read = read.map_err(|cause| Error::Read { path: video.path.clone(), cause })?;
        if read == bytes {
            video.timeline.push(self.stamps.recv_timeout(PATIENCE).ok().flatten());
            return Ok(true);
        }
        let died = |reason| Error::DecoderDied { path: video.path.clone(), reason };
        match self.process.take().map(Process::wait) {
            Some(Ok(end)) => end.check().map_err(died)?,
            Some(Err(cause)) => return Err(died(cause.to_string())),
            None => {}
        }
        match read {
            0 => Ok(false),
            _ => Err(died("it ended within a frame".to_owned())),
        }
    }
}

impl Source for Reader {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        Ok(self.fill()?.then(|| self.planes.decode(&self.buffer)))
    }

    fn skip(&mut self, frames: usize) -> Result<usize> {
        for skipped in 0..frames {
            if !self.fill()? {
                return Ok(skipped);
            }
        }
        Ok(frames)
    }
}

/// Fills `buffer` as far as there is something to fill it with.
fn read_all(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn described(info: &Info) -> &Video {
    match &info.kind {
        Kind::Video(video) => video,
        other => unreachable!("a probe describes videos, not {other:?}"),
    }
}

/// The line that follows each frame's; it only makes ffmpeg print them.
const MARK: &str = "reseed=0";

/// The planes as they are where possible, and a line for each frame with its timestamp on standard error.
fn filters(video: &Video) -> String {
    let range = match video.tags.range {
        Range::Limited => "tv",
        Range::Full => "pc",
    };
    let format = &video.pipe.name;
    let repack = match video.pipe.repacked {
        true => format!("scale=in_range={range}:out_range={range}:flags=bicubic+accurate_rnd+full_chroma_int,"),
        false => String::new(),
    };
    // Behind a start, times count from there; an option of ffmpeg's would count from the first frame.
    let length = video.clip.end.map(|end| end.saturating_sub(video.clip.start.unwrap_or_default()));
    let trim = length.map_or(String::new(), |length| format!("trim=end={:.6},", length.as_secs_f64()));
    let mark = "metadata=add:key=reseed:value=0";
    format!(r"{trim}{repack}format={format},{mark},metadata=print:key=reseed:direct=1:file=pipe\\:2")
}

/// `frame:12   pts:1001   pts_time:0.5`: the timestamp, or none where the frame has none. Another thread's message may
/// stand before it on the line.
fn timestamp(line: &str) -> Option<Option<i64>> {
    let (_, line) = line.rsplit_once("frame:")?;
    let (frame, rest) = line.split_once(char::is_whitespace)?;
    frame.parse::<u64>().ok()?;
    let stamp = rest.trim_start().strip_prefix("pts:")?.split_whitespace().next()?;
    Some(stamp.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn timestamps_are_told_from_messages() {
        assert_eq!(timestamp("frame:12   pts:1001    pts_time:0.5"), Some(Some(1001)));
        assert_eq!(timestamp("oops frame:3    pts:-7      pts_time:-0.1"), Some(Some(-7)));
        assert_eq!(timestamp("frame:0    pts:NOPTS   pts_time:NOPTS"), Some(None));
        assert_eq!(timestamp("[h264 @ 0x1] error while decoding frame: 7"), None);
    }
}
