//! A table of containers, codecs, pixel formats, frame rates and tracks, and what the output of each must be.
//!
//! ffmpeg makes every input from moving colours and a tone. `reseed upscale` copies it with the identity model. ffprobe
//! and ffmpeg then check the properties, the frame times, the pixels and the audio samples of the output.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::panic::catch_unwind;

use crate::common::Lab;
use crate::common::video::{ask, make, micros, run, streams, times};
use serde_json::Value;

/// One line of the table.
struct Row {
    /// The input; its extension selects the container.
    input: &'static str,
    /// The video encoder of the input, with options.
    video: &'static str,
    /// The audio encoder of the input, with options; empty for no audio.
    audio: &'static str,
    /// The output and the options of `upscale`.
    output: &'static str,
    /// Codec, pixel format, size, frame rate and number of frames of the output.
    expected: &'static str,
    /// Codec of the output's audio, and whether its samples equal those of the input; empty for no audio.
    expected_audio: &'static str,
    /// The least PSNR of the output in dB; 99 means equal pixels.
    psnr: f64,
}

const fn row(
    [input, video, audio]: [&'static str; 3],
    [output, expected, expected_audio]: [&'static str; 3],
    psnr: f64,
) -> Row {
    Row { input, video, audio, output, expected, expected_audio, psnr }
}

const H264: &str = "libx264 -preset ultrafast -crf 10 -pix_fmt yuv420p";
const H264_OUT: &str = "h264 yuv420p 128x96 25/1 13";
const FULL_RANGE_OUT: &str = "h264 yuvj420p 128x96 25/1 13";

/// Containers that people have, each with the codecs that it usually holds.
const CONTAINERS: &[Row] = &[
    row(["a.mp4", H264, "aac"], ["out.mp4", H264_OUT, "aac equal"], 36.0),
    row(["a.m4v", H264, "alac"], ["out.mkv", H264_OUT, "alac equal"], 36.0),
    row(["a.mov", H264, "pcm_s16le"], ["out.mov", H264_OUT, "pcm_s16le equal"], 36.0),
    row(["b.mov", "mjpeg -q:v 2 -pix_fmt yuvj420p", "pcm_s16be"], ["out.mkv", FULL_RANGE_OUT, "pcm_s16be equal"], 36.0),
    row(["a.mkv", H264, "flac"], ["out.mkv", H264_OUT, "flac equal"], 36.0),
    row(["b.mkv", H264, "flac"], ["out.mp4", H264_OUT, "flac equal"], 36.0),
    row(["c.mkv", H264, "libvorbis"], ["out.mp4", H264_OUT, "aac"], 36.0),
    row(["a.webm", "libvpx -deadline realtime -b:v 2M", "libopus"], ["out.mkv", H264_OUT, "opus equal"], 36.0),
    row(["a.avi", "mpeg4 -q:v 2", "libmp3lame"], ["out.mp4", H264_OUT, "mp3"], 36.0),
    row(["b.avi", "msmpeg4 -q:v 2", "pcm_s16le"], ["out.mkv", H264_OUT, "pcm_s16le equal"], 36.0),
    row(["c.avi", "mjpeg -q:v 2 -pix_fmt yuvj420p", "pcm_u8"], ["out.mkv", FULL_RANGE_OUT, "pcm_u8 equal"], 36.0),
    row(
        ["d.avi", "huffyuv -pix_fmt yuv422p", "ac3"],
        ["out.mkv --codec ffv1", "ffv1 yuv422p 128x96 25/1 13", "ac3"],
        50.0,
    ),
    row(["a.mpg", "mpeg1video -q:v 2", "mp2"], ["out.mkv", H264_OUT, "mp2"], 36.0),
    row(["a.vob", "mpeg2video -q:v 2", "ac3"], ["out.mkv", H264_OUT, "ac3"], 36.0),
    row(["a.ts", H264, "aac"], ["out.mp4", H264_OUT, "aac"], 36.0),
    row(["b.ts", "mpeg2video -q:v 2", "mp2"], ["out.mkv", H264_OUT, "mp2"], 36.0),
    row(["a.m2ts", H264, "ac3"], ["out.mov", H264_OUT, "ac3"], 36.0),
    row(["a.mts", H264, "ac3"], ["out.mkv", H264_OUT, "ac3"], 36.0),
    row(["a.flv", "flv -q:v 2", "libmp3lame -ar 44100"], ["out.mkv", H264_OUT, "mp3"], 36.0),
    row(["a.wmv", "wmv2 -q:v 2", "wmav2"], ["out.mp4", H264_OUT, "aac"], 36.0),
    row(["a.ogv", "libtheora -q:v 9", "libvorbis"], ["out.mkv", H264_OUT, "vorbis"], 36.0),
    row(["a.3gp", "mpeg4 -q:v 2", "aac"], ["out.mp4", H264_OUT, "aac equal"], 36.0),
    row(["a.h264", H264, ""], ["out.mp4", H264_OUT, ""], 36.0),
    row(["a.y4m", "wrapped_avframe -pix_fmt yuv420p", ""], ["out.mkv", H264_OUT, ""], 36.0),
];

/// Pixel formats, depths and ranges, kept wherever the codec stores them.
const FORMATS: &[Row] = &[
    row(["a.mkv", "ffv1 -pix_fmt gray", ""], ["out.mkv --codec ffv1", "ffv1 gray 128x96 25/1 13", ""], 99.0),
    row(["b.mkv", "ffv1 -pix_fmt gray16le", ""], ["out.mkv --codec ffv1", "ffv1 gray16le 128x96 25/1 13", ""], 99.0),
    row(["c.mkv", "ffv1 -pix_fmt yuv420p", ""], ["out.mkv --codec ffv1", "ffv1 yuv420p 128x96 25/1 13", ""], 45.0),
    row(
        ["d.mkv", "ffv1 -pix_fmt yuv444p10le", ""],
        ["out.mkv --codec ffv1", "ffv1 yuv444p10le 128x96 25/1 13", ""],
        50.0,
    ),
    row(["e.mkv", "ffv1 -pix_fmt gbrp", ""], ["out.mkv --codec ffv1", "ffv1 bgr0 128x96 25/1 13", ""], 99.0),
    row(
        ["f.mkv", "libx264rgb -preset ultrafast -crf 0", ""],
        ["out.mkv --codec ffv1", "ffv1 bgr0 128x96 25/1 13", ""],
        99.0,
    ),
    row(
        ["g.mov", "prores_ks -pix_fmt yuv422p10le", ""],
        ["out.mov --codec prores", "prores yuv422p10le 128x96 25/1 13", ""],
        40.0,
    ),
    row(
        ["h.mov", "prores_ks -pix_fmt yuv444p10le", ""],
        ["out.mov --codec prores", "prores yuv444p12le 128x96 25/1 13", ""],
        40.0,
    ),
    row(
        ["i.mkv", "libx265 -preset ultrafast -crf 10 -pix_fmt yuv420p10le -x265-params log-level=error", ""],
        ["out.mkv", "hevc yuv420p10le 128x96 25/1 13", ""],
        36.0,
    ),
    row(
        ["j.webm", "libvpx-vp9 -deadline realtime -cpu-used 8 -b:v 2M -pix_fmt yuv420p10le", ""],
        ["out.mp4", "hevc yuv420p10le 128x96 25/1 13", ""],
        36.0,
    ),
    row(["k.avi", "rawvideo -pix_fmt bgr24", ""], ["out.mkv --codec ffv1", "ffv1 bgr0 128x96 25/1 13", ""], 99.0),
    row(["l.avi", "rawvideo -pix_fmt yuyv422", ""], ["out.mkv --codec ffv1", "ffv1 yuv422p 128x96 25/1 13", ""], 45.0),
    row(
        ["m.mkv", "libx264 -preset ultrafast -crf 10 -pix_fmt yuv422p", ""],
        ["out.mp4", "h264 yuv422p 128x96 25/1 13", ""],
        36.0,
    ),
    row(
        ["n.mkv", "libx264 -preset ultrafast -crf 10 -pix_fmt yuv444p", ""],
        ["out.mkv", "h264 yuv444p 128x96 25/1 13", ""],
        36.0,
    ),
];

/// Frame rates and outputs: the frames of the output have the times of the input's.
const RATES: &[(&str, &str)] = &[
    ("1", "out.mkv"),
    ("12.5", "out.mp4"),
    ("24000/1001", "out.mp4"),
    ("30000/1001", "out.mkv"),
    ("50", "out.mkv"),
    ("60000/1001", "out.mp4"),
    ("120", "out.mp4"),
];

const FRAMES: usize = 13;

/// Makes the input of a row: moving colours and a stereo tone of the same length.
fn make_input(lab: &Lab, row: &Row, rate: &str) {
    // Smooth and moderate colours: sharp edges of subsampled chroma cannot be restored.
    let colors = "c0=0x806040:c1=0x4080a0:x0=0:y0=0:x1=127:y1=95:speed=0.1";
    let pattern = format!("-f lavfi -i gradients=size=128x96:rate={rate}:{colors},format=yuv420p");
    let seconds = FRAMES as f64 / ratio(rate);
    let (tone, map) = match row.audio {
        "" => (String::new(), String::new()),
        encoder => {
            let tone = format!("-f lavfi -i sine=frequency=440:sample_rate=48000:duration={seconds}");
            (tone, format!("-ac 2 -c:a {encoder}"))
        }
    };
    make(&lab.path(""), &format!("{pattern} {tone} -frames:v {FRAMES} -c:v {} {map}", row.video), row.input);
}

fn ratio(text: &str) -> f64 {
    let (num, den) = text.split_once('/').unwrap_or((text, "1"));
    num.parse::<f64>().unwrap() / den.parse::<f64>().unwrap()
}

/// Upscales the input of a row and returns the name of the output.
fn upscale(lab: &Lab, row: &Row) -> &'static str {
    let fast = if row.output.contains("--codec") { "" } else { "--encoder-arg preset=ultrafast --crf 10" };
    lab.succeed(&format!("upscale {} {} --model identity --scale 1 --color none {fast}", row.input, row.output));
    row.output.split(' ').next().unwrap()
}

fn check(row: &Row) {
    let lab = Lab::new();
    make_input(&lab, row, "25");
    let output = upscale(&lab, row);
    let facts = ask(&lab.path(""), "-count_frames -show_streams", output);
    let video = streams(&facts, "video")[0];
    let text = |key: &str| video[key].as_str().unwrap_or_default().to_owned();
    let (w, h, frames) = (&video["width"], &video["height"], text("nb_read_frames"));
    let found = format!("{} {} {w}x{h} {} {frames}", text("codec_name"), text("pix_fmt"), text("r_frame_rate"));
    assert_eq!(found, row.expected, "{} -> {}", row.input, row.output);
    let codec = row.expected_audio.split(' ').next().unwrap();
    let tracks: Vec<&Value> = streams(&facts, "audio").iter().map(|track| &track["codec_name"]).collect();
    let expected: &[&str] = if codec.is_empty() { &[] } else { &[codec] };
    assert_eq!(tracks, expected, "{} -> {}", row.input, row.output);
    decode(&lab, row, output);
    check_pixels(&lab, row);
    if !codec.is_empty() {
        check_audio(&lab, row);
    }
}

/// Decodes the input and the output in one run of ffmpeg, to `0.video`, `1.video`, `0.audio` and `1.audio`.
fn decode(lab: &Lab, row: &Row, output: &str) {
    let mut args = format!("-i file:{} -i file:{output}", row.input);
    for i in [0, 1] {
        args += &format!(" -map {i}:v:0 -vsync passthrough -f rawvideo -pix_fmt gbrp {i}.video");
        if !row.expected_audio.is_empty() {
            args += &format!(" -map {i}:a:0 -f s16le {i}.audio");
        }
    }
    run("ffmpeg", &lab.path(""), args.split_whitespace());
}

fn check_pixels(lab: &Lab, row: &Row) {
    let [before, after] = ["0.video", "1.video"].map(|name| fs::read(lab.path(name)).unwrap());
    assert_eq!(before.len(), after.len(), "{} -> {}", row.input, row.output);
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let mean = before.iter().zip(&after).map(square).sum::<f64>() / before.len() as f64;
    let psnr = if mean == 0.0 { 99.0 } else { 10.0 * (255.0 * 255.0 / mean).log10() };
    assert!(psnr >= row.psnr, "{} -> {}: {psnr:.1} dB", row.input, row.output);
}

/// Compares the samples where they must be equal, and otherwise their number within a frame of AAC.
fn check_audio(lab: &Lab, row: &Row) {
    let [before, after] = ["0.audio", "1.audio"].map(|name| fs::read(lab.path(name)).unwrap());
    if row.expected_audio.ends_with(" equal") {
        assert!(before == after, "{} -> {}: {} and {} bytes", row.input, row.output, before.len(), after.len());
    }
    const AAC_FRAME: usize = 4 * 1024;
    assert!(before.len().abs_diff(after.len()) <= 2 * AAC_FRAME, "{} -> {}", row.input, row.output);
}

/// Checks every row, also after one that fails.
fn check_all(rows: &[Row]) {
    let failed: Vec<&str> =
        rows.iter().filter(|row| catch_unwind(|| check(row)).is_err()).map(|row| row.input).collect();
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn containers_keep_frames_pixels_and_audio() {
    check_all(CONTAINERS);
}

#[test]
fn pixel_formats_are_kept() {
    check_all(FORMATS);
}

#[test]
fn frame_rates_are_kept() {
    let lab = Lab::new();
    for (rate, output) in RATES.iter().copied() {
        let row = row(["in.mkv", H264, ""], [output, "", ""], 0.0);
        make_input(&lab, &row, rate);
        lab.succeed(&format!("upscale in.mkv {output} --overwrite --model identity --scale 1 --color none"));
        let facts = ask(&lab.path(""), "-select_streams v:0 -show_streams -show_entries frame=pts_time", output);
        let (before, after) = (times(&lab.path(""), "in.mkv"), micros(&facts));
        assert_eq!(after.len(), FRAMES, "{rate} {output}");
        // Matroska stores milliseconds.
        assert!(before.iter().zip(&after).all(|(a, b)| a.abs_diff(*b) <= 1000), "{rate} {output}: {after:?}");
        let found = ratio(streams(&facts, "video")[0]["r_frame_rate"].as_str().unwrap());
        // ffprobe derives the rate of Matroska from its milliseconds.
        assert!(output == "out.mkv" || (found / ratio(rate) - 1.0).abs() < 1e-6, "{rate} {output}: {found}");
    }
}
