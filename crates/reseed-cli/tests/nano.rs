//! The embedded model nano: the default model, the demo, and the quality benchmark.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::common::{Lab, frames, slashes, smooth_frame};
use reseed_media::{Depth, Frame, Info, Kind, Size, metrics};
use serde_json::Value;

const SMALL: Size = Size { h: 12, w: 20 };

#[test]
fn nano_is_the_default_model_and_its_use_is_reported() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    let outcome = lab.succeed("image in.png out.png --scale 2");
    assert!(
        outcome.stderr.contains("using nano") && outcome.stderr.contains("reseed models pull 3b"),
        "{}",
        outcome.stderr
    );
    let outcome = lab.succeed("image in.png same.png --scale 2 --model nano");
    assert_eq!(outcome.stderr, "");
    assert_eq!(frames(&lab.path("out.png")).1, frames(&lab.path("same.png")).1);

    lab.write_frames("in.y4m", SMALL, 2);
    let outcome = lab.succeed("upscale in.y4m out.y4m --scale 2");
    assert!(outcome.stderr.contains("using nano"), "{}", outcome.stderr);
}

#[test]
fn nano_sharp_is_another_setting_of_the_same_size() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    for model in ["nano", "nano-sharp"] {
        let outcome = lab.succeed(&format!("image in.png {model}.png --scale 2 --model {model}"));
        assert_eq!(outcome.stderr, "");
    }
    let [faithful, sharp] = ["nano.png", "nano-sharp.png"].map(|name| frames(&lab.path(name)).1.remove(0));
    assert_eq!(faithful.size, sharp.size);
    let distance = metrics::psnr(&faithful, &sharp);
    assert!((20.0..60.0).contains(&distance), "two settings of one model are {distance} dB apart");
    let refused = lab.run("image in.png no.png --model nano-sharp --vae vae.safetensors");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("nano-sharp has its own"), "{}", refused.stderr);
}

#[test]
fn a_low_strength_brings_the_result_closer_to_the_input() {
    let lab = Lab::new();
    let (_, before) = lab.write_frames("in.png", SMALL, 1);
    let size = Size { h: 2 * SMALL.h, w: 2 * SMALL.w };
    let distance = |strength: &str| {
        lab.succeed(&format!("image in.png out.png --scale 2 --model nano --overwrite --strength {strength}"));
        let after = &frames(&lab.path("out.png")).1[0];
        assert_eq!(after.size, size);
        // The result at the input's size: the mean of each block of four pixels.
        let (large, mean) = (after.to_unit(), |v: [f32; 4]| v.iter().sum::<f32>() / 4.0);
        let at = |y: usize, x: usize, c: usize| large[3 * (y * size.w + x) + c];
        let small = |i: usize| {
            let (y, x, c) = (2 * (i / 3 / SMALL.w), 2 * (i / 3 % SMALL.w), i % 3);
            mean([at(y, x, c), at(y, x + 1, c), at(y + 1, x, c), at(y + 1, x + 1, c)])
        };
        let small: Vec<f32> = (0..3 * SMALL.pixels()).map(small).collect();
        metrics::psnr(&before[0], &Frame::from_unit(SMALL, &small, before[0].depth()))
    };
    let [faithful, clean, automatic] = ["0", "1", "auto"].map(distance);
    assert!(faithful > clean, "--strength 0 is not closer to the input than --strength 1");
    assert!((clean..=faithful).contains(&automatic), "an estimate lies between: {clean}, {automatic}, {faithful}");
    lab.succeed("image in.png plain.png --scale 2 --model nano");
    assert_eq!(frames(&lab.path("plain.png")).1, frames(&lab.path("out.png")).1, "auto is the default");
    let refused = lab.run("image in.png no.png --strength much");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("`much` is not a number or auto"), "{}", refused.stderr);
    let refused = lab.run("image in.png no.png --strength 1.5");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("--strength 1.5: must be between 0 and 1"), "{}", refused.stderr);
}

