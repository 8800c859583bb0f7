//! The encoder process of one segment.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::closing::Closing;
use super::feeder::Feeder;
use super::tools::{self, Process, Tools, file_url, words};
use super::verify::Expected;
use super::work_folder::WorkFolder;
use crate::error::{Error, Result};
use crate::frame::Size;
use crate::video::{Clock, Codec, SEGMENT_FRAMES, Timeline};

/// The most frames by which an encoder reorders: decoding times start up to this many frames before the first frame.
const MAX_REORDER: i64 = 32;

/// The name of the pass that tries an encoder out.
const TRY: &str = "try";

/// The configuration that all segments of a video share.
pub(super) struct EncoderConfig {
    pub tools: Tools,
    /// The output, for error messages.
    pub output: PathBuf,
    pub codec: Codec,
    pub size: Size,
    /// Bytes of a frame in the pipe.
    pub frame_bytes: usize,
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
    pub feeder: Feeder,
    unfinished: String,
    index: usize,
    pub frames: usize,
}

impl Encoder {
    /// No frame follows, so that the process completes its file.
    pub fn close(self, times: Option<Vec<i64>>) -> Closing {
        let Encoder { process, mut feeder, unfinished, index, frames } = self;
        feeder.close();
        Closing::new(process, feeder, unfinished, index, frames, times)
    }
}

impl EncoderConfig {
    /// Starts the encoder of segment `index`.
    pub fn start(&self, work: &WorkFolder, index: usize) -> Result<Encoder> {
        self.start_pass(work, index, "encode")
    }

    /// Encodes one frame with the final settings, so that a wrong option is found before anything is computed.
    pub fn try_out(&self, work: &WorkFolder, frame_bytes: usize) -> Result<()> {
        let tried = self.encode_one(work, frame_bytes);
        // A file that cannot be removed now is removed with the folder.
        let _ = std::fs::remove_file(work.path.join(work.unfinished(0, TRY)));
        tried.map_err(|error| match error {
            Error::EncoderFailed { reason, .. } if reason.contains("Unknown encoder") => self.codec.no_encoder(),
            other => other,
        })
    }

    fn encode_one(&self, work: &WorkFolder, frame_bytes: usize) -> Result<()> {
        let mut encoder = self.start_pass(work, 0, TRY)?;
        self.write(&mut encoder, &vec![0; frame_bytes], false)?;
        let Encoder { process, mut feeder, unfinished, .. } = encoder;
        feeder.finish()?;
        let exit = process.wait().map_err(|cause| self.failed(cause.to_string()))?;
        exit.check().map_err(|reason| self.failed(reason))?;
        match std::fs::metadata(work.path.join(unfinished)) {
            Ok(file) if file.len() > 0 => Ok(()),
            _ => Err(self.failed("it wrote nothing".to_owned())),
        }
    }

    fn start_pass(&self, work: &WorkFolder, index: usize, pass: &str) -> Result<Encoder> {
        let unfinished = work.unfinished(index, pass);
        let Size { h, w } = self.size;
        let rate = self.clock.rate();
        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(&work.path).args(words("-nostdin -hide_banner -v error -xerror -y -f rawvideo"));
        command.args(["-pix_fmt", &self.pixels, "-video_size", &format!("{w}x{h}")]);
        command.args(["-framerate", &format!("{}/{}", rate.num, rate.den), "-i", "pipe:0", "-vf", &self.filters]);
        command.args(["-pix_fmt", &self.encoder_pixels]).args(&self.settings).args(&self.tags);
        command.args(self.tools.passthrough()?).args(self.container()).arg(file_url(Path::new(&unfinished)));
        command.stdin(Stdio::piped());
        let mut process = Process::start(command, |_| false)?;
        let stdin = process.child.stdin.take().expect("stdin is piped");
        tools::set_pipe_size(&stdin, w * h);
        let feeder = Feeder::new(stdin, process.running(), index * SEGMENT_FRAMES, self.frame_bytes);
        Ok(Encoder { process, feeder, unfinished, index, frames: 0 })
    }

    fn container(&self) -> Vec<String> {
        let ticks = self.clock.per_second;
        let text = format!("-fflags +bitexact -flags +bitexact -video_track_timescale {ticks} -f {}", self.format);
        text.split(' ').map(str::to_owned).collect()
    }

    /// Sends the planes of a frame, which the spool will have too if `spooled`.
    pub fn write(&self, encoder: &mut Encoder, planes: &[u8], spooled: bool) -> Result<()> {
        encoder.frames += 1;
        let sent = encoder.feeder.send(planes, spooled);
        sent.or_else(|()| {
            encoder.feeder.finish()?;
            let ended = || "it ended before the last frame".to_owned();
            Err(self.failed(encoder.process.reason().unwrap_or_else(ended)))
        })
    }

    pub fn failed(&self, reason: String) -> Error {
        Error::EncoderFailed { path: self.output.clone(), reason }
    }

    /// What the segment of frames at `times` holds, or of `frames` frames at the constant rate.
    pub fn expected(&self, frames: usize, times: Option<&[i64]>) -> Expected {
        let last = match times {
            Some(times) => times.last().copied().unwrap_or(0),
            None => (frames as i64 - 1) * i64::from(self.clock.frame),
        };
        let seconds = |ticks: i64| self.clock.micros(ticks) as f64 / 1e6;
        Expected { frames, span: Some((seconds(last), seconds(self.clock.frame.into()))) }
    }

    /// Whether frames are at the constant rate that they were encoded with.
    pub fn is_regular(&self, times: &[i64]) -> bool {
        let frames = &times[MAX_REORDER as usize..];
        frames.iter().enumerate().all(|(i, time)| *time == i as i64 * i64::from(self.clock.frame))
    }

    /// Starts a process that copies a segment and replaces each packet's timestamps, which count frames, by the times
    /// of those frames.
    pub fn retime(&self, folder: &Path, from: &str, to: &str, times: &[i64]) -> Result<Process> {
        let frame = self.clock.frame;
        let mut table = String::new();
        lookup(times, -MAX_REORDER, &mut table);
        let of = |timestamp: &str| format!("'st(0,round({timestamp}/{frame}));{table}'");
        let filter = format!("setts=pts={}:dts={}", of("PTS"), of("DTS"));
        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(folder).args(words("-nostdin -hide_banner -v error -xerror -y -i"));
        command.arg(file_url(Path::new(from)));
        command.args(words("-map 0 -c copy")).arg("-bsf:v").arg(filter).args(self.container());
        command.arg(file_url(Path::new(to)));
        Process::start(command, |_| false)
    }
}

/// The times of frames from `MAX_REORDER` before the segment's first to its last, relative to the first.
pub(super) fn relative_times(timeline: &Timeline, first: i64, frames: usize) -> Vec<i64> {
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
