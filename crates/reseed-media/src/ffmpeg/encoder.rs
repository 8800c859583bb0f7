//! The encoder process of one segment.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};

use super::tools::{self, Process, Tools, file_url, words};
use super::work_folder::WorkFolder;
use crate::error::{Error, Result};
use crate::frame::Size;
use crate::video::{Clock, Timeline};

/// The most frames by which an encoder reorders: decoding times start up to this many frames before the first frame.
const MAX_REORDER: i64 = 32;

/// The configuration that all segments of a video share.
pub(super) struct EncoderConfig {
    pub tools: Tools,
    /// The output, for error messages.
    pub output: PathBuf,
    pub size: Size,
    /// The pixel format in the pipe.
    pub pixels: String,
    /// The pixel format of the encoder's input.
    pub encoder_pixels: String,
    /// Filters that set the tags of frames: range, matrix, aspect.
    pub filters: String,
    /// The encoder and its settings, as arguments.
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
    /// Closes the pipe, so that the process completes its file.
    pub fn close(mut self) -> Encoder {
        self.stdin = None;
        self
    }

    /// Whether the process has exited.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.process.child.try_wait(), Ok(None))
    }
}

impl EncoderConfig {
    /// Starts the encoder of segment `index`.
    pub fn start(&self, work: &WorkFolder, index: usize) -> Result<Encoder> {
        let unfinished = work.unfinished(index, "encode");
        let Size { h, w } = self.size;
        let rate = self.clock.rate();
        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(&work.path).args(words("-nostdin -hide_banner -v error -y -f rawvideo"));
        command.args(["-pix_fmt", &self.pixels, "-video_size", &format!("{w}x{h}")]);
        command.args(["-framerate", &format!("{}/{}", rate.num, rate.den), "-i", "pipe:0", "-vf", &self.filters]);
        command.args(["-pix_fmt", &self.encoder_pixels]).args(&self.settings).args(&self.tags);
        command.args(self.tools.passthrough()).args(self.container()).arg(file_url(Path::new(&unfinished)));
        command.stdin(Stdio::piped());
        let mut process = Process::start(command, |_| false)?;
        let stdin = process.child.stdin.take().inspect(|stdin| tools::set_pipe_size(stdin, w * h));
        Ok(Encoder { process, stdin, unfinished, index, frames: 0 })
    }

    fn container(&self) -> Vec<String> {
        let ticks = self.clock.per_second;
        let text = format!("-fflags +bitexact -flags +bitexact -video_track_timescale {ticks} -f {}", self.format);
        text.split(' ').map(str::to_owned).collect()
    }

    /// Sends the planes of a frame.
    pub fn write(&self, encoder: &mut Encoder, planes: &[u8]) -> Result<()> {
        encoder.frames += 1;
        let stdin = encoder.stdin.as_mut().expect("open until the segment is finished");
        // The error of the pipe only says that the process ended; its last message says why.
        stdin.write_all(planes).map_err(|cause| {
            encoder.stdin = None;
            self.failed(encoder.process.reason().unwrap_or_else(|| cause.to_string()))
        })
    }

    fn failed(&self, reason: String) -> Error {
        Error::EncoderFailed { path: self.output.clone(), reason }
    }

    /// Waits until the file is complete, sets the times of its frames, and renames it.
    pub fn finish(&self, encoder: Encoder, work: &mut WorkFolder, timeline: Option<&Timeline>) -> Result<()> {
        let Encoder { process, unfinished, index, frames, stdin } = encoder;
        drop(stdin);
        let exit = process.wait().map_err(|cause| self.failed(cause.to_string()))?;
        exit.check().map_err(|reason| self.failed(reason))?;
        let first = work.frames() as i64;
        let times = timeline.map(|timeline| relative_times(timeline, first, frames));
        match times.filter(|times| !self.is_regular(times)) {
            None => work.finish(&unfinished, index, frames),
            Some(times) => {
                let retimed = work.unfinished(index, "retime");
                self.retime(&work.path, &unfinished, &retimed, &times)?;
                // The retimed copy replaces this file; a failure to remove it does no harm.
                let _ = fs::remove_file(work.path.join(&unfinished));
                work.finish(&retimed, index, frames)
            }
        }
    }

    /// Whether frames are at the constant rate that they were encoded with.
    fn is_regular(&self, times: &[i64]) -> bool {
        let frames = &times[MAX_REORDER as usize..];
        frames.iter().enumerate().all(|(i, time)| *time == i as i64 * i64::from(self.clock.frame))
    }

    /// Copies a segment and replaces each packet's timestamps, which count frames, by the times of those frames.
    fn retime(&self, folder: &Path, from: &str, to: &str, times: &[i64]) -> Result<()> {
        let frame = self.clock.frame;
        let mut table = String::new();
        lookup(times, -MAX_REORDER, &mut table);
        let of = |timestamp: &str| format!("'st(0,round({timestamp}/{frame}));{table}'");
        let filter = format!("setts=pts={}:dts={}", of("PTS"), of("DTS"));
        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(folder).args(words("-nostdin -hide_banner -v error -y -i")).arg(file_url(Path::new(from)));
        command.args(words("-map 0 -c copy")).arg("-bsf:v").arg(filter).args(self.container());
        command.arg(file_url(Path::new(to)));
        tools::output(command)?.map(drop).map_err(|reason| self.failed(reason))
    }
}

/// The times of frames from `MAX_REORDER` before the segment's first to its last, relative to the first.
fn relative_times(timeline: &Timeline, first: i64, frames: usize) -> Vec<i64> {
    let zero = timeline.time(first);
    (first - MAX_REORDER..first + frames as i64).map(|index| timeline.time(index) - zero).collect()
}

/// Appends an ffmpeg expression for `times[i - first]`, where `i` is the number in register 0: a tree of comparisons.
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
    fn a_lookup_table_becomes_a_tree_of_comparisons() {
        let mut expression = String::new();
        lookup(&[-40, 0, 33], -1, &mut expression);
        assert_eq!(expression, "if(lt(ld(0),0),-40,if(lt(ld(0),1),0,33))");
    }
}
