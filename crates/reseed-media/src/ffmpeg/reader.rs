//! A source that reads a video.

use std::io::{self, Read};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::marks::digest;
use super::seek::{SeekCheck, SeekState};
use super::tools::{self, Process, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::format::Range;
use crate::frame::{Frame, Samples};
use crate::planes::Planes;
use crate::stream::{Info, Kind, Source};
use crate::video::{Mark, Video};

/// How long to wait for the timestamp of a frame. ffmpeg prints it before the frame; a missing one must not block.
const TIMESTAMP_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads frames from ffmpeg, one at a time.
pub(super) struct Reader {
    info: Info,
    planes: Planes,
    buffer: Vec<u8>,
    spare: Option<Samples>,
    stdout: ChildStdout,
    /// The timestamps that ffmpeg prints, each before its frame.
    timestamps: Receiver<Option<i64>>,
    /// `None` once it has exited.
    process: Option<Process>,
    tools: Tools,
    /// Frames read or skipped.
    read: usize,
}

impl Reader {
    /// Starts decoding the video that `info` describes.
    pub fn new(tools: Tools, info: Info) -> Result<Reader> {
        let Decoder { process, stdout, timestamps } = Decoder::start(&tools, described(&info), None)?;
        let planes = Planes::new(info.size, described(&info).layout);
        let (buffer, spare, process) = (Vec::new(), None, Some(process));
        Ok(Reader { tools, info, planes, buffer, spare, stdout, timestamps, process, read: 0 })
    }

    /// Restarts the decoder, at the beginning or at the keyframe before a time in seconds.
    fn restart(&mut self, before: Option<f64>) -> Result<()> {
        let Decoder { process, stdout, timestamps } = Decoder::start(&self.tools, described(&self.info), before)?;
        (self.process, self.stdout, self.timestamps) = (Some(process), stdout, timestamps);
        Ok(())
    }

    /// Reads the planes of the next frame and returns its mark; `None` after the last frame.
    fn read_planes(&mut self) -> Result<Option<Mark>> {
        let bytes = self.planes.frame_bytes();
        self.buffer.resize(bytes, 0);
        let video = described(&self.info);
        let waiting = self.process.as_ref().map(Process::waiting);
        let read = read_all(&mut self.stdout, &mut self.buffer);
        drop(waiting);
        let read = read.map_err(|cause| Error::Read { path: video.path.clone(), cause })?;
        if read == bytes {
            let timestamp = self.timestamps.recv_timeout(TIMESTAMP_TIMEOUT).ok().flatten();
            return Ok(Some(Mark { timestamp, digest: digest(&self.buffer) }));
        }
        let failed = |reason| Error::DecoderFailed { path: video.path.clone(), reason };
        match self.process.take().map(Process::wait) {
            Some(Ok(exit)) => exit.check_read().map_err(failed)?,
            Some(Err(cause)) => return Err(failed(cause.to_string())),
            None => {}
        }
        match read {
            0 => Ok(None),
            _ => Err(failed("it ended in the middle of a frame".to_owned())),
        }
    }

    /// Reads the planes of the next frame and records its time; `false` after the last frame.
    fn advance(&mut self) -> Result<bool> {
        let Some(mark) = self.read_planes()? else { return Ok(false) };
        described(&self.info).timeline.push(mark);
        self.read += 1;
        Ok(true)
    }

    /// Seeks to frame `frames` from an earlier keyframe. Returns whether the position is certain: the frames before it
    /// must equal those that an earlier run read.
    fn seek(&mut self, frames: usize) -> Result<bool> {
        let earlier = described(&self.info).timeline.earlier_marks();
        let Some(mut check) = SeekCheck::new(frames, &earlier, described(&self.info)) else { return Ok(false) };
        self.restart(Some(check.time))?;
        loop {
            // A decoder that fails after a seek may still succeed from the first frame.
            let Ok(Some(mark)) = self.read_planes() else { return Ok(false) };
            match check.next(mark) {
                SeekState::Searching => {}
                SeekState::Failed => return Ok(false),
                SeekState::Arrived => break,
            }
        }
        earlier[..frames].iter().for_each(|mark| described(&self.info).timeline.push(*mark));
        self.read = frames;
        Ok(true)
    }
}

/// A decoder process and our ends of its pipes.
struct Decoder {
    process: Process,
    stdout: ChildStdout,
    timestamps: Receiver<Option<i64>>,
}

impl Decoder {
    fn start(tools: &Tools, video: &Video, before: Option<f64>) -> Result<Decoder> {
        let mut command = tools::command(&tools.ffmpeg);
        command.args(words("-nostdin -hide_banner -v error -protocol_whitelist file"));
        if let Some(start) = video.clip.start {
            command.arg("-ss").arg(format!("{}us", start.as_micros()));
        }
        if let Some(time) = before {
            // Starts at the keyframe and keeps the timestamps of an uninterrupted read.
            command.args(words("-copyts -start_at_zero -noaccurate_seek -ss")).arg(format!("{time:.6}"));
        }
        command.arg("-i").arg(file_url(&video.path)).arg("-map").arg(format!("0:{}", video.index));
        command.arg("-vf").arg(filters(video)).args(tools.passthrough());
        command.args(["-f", "rawvideo", "-pix_fmt", &video.pipe.name, "pipe:1"]).stdout(Stdio::piped());

        let (sender, timestamps) = channel();
        // Sending fails only after the reader is dropped.
        let on_line = move |line: &str| timestamp(line).map(|value| sender.send(value)).is_some() || line == MARK;
        let mut process = Process::start(command, on_line)?;
        let stdout = process.child.stdout.take().expect("stdout is piped");
        tools::set_pipe_size(&stdout, usize::MAX);
        Ok(Decoder { process, stdout, timestamps })
    }
}

impl Source for Reader {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        Ok(self.advance()?.then(|| self.planes.decode(&self.buffer, self.spare.take())))
    }

    fn reuse(&mut self, done: Samples) {
        self.spare = Some(done);
    }

    fn skip(&mut self, frames: usize) -> Result<usize> {
        if self.read == 0 && !described(&self.info).timeline.earlier_marks().is_empty() {
            if self.seek(frames)? {
                return Ok(frames);
            }
            self.restart(None)?;
        }
        for skipped in 0..frames {
            if !self.advance()? {
                return Ok(skipped);
            }
        }
        Ok(frames)
    }
}

