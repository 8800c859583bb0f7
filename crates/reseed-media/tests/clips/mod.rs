//! Clips that ffmpeg makes and measures: a white flash in the video and a beep in the audio, at the same time.
#![allow(dead_code, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use reseed_media::video::{Clip, Options};
use reseed_media::{Info, Sink, create_with, open_clip};

/// Samples per second of measured audio.
const SAMPLE_RATE: f64 = 48_000.0;

/// Runs ffmpeg in a folder and returns its standard output and standard error.
pub fn ffmpeg(folder: &Path, args: &str) -> (Vec<u8>, String) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-y"]).args(args.split_whitespace());
    let done = command.current_dir(folder).stdin(Stdio::null()).output().expect("these tests need ffmpeg");
    let messages = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "ffmpeg {args}: {messages}");
    (done.stdout, messages)
}

/// The values of some entries of a file, as ffprobe prints them.
pub fn ffprobe(folder: &Path, entries: &str, name: &str) -> String {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-of", "csv=p=0", "-show_entries", entries, name]);
    let done = command.current_dir(folder).stdin(Stdio::null()).output().expect("these tests need ffprobe");
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n")
}

/// A lossless master of `seconds` seconds at 25 frames per second, with flash and beep of 40 ms at each of `at`.
pub fn master(folder: &Path, name: &str, seconds: f64, at: &[f64]) {
    let around = |time: &f64| format!("between(t,{},{})", time - 0.001, time + 0.038);
    let flash = at.iter().map(around).collect::<Vec<_>>().join("+");
    let beep = at.iter().map(|time| format!("between(t,{time},{})", time + 0.04)).collect::<Vec<_>>().join("+");
    let video = format!("testsrc2=size=64x64:rate=25:duration={seconds},drawbox=c=black:t=fill,");
    let video = format!("{video}drawbox=c=white:t=fill:enable='{flash}',format=yuv420p");
    let audio = format!("aevalsrc=exprs='0.7*sin(6283*t)*({beep})':s=48000:d={seconds}");
    ffmpeg(folder, &format!("-v error -f lavfi -i {video} -f lavfi -i {audio} -c:v ffv1 -c:a pcm_s16le {name}"));
}

/// Options for a fast encoder.
pub fn fast() -> Options {
    Options { encoder_args: vec![("preset".into(), "ultrafast".into())], ..Options::default() }
}

/// Options that suit a file name: AV1 has numbered presets.
pub fn fast_for(name: &str) -> Options {
    let preset = if name.ends_with("webm") { "12" } else { "ultrafast" };
    Options { encoder_args: vec![("preset".into(), preset.into())], ..Options::default() }
}

/// Copies the frames of a video to outputs, as a job does.
pub fn copy(folder: &Path, from: &str, clip: Clip, to: &[&str]) -> Info {
    let mut source = open_clip(&folder.join(from), clip).unwrap_or_else(|error| panic!("{error}"));
    let info = source.info().clone();
    let sink = |name: &&str| create_with(&folder.join(name), &info, &fast_for(name)).unwrap();
    let mut sinks: Vec<Box<dyn Sink>> = to.iter().map(sink).collect();
    while let Some(frame) = source.next().unwrap_or_else(|error| panic!("{error}")) {
        sinks.iter_mut().for_each(|sink| sink.write(&frame).unwrap());
    }
    sinks.into_iter().for_each(|sink| sink.finish().unwrap());
    info
}

/// What one run of ffmpeg decodes from a file, on the clock of the file.
pub struct Decoded {
    /// Time and mean luma of every frame.
    pub frames: Vec<(f64, f64)>,
    /// Audio from time zero on, 48000 samples per second.
    pub audio: Vec<f32>,
}

impl Decoded {
    /// Decodes the first video and audio stream of a file in one process.
    pub fn of(folder: &Path, name: &str) -> Decoded {
        let video = "[0:v:0]signalstats,metadata=print:key=lavfi.signalstats.YAVG:file=frames.txt[v]";
        let audio = "[0:a:0]aresample=48000:async=1:first_pts=0,pan=mono|c0=c0[a]";
        let out = "-map [v] -vsync passthrough -f null - -map [a] -f f32le audio.raw";
        ffmpeg(folder, &format!("-v error -i {name} -filter_complex {video};{audio} {out}"));
        let text = fs::read_to_string(folder.join("frames.txt")).unwrap();
        let after = |key: &str| -> Vec<f64> {
            let values = text.lines().filter_map(|line| line.split_once(key)).map(|(_, value)| value.trim());
            values.map(|value| value.parse().unwrap()).collect()
        };
        let frames = after("pts_time:").into_iter().zip(after("YAVG=")).collect();
        let bytes = fs::read(folder.join("audio.raw")).unwrap();
        let audio = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Decoded { frames, audio }
    }

    /// The time of the first bright frame.
    pub fn flash(&self) -> f64 {
        self.frames.iter().find(|(_, luma)| *luma > 120.0).expect("a flash").0
    }

    /// The time of the beep: the centre of its energy less half of its length.
    pub fn beep(&self) -> f64 {
        let loud = self.audio.iter().position(|sample| sample.abs() > 0.2).expect("a beep");
        let near = loud.saturating_sub(960)..(loud + 3 * 960).min(self.audio.len());
        let energy = |at: usize| f64::from(self.audio[at]).powi(2);
        let total: f64 = near.clone().map(energy).sum();
        let centre = near.map(|at| at as f64 * energy(at)).sum::<f64>() / total;
        centre / SAMPLE_RATE - 0.02
    }

    /// The delay of the beep after the flash in seconds.
    pub fn offset(&self) -> f64 {
        self.beep() - self.flash()
    }
}
