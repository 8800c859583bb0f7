//! Videos generated with ffmpeg and inspected with ffprobe.
#![allow(dead_code, clippy::unwrap_used)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const INSTALL: &str = "these tests need ffmpeg; install it with `sudo apt-get install ffmpeg`";

/// Runs ffmpeg or ffprobe in a folder with these arguments. Returns its standard output.
pub fn run(program: &str, folder: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(["-v", "error"]).args(args).current_dir(folder).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|_| panic!("{INSTALL}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Creates a file with ffmpeg: `args` are its arguments, and `name` is the last one.
pub fn make(folder: &Path, args: &str, name: impl AsRef<OsStr>) {
    let mut file = OsString::from("file:");
    file.push(name);
    let args = ["-y"].into_iter().chain(args.split_whitespace()).map(OsString::from).chain([file]);
    run("ffmpeg", folder, args);
}

/// Streams, chapters and container of a file as ffprobe reports them.
pub fn probe(folder: &Path, name: impl AsRef<OsStr>) -> Value {
    ask(folder, "-show_streams -show_format -show_chapters", name)
}

/// Output of ffprobe with these arguments.
pub fn ask(folder: &Path, query: &str, name: impl AsRef<OsStr>) -> Value {
    let mut file = OsString::from("file:");
    file.push(name);
    let args = query.split_whitespace().map(OsString::from).chain(["-of".into(), "json".into(), file]);
    serde_json::from_slice(&run("ffprobe", folder, args)).unwrap()
}

/// The streams of one kind: `video`, `audio`, `subtitle`, `attachment`.
pub fn streams<'v>(facts: &'v Value, kind: &str) -> Vec<&'v Value> {
    facts["streams"].as_array().unwrap().iter().filter(|stream| stream["codec_type"] == kind).collect()
}

/// Timestamps of the frames of the first video stream in microseconds, in decoder output order.
pub fn times(folder: &Path, name: &str) -> Vec<i64> {
    micros(&ask(folder, "-select_streams v:0 -show_entries frame=pts_time", name))
}

/// The same from an output of ffprobe that lists the frames.
pub fn micros(facts: &Value) -> Vec<i64> {
    let micros = |frame: &Value| (frame["pts_time"].as_str().unwrap().parse::<f64>().unwrap() * 1e6).round() as i64;
    facts["frames"].as_array().unwrap().iter().map(micros).collect()
}

/// All frames of two videos in a planar pixel format, as raw bytes, from one run of ffmpeg.
pub fn planes(folder: &Path, videos: [&str; 2], format: &str) -> [Vec<u8>; 2] {
    let names = ["0.planes", "1.planes"];
    let [first, second] = videos.map(|name| format!("-i file:{name}"));
    let raw = format!("-vsync passthrough -f rawvideo -pix_fmt {format}");
    let args = format!("-y {first} {second} -map 0:v:0 {raw} {} -map 1:v:0 {raw} {}", names[0], names[1]);
    run("ffmpeg", folder, args.split_whitespace());
    names.map(|name| {
        let bytes = fs::read(folder.join(name)).unwrap();
        fs::remove_file(folder.join(name)).unwrap();
        bytes
    })
}
