//! One segment: frames in, a file of its own out.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};

use super::segments::Work;
use super::timeline::{Clock, Timeline};
use super::tools::{self, Process, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::frame::Size;

/// Frames that an encoder may hold back: how far decoding times lie before the first frame's.
const REORDERED: i64 = 32;

/// How all segments of a video are encoded.
pub(super) struct Encoding {
    pub tools: Tools,
    /// The output, for messages.
    pub output: PathBuf,
    pub size: Size,
    /// What goes through the pipe.
    pub pixels: String,
    /// What the encoder takes.
    pub encoder_pixels: String,
    /// Filters that tag frames: range, matrix, aspect.
    pub filters: String,
    /// The encoder and its settings.
    pub settings: Vec<String>,
    /// Colour tags of the stream.
    pub tags: Vec<String>,
    pub clock: Clock,
    pub format: &'static str,
}

/// A running encoder.
pub(super) struct Encoder {
    process: Process,
    stdin: Option<ChildStdin>,
    unfinished: String,
    index: usize,
    pub frames: usize,
}

impl Encoder {
    /// No more frames follow.
    pub fn close(mut self) -> Encoder {
        self.stdin = None;
        self
    }

    /// Whether its file is complete, or never will be.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.process.child.try_wait(), Ok(None))
    }
}

impl Encoding {
    pub fn start(&self, work: &Work, index: usize) -> Result<Encoder> {
        let unfinished = work.unfinished(index, "encode");
        let Size { h, w } = self.size;
        let rate = self.clock.rate();
        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(&work.folder).args(words("-nostdin -hide_banner -v error -y -f rawvideo"));
        command.args(["-pix_fmt", &self.pixels, "-video_size", &format!("{w}x{h}")]);
        command.args(["-framerate", &format!("{}/{}", rate.num, rate.den), "-i", "pipe:0", "-vf", &self.filters]);
        command.args(["-pix_fmt", &self.encoder_pixels]).args(&self.settings).args(&self.tags);
        command.args(self.tools.passthrough()).args(self.container()).arg(file_url(Path::new(&unfinished)));
        command.stdin(Stdio::piped());
        let mut process = Process::start(command, |_| false)?;
        let stdin = process.child.stdin.take().inspect(|stdin| tools::widen(stdin, w * h));
        Ok(Encoder { process, stdin, unfinished, index, frames: 0 })
    }

    fn container(&self) -> Vec<String> {
        let ticks = self.clock.per_second;
        let text = format!("-fflags +bitexact -flags +bitexact -video_track_timescale {ticks} -f {}", self.format);
        text.split(' ').map(str::to_owned).collect()
    }

    /// Appends a frame's planes.
    pub fn write(&self, encoder: &mut Encoder, planes: &[u8]) -> Result<()> {
        encoder.frames += 1;
        let stdin = encoder.stdin.as_mut().expect("open until the segment is finished");
        // A closed pipe is all that is heard here of an encoder that died; why, it has said elsewhere.
        stdin.write_all(planes).map_err(|cause| {
            encoder.stdin = None;
            self.died(encoder.process.reason().unwrap_or_else(|| cause.to_string()))
        })
    }

    fn died(&self, reason: String) -> Error {
        Error::EncoderDied { path: self.output.clone(), reason }
    }

    /// Waits until the file is complete, gives its frames their times, and its name.
    pub fn finish(&self, encoder: Encoder, work: &mut Work, timeline: Option<&Timeline>) -> Result<()> {
        let Encoder { process, unfinished, index, frames, stdin } = encoder;
        drop(stdin);
        let end = process.wait().map_err(|cause| self.died(cause.to_string()))?;
        end.check().map_err(|reason| self.died(reason))?;
        let first = work.frames() as i64;
        let times = timeline.map(|timeline| relative_times(timeline, first, frames));
        match times.filter(|times| !self.is_regular(times)) {
            None => work.finish(&unfinished, index, frames),
            Some(times) => {
                let retimed = work.unfinished(index, "retime");
                self.retime(&work.folder, &unfinished, &retimed, &times)?;
                // A second copy is no reason to stop.
                let _ = fs::remove_file(work.folder.join(&unfinished));
                work.finish(&retimed, index, frames)
            }
        }
    }

    /// Whether frames come at the rate that they were encoded at.
    fn is_regular(&self, times: &[i64]) -> bool {
        let frames = &times[REORDERED as usize..];
        frames.iter().enumerate().all(|(i, time)| *time == i as i64 * i64::from(self.clock.frame))
    }

    /// Copies a segment and gives its packets the times that belong to the frames they were counted as.
    fn retime(&self, folder: &Path, from: &str, to: &str, times: &[i64]) -> Result<()> {
        let frame = self.clock.frame;
        let mut table = String::new();
        lookup(times, -REORDERED, &mut table);
        let of = |stamp: &str| format!("'st(0,round({stamp}/{frame}));{table}'");
        let filter = format!("setts=pts={}:dts={}", of("PTS"), of("DTS"));
        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(folder).args(words("-nostdin -hide_banner -v error -y -i")).arg(file_url(Path::new(from)));
        command.args(words("-map 0 -c copy")).arg("-bsf:v").arg(filter).args(self.container());
        command.arg(file_url(Path::new(to)));
        tools::output(command)?.map(drop).map_err(|reason| self.died(reason))
    }
}

/// When frames are shown, from `REORDERED` before the segment's first to its last, relative to the first.
fn relative_times(timeline: &Timeline, first: i64, frames: usize) -> Vec<i64> {
    let zero = timeline.time(first);
    (first - REORDERED..first + frames as i64).map(|index| timeline.time(index) - zero).collect()
}

/// `times[i]` for the number in register 0, counted from `first`, as an expression that ffmpeg evaluates: a tree of
/// comparisons.
fn lookup(times: &[i64], first: i64, expression: &mut String) {
    let (left, right) = times.split_at(times.len() / 2);
    let middle = first + left.len() as i64;
    // Writing to a string never fails.
    let _ = match times {
        [] => write!(expression, "0"),
        [time] => write!(expression, "{time}"),
        _ => {
            let _ = write!(expression, "if(lt(ld(0),{middle}),");
            lookup(left, first, expression);
            expression.push(',');
            lookup(right, middle, expression);
            write!(expression, ")")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_tree_of_comparisons() {
        let mut expression = String::new();
        lookup(&[-40, 0, 33], -1, &mut expression);
        assert_eq!(expression, "if(lt(ld(0),0),-40,if(lt(ld(0),1),0,33))");
    }
}
