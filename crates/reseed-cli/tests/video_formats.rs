//! Chroma, alpha and timecodes of videos are kept where the output can hold them, and encoder options are checked
//! before anything is computed.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use crate::common;
use crate::common::Lab;
use crate::common::video::{make, probe, streams};
use serde_json::Value;

const PLAIN: &str = "--model identity --scale 1 --color none";
const SOURCE: &str = "-f lavfi -i testsrc2=size=32x16:rate=25:duration=0.2";

fn root(lab: &Lab) -> PathBuf {
    lab.path("")
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn pixel_format(lab: &Lab, name: &str) -> String {
    let facts = probe(&root(lab), name);
    text(streams(&facts, "video")[0], "pix_fmt").to_owned()
}

#[test]
fn chroma_is_kept_where_the_codec_stores_it() {
    let lab = Lab::new();
    for format in ["yuv422p", "yuv444p10le"] {
        make(&root(&lab), &format!("{SOURCE} -c:v ffv1 -pix_fmt {format}"), "in.mkv");
        for (codec, output) in [("h264", "out.mp4"), ("hevc", "out.mov"), ("av1", "out.webm"), ("ffv1", "out.mkv")] {
            lab.succeed(&format!("upscale in.mkv {output} {PLAIN} --codec {codec} --overwrite"));
            assert_eq!(pixel_format(&lab, output), format, "{codec}");
        }
    }
    lab.succeed(&format!("upscale in.mkv forced.mp4 {PLAIN} --codec h264 --encoder-arg pix_fmt=yuv420p"));
    assert_eq!(pixel_format(&lab, "forced.mp4"), "yuv420p");
}

/// The alpha of the first frame as 8-bit codes.
fn alpha(lab: &Lab, name: &str) -> Vec<u8> {
    let args = format!("-i file:{name} -frames:v 1 -vf alphaextract,format=gray -f rawvideo -");
    common::video::run("ffmpeg", &root(lab), args.split_whitespace())
}

#[test]
fn alpha_is_upscaled_and_kept_where_the_codec_stores_it() {
    let lab = Lab::new();
    let gradient = "format=rgba,geq=r='r(X,Y)':g='g(X,Y)':b='b(X,Y)':a='8*X'";
    let prores = "-c:v prores_ks -profile:v 4444 -pix_fmt yuva444p10le";
    make(&root(&lab), &format!("{SOURCE} -vf {gradient} {prores}"), "in.mov");
    let options = "--model identity --scale 2 --color none";
    lab.succeed(&format!("upscale in.mov images {options}"));
    let expected = alpha(&lab, "images/000001.png");
    assert!(expected.iter().any(|code| *code < 20) && expected.iter().any(|code| *code > 100));
    for (output, codec) in [("out.mov", "prores"), ("out.mkv", "ffv1")] {
        let outcome = lab.succeed(&format!("upscale in.mov {output} {options} --codec {codec}"));
        assert!(!outcome.stderr.contains("transparency"), "{}", outcome.stderr);
        let written = alpha(&lab, output);
        assert_eq!(written.len(), expected.len());
        let far = written.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        // ffmpeg converts both to eight bits for this comparison, and rounds by up to one code each time.
        assert!(far <= 2, "{output}: {far}");
    }
    let outcome = lab.succeed(&format!("upscale in.mov out.mp4 {options}"));
    assert!(outcome.stderr.contains("the video has transparency, which hevc does not hold"), "{}", outcome.stderr);
}

#[test]
fn timecodes_are_kept() {
    let lab = Lab::new();
    make(&root(&lab), &format!("{SOURCE} -c:v libx264 -timecode 01:02:03:04"), "in.mov");
    for (output, options, expected) in [
        ("out.mov", "", "01:02:03:04"),
        ("out.mp4", "", "01:02:03:04"),
        ("out.mkv", "", "01:02:03:04"),
        ("cut.mov", "--start 0.08", "01:02:03:06"),
    ] {
        lab.succeed(&format!("upscale in.mov {output} {PLAIN} {options}"));
        let facts = probe(&root(&lab), output);
        let tags = &streams(&facts, "video")[0]["tags"];
        let timecode = tags["timecode"].as_str().or(tags["TIMECODE"].as_str());
        assert_eq!(timecode, Some(expected), "{output}");
        let tracks = streams(&facts, "data").iter().filter(|stream| text(stream, "codec_tag_string") == "tmcd").count();
        assert_eq!(tracks, usize::from(!output.ends_with("mkv")), "{output}");
    }
    lab.succeed(&format!("upscale in.mov none.mov {PLAIN} --no-metadata"));
    assert!(streams(&probe(&root(&lab), "none.mov"), "data").is_empty());
}

#[test]
fn encoder_options_are_tried_before_anything_is_computed() {
    let lab = Lab::new();
    make(&root(&lab), &format!("{SOURCE} -c:v ffv1 -pix_fmt yuv420p"), "in.mkv");
    for (options, code, line) in [
        ("--encoder-arg preset=warp", 1, "ffmpeg failed while writing it: x264 [error]: invalid preset 'warp'"),
        ("--encoder-arg no_such_option=1", 1, "ffmpeg failed while writing it: Unrecognized option 'no_such_option'."),
        ("--crf 52", 2, "a CRF of 52 is not possible with h264, which takes 0 to 51"),
        ("--codec hevc --crf 99", 2, "a CRF of 99 is not possible with hevc, which takes 0 to 51"),
        ("--codec av1 --crf 64", 2, "a CRF of 64 is not possible with av1, which takes 0 to 63"),
    ] {
        let outcome = lab.run(&format!("upscale in.mkv out.mp4 {PLAIN} {options}"));
        assert_eq!(outcome.code, Some(code), "{options}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(line), "{options}: {}", outcome.stderr);
        assert_eq!(lab.names(), ["in.mkv"], "{options}");
    }
    // Nothing is left of the refused jobs, so that the same command with other options succeeds.
    lab.succeed(&format!("upscale in.mkv out.mp4 {PLAIN} --crf 20 --resume"));
}
