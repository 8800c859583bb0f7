//! The decoder process of a video: its arguments, its frames and its messages.
//!
//! ffmpeg counts time from the first packet of the streams that it uses. The decoder therefore also takes the other
//! tracks of the file, and the mux step also takes the video: both processes then have the same time zero, and make the
//! same corrections where the timestamps of a file jump.

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::decode_log::{DecoderLines, Log, WIDTH_FACTOR};
use super::process::Exit;
use super::tools::{self, Process, Tools, file_url, words};
use crate::error::Result;
use crate::format::Range;
use crate::frame::Size;
use crate::problem::Problem;
use crate::video::{TrackKind, Video};

/// How long to wait for the timestamp of a frame. ffmpeg prints it before the frame; a missing one must not block.
const TIMESTAMP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running decoder and our ends of its pipes.
pub(super) struct Decoder {
    /// `None` once it has exited.
    process: Option<Process>,
    stdout: ChildStdout,
    /// The timestamps that ffmpeg prints, each before its frame.
    timestamps: Receiver<Option<i64>>,
    log: Arc<Mutex<Log>>,
}

impl Decoder {
    /// Starts decoding at the beginning, or at the keyframe before a time in seconds.
    pub fn start(tools: &Tools, video: &Video, size: Size, before: Option<f64>) -> Result<Decoder> {
        let mut command = tools::command(&tools.ffmpeg);
        command.args(words("-nostdin -hide_banner -v error -max_error_rate 1 -protocol_whitelist file"));
        if let Some(time) = before {
            // Starts at the keyframe and keeps the timestamps of an uninterrupted read.
            command.args(words("-copyts -start_at_zero -noaccurate_seek -ss")).arg(format!("{time:.6}"));
        }
        if let Some(decoder) = video.alpha_decoder {
            command.args([&format!("-c:{}", video.index), decoder]);
        }
        command
            .args(video.format_guard())
            .arg("-i")
            .arg(file_url(&video.path))
            .arg("-map")
            .arg(format!("0:{}", video.index));
        command.arg("-vf").arg(filters(video, size)).args(tools.passthrough()?);
        command.args(["-f", "rawvideo", "-pix_fmt", &video.pipe.name, "pipe:1"]).stdout(Stdio::piped());
        command.args(unused(0, video.clock_streams().filter(|index| *index != video.index)));

        let (sender, timestamps) = channel();
        let log = Arc::default();
        let mut messages = DecoderLines { timestamps: sender, log: Arc::clone(&log), seeks: before.is_some() };
        let mut process = Process::start(command, move |line| messages.line(line))?;
        let stdout = process.child.stdout.take().expect("stdout is piped");
        tools::set_pipe_size(&stdout, usize::MAX);
        Ok(Decoder { process: Some(process), stdout, timestamps, log })
    }

    /// Reads until `buffer` is full or the frames end, and returns the number of bytes.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The watchdog ends a process that is silent for too long.
        let _waiting = self.process.as_ref().map(Process::waiting);
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stdout.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// The timestamp of the next frame, if it has one.
    pub fn timestamp(&self) -> Option<i64> {
        self.timestamps.recv_timeout(TIMESTAMP_TIMEOUT).ok().flatten()
    }

    /// The damage of the file that the decoder reported since the last call.
    pub fn take_problems(&self, video: &Video) -> Vec<Problem> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).take_problems(&video.path, &video.timeline)
    }

    /// Waits until the process exits; `None` if that was asked before.
    pub fn wait(&mut self) -> Option<io::Result<Exit>> {
        self.process.take().map(Process::wait)
    }
}

impl Video {
    /// Arguments that let ffmpeg open the file in the format that was described only: it may have been replaced by one
    /// that names other files.
    pub(super) fn format_guard(&self) -> Vec<OsString> {
        match self.format.is_empty() {
            true => Vec::new(),
            false => vec!["-format_whitelist".into(), (&self.format).into()],
        }
    }

    /// The streams that define time zero: the video and the tracks with times of their own.
    pub(super) fn clock_streams(&self) -> impl Iterator<Item = usize> {
        let timed = |kind: TrackKind| matches!(kind, TrackKind::Audio | TrackKind::Subtitle);
        let others = self.tracks.iter().filter(move |track| timed(track.kind)).map(|track| track.index);
        others.chain([self.index])
    }
}

/// Arguments for an output that discards streams of an input. ffmpeg reads their packets for their times.
pub(super) fn unused(input: usize, streams: impl Iterator<Item = usize>) -> Vec<String> {
    let mut args: Vec<String> = streams.flat_map(|index| ["-map".into(), format!("{input}:{index}")]).collect();
    if !args.is_empty() {
        args.extend(["-c", "copy", "-f", "null", "-"].map(str::to_owned));
    }
    args
}

/// Filters that deliver the planes, unconverted if possible, and print the timestamp of each frame to standard error.
fn filters(video: &Video, size: Size) -> String {
    let Size { h, w } = size;
    let range = match video.tags.range {
        Range::Limited => "tv",
        Range::Full => "pc",
    };
    // Frames that change their size within the file get the first size. The filter prints the size of its input.
    let width = format!("{w}+0*print({WIDTH_FACTOR}*in_w+in_h,16)");
    let ranges = if video.pipe.repacked { format!(":in_range={range}:out_range={range}") } else { String::new() };
    let scale = format!("scale=w='{width}':h={h}{ranges}:flags=bicubic+accurate_rnd+full_chroma_int");
    let start = video.clip.start.map_or(String::new(), |start| format!("trim=start={:.6},", start.as_secs_f64()));
    let fields = video.fields.filters(video.time_base).map_or(String::new(), |filters| filters + ",");
    let format = &video.pipe.name;
    let mark = "metadata=add:key=reseed:value=0";
    format!(r"{fields}{start}{scale},format={format},{mark},metadata=print:key=reseed:direct=1:file=pipe\\:2")
}
