//! `reseed vae roundtrip`: the output has the kind, size and length of the input.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Stdio;

use crate::common::{Lab, Outcome, Tensor, frames, outcome};
use reseed_media::{Depth, Frame, Size, metrics};
use serde_json::Value;

const IMAGE: Size = Size { h: 23, w: 37 };
const VIDEO: Size = Size { h: 22, w: 34 };

/// The two figures of a line `PSNR 12.34 dB, SSIM 0.1234`.
fn quality(text: &str) -> (f64, f64) {
    let line = text.lines().find(|line| line.starts_with("PSNR ")).unwrap_or_else(|| panic!("no PSNR in {text}"));
    let fields: Vec<&str> = line.split([' ', ',']).filter(|field| !field.is_empty()).collect();
    let &["PSNR", psnr, "dB", "SSIM", ssim] = &fields[..] else { panic!("{line}") };
    (psnr.parse().unwrap(), ssim.parse().unwrap())
}

/// Runs a round trip and asserts that it keeps everything but the pixels. Returns input, output and outcome.
fn round_trip(input: &str, output: &str, size: Size, count: usize) -> (Vec<Frame>, Vec<Frame>, Outcome) {
    let lab = Lab::new();
    let (want, before) = lab.write_frames(input, size, count);
    let outcome = lab.succeed(&format!("vae roundtrip {input} {output} --weights formula:tiny"));
    assert_eq!(outcome.stderr, "");
    let (info, after) = frames(&lab.path(output));
    assert_eq!((info.size, info.frames, info.kind, info.names), (size, Some(count), want.kind, want.names));
    assert_eq!((info.depth, after.len()), (want.depth, count));
    assert_eq!(lab.names(), [input, output]);
    (before, after, outcome)
}

#[test]
fn an_image_round_trip_reports_psnr_and_ssim() {
    let (before, after, outcome) = round_trip("in.png", "out.png", IMAGE, 1);
    assert_ne!(before, after);
    let (psnr, ssim) = quality(&outcome.text());
    assert!((psnr - metrics::psnr(&before[0], &after[0])).abs() < 0.006, "{psnr}");
    assert!((ssim - metrics::ssim(&before[0], &after[0])).abs() < 0.00006, "{ssim}");
}

#[test]
fn a_video_round_trip_keeps_size_rate_and_length() {
    for count in [9, 6, 1] {
        let (_, _, outcome) = round_trip("in.y4m", "out.y4m", VIDEO, count);
        let (psnr, ssim) = quality(&outcome.text());
        assert!(psnr > 0.0 && (-1.0..=1.0).contains(&ssim), "{psnr} {ssim}");
    }
    let lab = Lab::new();
    let (want, _) = lab.write_frames("in.y4m", VIDEO, 2);
    lab.succeed("vae roundtrip in.y4m out.y4m --weights formula:tiny --slice 2 --tile 16x16");
    assert_eq!(frames(&lab.path("out.y4m")).0, want);
}

#[test]
fn a_folder_round_trip_keeps_file_names() {
    round_trip("in", "out", IMAGE, 6);
}

#[test]
fn a_round_trip_equals_encode_then_decode() {
    let lab = Lab::new();
    let (_, before) = lab.write_frames("images", IMAGE, 6);
    let unit: Vec<Vec<f32>> = before.iter().map(Frame::to_unit).collect();
    let dims = [6, 3, IMAGE.h, IMAGE.w];
    lab.input("tensor", &Tensor::new(&dims, |[t, c, y, x]| unit[t][(y * IMAGE.w + x) * 3 + c] * 2.0 - 1.0));

    lab.succeed("vae encode tensor moments --weights formula:tiny");
    let decoded = lab.tensor_of("vae decode moments out --weights formula:tiny");
    lab.succeed("vae roundtrip images after --weights formula:tiny");

    let frame = |t| {
        let value = |i: usize| decoded.at([t, i % 3, i / 3 / IMAGE.w, i / 3 % IMAGE.w]) * 0.5 + 0.5;
        Frame::from_unit(IMAGE, &(0..3 * IMAGE.pixels()).map(value).collect::<Vec<f32>>(), Depth::Eight)
    };
    assert!(frames(&lab.path("after")).1 == (0..6).map(frame).collect::<Vec<_>>());
}

/// Runs with a file as standard input.
fn piped(lab: &Lab, args: &str, input: &str) -> Outcome {
    let mut command = lab.command(args);
    command.stdin(Stdio::from(fs::File::open(lab.path(input)).unwrap()));
    outcome(command)
}

#[test]
fn a_pipe_carries_only_frames() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", VIDEO, 6);
    lab.succeed("vae roundtrip in.y4m out.y4m --weights formula:tiny");
    let want = fs::read(lab.path("out.y4m")).unwrap();

    let outcome = piped(&lab, "vae roundtrip - - --weights formula:tiny --profile", "in.y4m");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout == want, "not the video that a file gets");
    quality(&outcome.stderr);

    let outcome = piped(&lab, "vae roundtrip - - --weights formula:tiny --json", "in.y4m");
    assert!(outcome.stdout == want, "not the video that a file gets");
    let last: Value = serde_json::from_str(outcome.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "done");

    // A pipe as the input only, then as the output only.
    let outcome = piped(&lab, "vae roundtrip - piped.y4m --weights formula:tiny", "in.y4m");
    quality(&outcome.text());
    assert!(fs::read(lab.path("piped.y4m")).unwrap() == want);
    assert!(lab.succeed("vae roundtrip in.y4m - --weights formula:tiny").stdout == want);
}

#[test]
fn json_output_is_events_only_and_ends_with_done() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", VIDEO, 9);
    let events = lab.succeed("vae roundtrip in.y4m out.y4m --weights formula:tiny --json --profile").events();
    let progress: Vec<&Value> = events.iter().filter(|e| e["event"] == "progress").map(|e| &e["frame"]).collect();
    assert_eq!(progress, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let done = events.last().unwrap();
    assert_eq!((&done["event"], &done["frames"], &done["output"]), (&"done".into(), &9.into(), &"out.y4m".into()));
    assert!(done["psnr"].is_number() && done["ssim"].is_number(), "{done}");
}