#[test]
fn the_demo_writes_its_results_and_reports_their_metrics() {
    let lab = Lab::new();
    let events = lab.succeed("demo OUT --frames 12 --device cpu --json").events();
    let shows: Vec<&Value> = events.iter().filter(|event| event["event"] == "demo").collect();
    assert_eq!(shows.iter().map(|show| &show["name"]).collect::<Vec<_>>(), ["photo", "clip"]);
    assert_eq!(events.last().unwrap()["event"], "done");

    let original = reseed_media::demo::photo().next().unwrap().unwrap();
    let (info, photo) = frames(&lab.path("OUT/photo.png"));
    assert_eq!(info.size, original.size);
    let reported = |figure: &str| shows[0]["nano"][figure].as_f64().unwrap();
    assert!((metrics::psnr(&photo[0], &original) - reported("psnr")).abs() < 1e-6);
    assert!((metrics::ssim(&photo[0], &original) - reported("ssim")).abs() < 1e-6);
    assert!((metrics::gmsd(&photo[0], &original) - reported("gmsd")).abs() < 1e-6);

    let (info, compared) = frames(&lab.path("OUT/photo-compare.png"));
    assert_eq!(info.size, Size { h: 448, w: 3 * 448 + 2 * 8 });
    let third = |i: usize| crop_columns(&compared[0], i * (448 + 8), 448);
    assert!(third(1) == photo[0] && third(2) == original, "bicubic, result, original");
    let bicubic = shows[0]["bicubic"]["psnr"].as_f64().unwrap();
    assert!((metrics::psnr(&third(0), &original) - bicubic).abs() < 1e-6);

    let written = |key: &str| lab.path(shows[1][key].as_str().unwrap());
    let (clip, compare) = (frames(&written("output")), frames(&written("compare")));
    assert_eq!((clip.0.size, clip.1.len()), (Size { h: 272, w: 480 }, 12));
    assert_eq!((compare.0.size, compare.1.len()), (Size { h: 272, w: 3 * 480 + 2 * 8 }, 12));
    assert!(shows[1]["nano"]["flicker"].is_number() && shows[0]["nano"]["flicker"].is_null());
}

/// The columns `first..first + width` of a frame.
fn crop_columns(frame: &Frame, first: usize, width: usize) -> Frame {
    let unit = frame.to_unit();
    let rows = unit.chunks_exact(3 * frame.size.w).flat_map(|row| &row[3 * first..3 * (first + width)]);
    Frame::from_unit(Size { w: width, ..frame.size }, &rows.copied().collect::<Vec<f32>>(), frame.depth())
}

/// Writes a dataset of a photograph and a clip of three frames. Returns the names and bytes of its files.
fn dataset(lab: &Lab) -> Vec<(String, Vec<u8>)> {
    let put = |name: String, size: Size, i: usize| {
        let path = lab.path(&format!("set/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let info = Info { size, kind: Kind::Image, ..reseed_media::sample().info().clone() };
        let mut sink = reseed_media::create(&path, &info).unwrap();
        sink.write(&smooth_frame(size, i)).unwrap();
        sink.finish().unwrap();
        (name, fs::read(path).unwrap())
    };
    let clip = (0..3).map(|i| put(format!("vid/clip/{i}.png"), Size { h: 16, w: 24 }, 5 * i));
    // Sides that are no multiple of the scale are cropped.
    clip.chain([put("img/photo.png".into(), Size { h: 35, w: 26 }, 0)]).collect()
}

/// Writes files to a tar file.
fn tar(path: &Path, files: &[(String, Vec<u8>)]) {
    let mut bytes = Vec::new();
    for (name, content) in files {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[257..262].copy_from_slice(b"ustar");
        bytes.extend(header);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    fs::write(path, bytes).unwrap();
}

#[test]
fn bench_quality_measures_a_folder_and_a_tar_file_alike() {
    let lab = Lab::new();
    let files = dataset(&lab);
    tar(&lab.path("set.tar"), &files);
    let events = lab.succeed("bench quality --data set --json").events();
    let rows: Vec<Value> = events.into_iter().filter(|event| event["event"] == "quality").collect();
    let name = |row: &Value| format!("{} {} {}", row["kind"], row["case"], row["method"]).replace('"', "");
    let names: Vec<String> = rows.iter().map(name).collect();
    assert_eq!(names.len(), 2 * 13, "{names:?}");
    for row in ["photographs reconstruction nano", "photographs 2x bicubic", "clips 4x degraded nano with low band"] {
        assert!(names.iter().any(|name| name == row), "{row} of {names:?}");
    }
    let figure = |name: &str, key: &str| rows[names.iter().position(|n| n == name).unwrap()][key].as_f64();
    assert!(figure("photographs 2x bicubic", "psnr") > figure("photographs 4x bicubic", "psnr"));
    assert!(figure("photographs 4x bicubic", "psnr") > figure("photographs 4x degraded bicubic", "psnr"));
    assert!(figure("clips 2x nano", "flicker").is_some() && figure("photographs 2x nano", "flicker").is_none());

    let again = lab.succeed("bench quality --data set.tar --json").events();
    let again: Vec<Value> = again.into_iter().filter(|event| event["event"] == "quality").collect();
    assert_eq!(again, rows);
    let table = lab.succeed("bench quality --data set --limit 1").text();
    assert!(table.contains("| photographs 2x | nano with low band | 1 |"), "{table}");
}

/// Enlarges every image below a folder, as another program would.
fn enlarge(from: &Path, to: &Path, scale: usize) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            enlarge(&path, &to.join(name), scale);
            continue;
        }
        let (info, small) = frames(&path);
        let size = Size { h: scale * info.size.h, w: scale * info.size.w };
        let large = reseed::internals::quality::resized(&small, size, Depth::Sixteen).unwrap();
        let info = Info { size, depth: Depth::Sixteen, ..info };
        let mut sink = reseed_media::create(&to.join(name), &info).unwrap();
        sink.write(&large[0]).unwrap();
        sink.finish().unwrap();
    }
}

