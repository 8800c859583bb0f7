//! Videos made by ffmpeg and looked at with ffprobe.
#![allow(dead_code, clippy::unwrap_used)]

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const INSTALL: &str = "these tests need ffmpeg; install it with `sudo apt-get install ffmpeg`";

/// Runs ffmpeg or ffprobe in a folder with these words and gives what it printed.
pub fn run(program: &str, folder: &Path, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(["-v", "error"]).args(words).current_dir(folder).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|_| panic!("{INSTALL}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Makes a file: `words` are arguments of ffmpeg, the name is its last.
pub fn make(folder: &Path, words: &str, name: impl AsRef<OsStr>) {
    let mut file = OsString::from("file:");
    file.push(name);
    let words = ["-y"].into_iter().chain(words.split_whitespace()).map(OsString::from).chain([file]);
    run("ffmpeg", folder, words);
}

/// Everything that ffprobe says of a file's streams, chapters and container.
pub fn probe(folder: &Path, name: impl AsRef<OsStr>) -> Value {
    ask(folder, "-show_streams -show_format -show_chapters", name)
}

/// What ffprobe answers.
pub fn ask(folder: &Path, question: &str, name: impl AsRef<OsStr>) -> Value {
    let mut file = OsString::from("file:");
    file.push(name);
    let words = question.split_whitespace().map(OsString::from).chain(["-of".into(), "json".into(), file]);
    serde_json::from_slice(&run("ffprobe", folder, words)).unwrap()
}

/// The streams of one kind: `video`, `audio`, `subtitle`, `attachment`.
pub fn streams<'v>(facts: &'v Value, kind: &str) -> Vec<&'v Value> {
    facts["streams"].as_array().unwrap().iter().filter(|stream| stream["codec_type"] == kind).collect()
}

/// When each frame of the first video stream is shown, in microseconds, as the decoder gives them out.
pub fn times(folder: &Path, name: &str) -> Vec<i64> {
    let frames = ask(folder, "-select_streams v:0 -show_entries frame=pts_time", name);
    let micros = |frame: &Value| (frame["pts_time"].as_str().unwrap().parse::<f64>().unwrap() * 1e6).round() as i64;
    frames["frames"].as_array().unwrap().iter().map(micros).collect()
}

/// All frames of a video in a pixel format, planes one after the other.
pub fn planes(folder: &Path, name: &str, format: &str) -> Vec<u8> {
    let words = format!("-i file:{name} -map 0:v:0 -f rawvideo -pix_fmt {format} -");
    run("ffmpeg", folder, words.split_whitespace())
}