/// Reads until `buffer` is full or the stream ends, and returns the number of bytes.
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
        other => unreachable!("the reader needs a video, not {other:?}"),
    }
}

/// The second line that the `metadata` filter prints for each frame.
const MARK: &str = "reseed=0";

/// Filters that deliver the planes, unconverted if possible, and print the timestamp of each frame to standard error.
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
    // After `-ss`, the times of `trim` count from the start; the option `-to` would count from the first frame.
    let length = video.clip.end.map(|end| end.saturating_sub(video.clip.start.unwrap_or_default()));
    let trim = length.map_or(String::new(), |length| format!("trim=end={:.6},", length.as_secs_f64()));
    let mark = "metadata=add:key=reseed:value=0";
    format!(r"{trim}{repack}format={format},{mark},metadata=print:key=reseed:direct=1:file=pipe\\:2")
}

/// Parses `frame:12   pts:1001   pts_time:0.5`. The inner option is `None` for a frame without timestamp. A message of
/// another thread may precede it on the line.
fn timestamp(line: &str) -> Option<Option<i64>> {
    let (_, line) = line.rsplit_once("frame:")?;
    let (frame, rest) = line.split_once(char::is_whitespace)?;
    frame.parse::<u64>().ok()?;
    let value = rest.trim_start().strip_prefix("pts:")?.split_whitespace().next()?;
    Some(value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn timestamps_are_distinguished_from_messages() {
        assert_eq!(timestamp("frame:12   pts:1001    pts_time:0.5"), Some(Some(1001)));
        assert_eq!(timestamp("oops frame:3    pts:-7      pts_time:-0.1"), Some(Some(-7)));
        assert_eq!(timestamp("frame:0    pts:NOPTS   pts_time:NOPTS"), Some(None));
        assert_eq!(timestamp("[h264 @ 0x1] error while decoding frame: 7"), None);
    }
}