#[test]
fn bench_quality_measures_the_results_of_another_program() {
    let lab = Lab::new();
    dataset(&lab);
    assert_eq!(lab.succeed("bench quality --data set --write-inputs in").text(), "");
    for (case, scale) in [("2x", 2), ("4x-degraded", 4)] {
        enlarge(&lab.path("in").join(case), &lab.path("out").join(case), scale);
    }
    let events = lab.succeed("bench quality --data set --json --results other=out").events();
    let row = |kind: &str, case: &str, method: &str| {
        let is = |event: &&Value| event["kind"] == kind && event["case"] == case && event["method"] == method;
        events.iter().find(is)
    };
    for (kind, case) in [("photographs", "2x"), ("clips", "4x degraded")] {
        let (other, bicubic) = (row(kind, case, "other").unwrap(), row(kind, case, "bicubic").unwrap());
        for figure in ["psnr", "ssim", "gmsd", "detail", "flicker"] {
            assert_eq!(other[figure], bicubic[figure], "{kind} {case} {figure}");
        }
    }
    assert!(row("photographs", "4x", "other").is_none(), "a case without a folder is not measured");

    fs::create_dir(lab.path("none")).unwrap();
    fs::create_dir_all(lab.path("lacks/2x")).unwrap();
    fs::rename(lab.path("out/2x/vid"), lab.path("lacks/2x/vid")).unwrap();
    fs::rename(lab.path("lacks/2x/vid/clip"), lab.path("lacks/2x/vid/another")).unwrap();
    fs::remove_file(lab.path("out/4x-degraded/vid/clip/001.png")).unwrap();
    for (results, code, line) in [
        ("other=lacks", 3, "lacks/2x: no result of `clip`; every item of the set needs one"),
        ("other=out", 3, "out/4x-degraded: `clip` has 2 frames of 24x16; 3 frames of 24x16 are needed"),
        ("other=none", 3, "none: no folder of a case in it"),
        ("out", 2, "`out` is not NAME=DIR"),
    ] {
        let refused = lab.run(&format!("bench quality --data set --results {results}"));
        assert_eq!(refused.code, Some(code), "{}", refused.stderr);
        assert!(slashes(&refused.stderr).contains(line), "{}", refused.stderr);
    }
}

#[test]
fn an_unusable_dataset_is_refused_by_name() {
    let lab = Lab::new();
    fs::create_dir(lab.path("empty")).unwrap();
    fs::write(lab.path("text.tar"), "x".repeat(2000)).unwrap();
    fs::create_dir_all(lab.path("small/img")).unwrap();
    lab.write_frames("small/img/a.png", SMALL, 1);
    for (data, line) in [
        ("nothing.tar", "nothing.tar: "),
        ("empty", "empty: no images in it; use a tar file or a folder"),
        ("small", "img/a.png: 20x12 is too small; sides have at least 16 pixels"),
        ("text.tar", "text.tar: not a tar file, or a damaged one"),
    ] {
        let refused = lab.run(&format!("bench quality --data {data}"));
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        assert!(slashes(&refused.stderr).contains(line), "{}", refused.stderr);
    }
}
