//! `reseed vae roundtrip`: pictures in, pictures of the same kind out.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::process::Stdio;

use common::{Lab, Outcome, Tensor, frames, outcome};
use reseed_media::{Depth, Frame, Size, metrics};
use serde_json::Value;

const PICTURE: Size = Size { h: 23, w: 37 };
const VIDEO: Size = Size { h: 22, w: 34 };

/// The two figures of a line `PSNR 12.34 dB, SSIM 0.1234`.
fn quality(text: &str) -> (f64, f64) {
    let line = text.lines().find(|line| line.starts_with("PSNR ")).unwrap_or_else(|| panic!("no PSNR in {text}"));
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let &["PSNR", psnr, "dB", "SSIM", ssim] = &words[..] else { panic!("{line}") };
    (psnr.parse().unwrap(), ssim.parse().unwrap())
}

/// Goes there and back, checks that everything but the pixels is as it was, and gives before, after and what was said.
fn there_and_back(input: &str, output: &str, size: Size, count: usize) -> (Vec<Frame>, Vec<Frame>, Outcome) {
    let lab = Lab::new();
    let (want, before) = lab.film(input, size, count);
    let said = lab.succeed(&format!("vae roundtrip {input} {output} --weights formula:tiny"));
    assert_eq!(said.stderr, "");
    let (info, after) = frames(&lab.path(output));
    assert_eq!((info.size, info.frames, info.kind, info.names), (size, Some(count), want.kind, want.names));
    assert_eq!((info.depth, after.len()), (want.depth, count));
    assert_eq!(lab.names(), [input, output]);
    (before, after, said)
}

#[test]
fn a_picture_stays_a_picture_and_the_loss_is_told() {
    let (before, after, said) = there_and_back("in.png", "out.png", PICTURE, 1);
    assert_ne!(before, after);
    let (psnr, ssim) = quality(&said.text());
    assert!((psnr - metrics::psnr(&before[0], &after[0])).abs() < 0.006, "{psnr}");
    assert!((ssim - metrics::ssim(&before[0], &after[0])).abs() < 0.00006, "{ssim}");
}

#[test]
fn a_video_keeps_its_size_rate_and_length() {
    for count in [9, 6, 1] {
        let (_, _, said) = there_and_back("in.y4m", "out.y4m", VIDEO, count);
        let (psnr, ssim) = quality(&said.text());
        assert!(psnr > 0.0 && (-1.0..=1.0).contains(&ssim), "{psnr} {ssim}");
    }
    let lab = Lab::new();
    let (want, _) = lab.film("in.y4m", VIDEO, 2);
    lab.succeed("vae roundtrip in.y4m out.y4m --weights formula:tiny --slice 2 --tile 16x16");
    assert_eq!(frames(&lab.path("out.y4m")).0, want);
}

#[test]
fn a_folder_keeps_its_names() {
    there_and_back("in", "out", PICTURE, 6);
}

#[test]
fn a_round_trip_is_encode_then_decode() {
    let lab = Lab::new();
    let (_, before) = lab.film("pictures", PICTURE, 6);
    let unit: Vec<Vec<f32>> = before.iter().map(Frame::to_unit).collect();
    let dims = [6, 3, PICTURE.h, PICTURE.w];
    lab.input("tensor", &Tensor::new(&dims, |[t, c, y, x]| unit[t][(y * PICTURE.w + x) * 3 + c] * 2.0 - 1.0));

    lab.succeed("vae encode tensor moments --weights formula:tiny");
    let decoded = lab.tensor_of("vae decode moments out --weights formula:tiny");
    lab.succeed("vae roundtrip pictures after --weights formula:tiny");

    let frame = |t| {
        let value = |i: usize| decoded.at([t, i % 3, i / 3 / PICTURE.w, i / 3 % PICTURE.w]) * 0.5 + 0.5;
        Frame::from_unit(PICTURE, &(0..3 * PICTURE.pixels()).map(value).collect::<Vec<f32>>(), Depth::Eight)
    };
    assert!(frames(&lab.path("after")).1 == (0..6).map(frame).collect::<Vec<_>>());
}

/// Runs with a file as standard input.
fn piped(lab: &Lab, words: &str, input: &str) -> Outcome {
    let mut command = lab.command(words);
    command.stdin(Stdio::from(fs::File::open(lab.path(input)).unwrap()));
    outcome(command)
}

#[test]
fn a_pipe_carries_pictures_and_nothing_else() {
    let lab = Lab::new();
    lab.film("in.y4m", VIDEO, 6);
    lab.succeed("vae roundtrip in.y4m out.y4m --weights formula:tiny");
    let want = fs::read(lab.path("out.y4m")).unwrap();

    let said = piped(&lab, "vae roundtrip - - --weights formula:tiny --profile", "in.y4m");
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout == want, "not the video that a file gets");
    quality(&said.stderr);

    let said = piped(&lab, "vae roundtrip - - --weights formula:tiny --json", "in.y4m");
    assert!(said.stdout == want, "not the video that a file gets");
    let last: Value = serde_json::from_str(said.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "done");

    // One end at a time.
    let said = piped(&lab, "vae roundtrip - piped.y4m --weights formula:tiny", "in.y4m");
    quality(&said.text());
    assert!(fs::read(lab.path("piped.y4m")).unwrap() == want);
    assert!(lab.succeed("vae roundtrip in.y4m - --weights formula:tiny").stdout == want);
}

#[test]
fn json_is_all_that_is_said_and_done_comes_last() {
    let lab = Lab::new();
    lab.film("in.y4m", VIDEO, 9);
    let events = lab.succeed("vae roundtrip in.y4m out.y4m --weights formula:tiny --json --profile").events();
    let progress: Vec<&Value> = events.iter().filter(|e| e["event"] == "progress").map(|e| &e["frame"]).collect();
    assert_eq!(progress, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let done = events.last().unwrap();
    assert_eq!((&done["event"], &done["frames"], &done["output"]), (&"done".into(), &9.into(), &"out.y4m".into()));
    assert!(done["psnr"].is_number() && done["ssim"].is_number(), "{done}");
}
