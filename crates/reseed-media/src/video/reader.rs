//! A video as a source of frames.

use std::io::{self, Read};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::Video;
use super::marks::digest;
use super::seek::{Passed, Way};
use super::timeline::Mark;
use super::tools::{self, Process, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::frame::{Frame, Samples};
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
    spare: Option<Samples>,
    stdout: ChildStdout,
    /// Timestamps as the decoder says them, each before its frame.
    stamps: Receiver<Option<i64>>,
    /// Taken when it has ended.
    process: Option<Process>,
    tools: Tools,
    /// Frames read, or passed over.
    read: usize,
}

impl Reader {
    /// Starts decoding what a probe has described.
    pub fn new(tools: Tools, info: Info) -> Result<Reader> {
        let Child { process, stdout, stamps } = Child::start(&tools, described(&info), None)?;
        let planes = Planes::new(info.size, described(&info).layout);
        let (buffer, spare, process) = (Vec::new(), None, Some(process));
        Ok(Reader { tools, info, planes, buffer, spare, stdout, stamps, process, read: 0 })
    }

    /// Starts again, from the start or, in seconds, from somewhere before a time.
    fn restart(&mut self, before: Option<f64>) -> Result<()> {
        let Child { process, stdout, stamps } = Child::start(&self.tools, described(&self.info), before)?;
        (self.process, self.stdout, self.stamps) = (Some(process), stdout, stamps);
        Ok(())
    }

    /// The next frame's mark, once its planes are there. Nothing behind the last.
    fn fill(&mut self) -> Result<Option<Mark>> {
        let bytes = self.planes.frame_bytes();
        self.buffer.resize(bytes, 0);
        let video = described(&self.info);
        let read = read_all(&mut self.stdout, &mut self.buffer);
        let read = read.map_err(|cause| Error::Read { path: video.path.clone(), cause })?;
        if read == bytes {
            let stamp = self.stamps.recv_timeout(PATIENCE).ok().flatten();
            return Ok(Some(Mark { stamp, digest: digest(&self.buffer) }));
        }
        let died = |reason| Error::DecoderDied { path: video.path.clone(), reason };
        match self.process.take().map(Process::wait) {
            Some(Ok(end)) => end.check().map_err(died)?,
            Some(Err(cause)) => return Err(died(cause.to_string())),
            None => {}
        }
        match read {
            0 => Ok(None),
            _ => Err(died("it ended within a frame".to_owned())),
        }
    }

    /// Reads the planes of the next frame and notes its time. Whether there was one.
    fn advance(&mut self) -> Result<bool> {
        let Some(mark) = self.fill()? else { return Ok(false) };
        described(&self.info).timeline.push(mark);
        self.read += 1;
        Ok(true)
    }

    /// Goes behind the first `frames` frames by way of a keyframe before them. Whether that led there for certain: the
    /// frames on the way must be those that an earlier run read.
    fn seek(&mut self, frames: usize) -> Result<bool> {
        let past = described(&self.info).timeline.past();
        let Some(mut way) = Way::to(frames, &past, described(&self.info)) else { return Ok(false) };
        self.restart(Some(way.time))?;
        loop {
            // A decoder that fails here may not when it starts from the first frame.
            let Ok(Some(mark)) = self.fill() else { return Ok(false) };
            match way.pass(mark) {
                Passed::On => {}
                Passed::Lost => return Ok(false),
                Passed::There => break,
            }
        }
        past[..frames].iter().for_each(|mark| described(&self.info).timeline.push(*mark));
        self.read = frames;
        Ok(true)
    }
}

/// A decoder, and the ends of its pipes that are ours.
struct Child {
    process: Process,
    stdout: ChildStdout,
    stamps: Receiver<Option<i64>>,
}

impl Child {
    fn start(tools: &Tools, video: &Video, before: Option<f64>) -> Result<Child> {
        let mut command = tools::command(&tools.ffmpeg);
        command.args(words("-nostdin -hide_banner -v error -protocol_whitelist file"));
        if let Some(start) = video.clip.start {
            command.arg("-ss").arg(format!("{}us", start.as_micros()));
        }
        if let Some(time) = before {
            // From the keyframe on, with the timestamps that frames have when all are read.
            command.args(words("-copyts -start_at_zero -noaccurate_seek -ss")).arg(format!("{time:.6}"));
        }
        command.arg("-i").arg(file_url(&video.path)).arg("-map").arg(format!("0:{}", video.index));
        command.arg("-vf").arg(filters(video)).args(tools.passthrough());
        command.args(["-f", "rawvideo", "-pix_fmt", &video.pipe.name, "pipe:1"]).stdout(Stdio::piped());

        let (to, stamps) = channel();
        // Whoever no longer listens has stopped reading.
        let listen = move |line: &str| timestamp(line).map(|stamp| to.send(stamp)).is_some() || line == MARK;
        let mut process = Process::start(command, listen)?;
        let stdout = process.child.stdout.take().expect("a pipe was asked for");
        tools::widen(&stdout, usize::MAX); // a decoder that is gone closes it
        Ok(Child { process, stdout, stamps })
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
        if self.read == 0 && !described(&self.info).timeline.past().is_empty() {
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
