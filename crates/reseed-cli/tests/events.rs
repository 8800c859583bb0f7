//! What a run reports: JSON events, progress in a log, sizes and dry runs.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common;
use crate::common::{Lab, outcome, slashes};
use reseed_media::Size;
use serde_json::{Value, json};

const SMALL: Size = Size { h: 18, w: 26 };
const UPSCALE: &str = "upscale in.y4m out.y4m --model formula:tiny --scale 2";

fn of_kind<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

#[test]
fn json_has_one_object_per_batch() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 11);
    for options in ["", "--overlap 1"] {
        let events = lab.succeed(&format!("{UPSCALE} --overwrite --json {options}")).events();
        let start = &events[0];
        assert_eq!((&start["event"], &start["frame"], &start["frames"]), (&json!("start"), &json!(0), &json!(11)));
        let sizes = ["input_width", "input_height", "width", "height"].map(|key| start[key].as_u64().unwrap());
        assert_eq!(sizes, [26, 18, 52, 36]);
        let batches = of_kind(&events, "batch");
        let numbers: Vec<&Value> = batches.iter().map(|event| &event["batch"]).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(events.last().unwrap()["batches"], 3);
        for batch in &batches {
            let (frame, percent) = (batch["frame"].as_f64().unwrap(), batch["percent"].as_f64().unwrap());
            assert!((percent - 100.0 * frame / 11.0).abs() < 1e-9, "{batch}");
            // A following batch may change all frames of the first one.
            assert_eq!(batch["eta_seconds"].is_number(), frame > 0.0, "{batch}");
            assert_eq!(batch["fps"].as_f64().unwrap() > 0.0, frame > 0.0, "{batch}");
        }
        assert_eq!(of_kind(&events, "progress").len(), 11);
    }
    // A pipe has no journal, and the same events.
    let mut piped = lab.command("upscale - - --model formula:tiny --scale 2 --json");
    piped.stdin(fs::File::open(lab.path("in.y4m")).unwrap());
    let stderr = outcome(piped).stderr;
    assert_eq!(stderr.lines().filter(|line| line.contains("\"event\":\"batch\"")).count(), 3, "{stderr}");
}

#[test]
fn warnings_and_errors_are_json_events_too() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 2);
    let outcome = lab.succeed(&format!("{UPSCALE} --blocks_to_swap 1 --json"));
    let events = outcome.events();
    let warning = json!({
        "event": "warning", "kind": "ignored_options", "message": "--blocks_to_swap: decided by the engine, ignored"
    });
    assert_eq!(of_kind(&events, "warning"), [&warning]);
    assert_eq!(outcome.stderr, "warning: --blocks_to_swap: decided by the engine, ignored\n");

    for (args, kind, code, message) in [
        (format!("{UPSCALE} --json"), "usage", 2, "out.y4m: already exists; --overwrite replaces it"),
        ("upscale gone.y4m a.y4m --json --model formula:tiny".into(), "input", 3, "gone.y4m: cannot read"),
        ("upscale in.y4m a.y4m --json --model formula:huge".into(), "model", 4, "the sizes are tiny, 3b and 7b"),
        ("upscale in.y4m a.y4m --json --scale twice".into(), "usage", 2, "invalid value 'twice' for '--scale <X>'"),
        ("models verify 3b --json".into(), "model", 4, "not on this machine"),
    ] {
        let mut command = lab.command(&args);
        command.env("HOME", lab.path("home")).env("RESEED_MODELS", lab.path("own")).env("HF_HOME", lab.path("hf"));
        let outcome = common::outcome(command);
        assert_eq!(outcome.code, Some(code), "{args}: {}", outcome.stderr);
        let events = outcome.events();
        let error = events.last().unwrap();
        assert_eq!((&error["event"], &error["kind"]), (&json!("error"), &json!(kind)), "{args}");
        assert_eq!(error["exit_code"], code, "{args}");
        let text = error["message"].as_str().unwrap();
        assert!(text.contains(message) && outcome.stderr.contains(text), "{args}: {error}");
    }
}

#[test]
fn the_jobs_of_a_folder_are_counted() {
    let lab = Lab::new();
    fs::create_dir(lab.path("in")).unwrap();
    for (name, frames) in [("a.y4m", 6), ("c.y4m", 2)] {
        lab.write_frames(&format!("in/{name}"), SMALL, frames);
    }
    fs::write(lab.path("in/b.y4m"), "a letter").unwrap();
    let outcome = lab.run("upscale in out --model formula:tiny --scale 2");
    assert_eq!(outcome.code, Some(1));
    let text = slashes(&outcome.text());
    let sizes: Vec<&str> = text.lines().filter(|line| line.contains(" -> ")).collect();
    assert_eq!(sizes, ["[1/3] in/a.y4m: 26x18 -> 52x36, 6 frames", "[3/3] in/c.y4m: 26x18 -> 52x36, 2 frames"]);

    let outcome = lab.run("upscale in out --model formula:tiny --scale 2 --overwrite --json");
    let events = outcome.events();
    let places = |kind: &str| -> Vec<(u64, u64)> {
        let number = |event: &Value, key: &str| event[key].as_u64().unwrap();
        of_kind(&events, kind).iter().map(|event| (number(event, "job"), number(event, "jobs"))).collect()
    };
    assert_eq!(places("start"), [(1, 3), (3, 3)]);
    assert_eq!(places("batch"), [(1, 3), (1, 3), (3, 3)]);
    let errors = of_kind(&events, "error");
    let input = slashes(errors[0]["input"].as_str().unwrap());
    assert_eq!((errors.len(), input.as_str()), (2, "in/b.y4m"));
    assert_eq!((&errors[1]["exit_code"], &errors[1]["message"]), (&json!(1), &json!("1 of 3 files failed; see above")));
}

/// A log gets a line every tenth. A slow decoder makes the job long enough to be worth them.
#[cfg(unix)]
#[test]
fn a_log_gets_a_line_every_tenth() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    let tools = lab.path("tools");
    fs::create_dir(&tools).unwrap();
    for name in ["ffmpeg", "ffprobe"] {
        let script = format!("#!/bin/sh\ncase \"$*\" in *pipe:1*) sleep 4;; esac\nexec {name} \"$@\"\n");
        fs::write(tools.join(name), script).unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    common::video::make(&lab.path(""), "-f lavfi -i testsrc2=size=32x32:rate=25 -frames:v 20 -c:v ffv1", "in.mkv");
    let run = |options: &str| {
        let mut command = lab.command(&format!("upscale in.mkv out.y4m --model formula:tiny --scale 1 {options}"));
        command.env("RESEED_FFMPEG", &tools);
        let outcome = outcome(command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(outcome.stderr, "");
        outcome.progress
    };
    let lines = run("");
    let percents: Vec<&str> = lines.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(percents, ["10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%"], "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("/20, ") && line.contains(" fps")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(['\r', '\x1b'])), "{lines:?}");
    assert!(run("--overwrite --quiet").is_empty());
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 7);
    lab.write_frames("in.png", SMALL, 1);
    fs::create_dir(lab.path("tapes")).unwrap();
    lab.write_frames("tapes/a.y4m", SMALL, 3);
    lab.write_frames("tapes/b.y4m", SMALL, 6);
    let before = lab.names();
    let dry = |args: &str| lab.succeed(&format!("{args} --model formula:tiny --scale 2 --dry-run"));

    let text = dry("upscale in.y4m out.y4m").text();
    assert_eq!(text.lines().next(), Some("in.y4m: 26x18 -> 52x36, 7 frames"));
    for part in ["batches     2 of 5 frames", "\ntime ", "\nhost ", "\ndisk ", "\nplan "] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let estimate = lab.succeed("estimate upscale in.y4m --model formula:tiny --scale 2").text();
    assert_eq!(estimate.lines().next(), text.lines().next());
    assert_eq!(dry("image in.png out.png").text().lines().next(), Some("in.png: 26x18 -> 52x36, 1 frame"));
    let folder = slashes(&dry("upscale tapes out").text());
    let sizes: Vec<&str> = folder.lines().filter(|line| line.contains(" -> ")).collect();
    assert_eq!(sizes, ["[1/2] tapes/a.y4m: 26x18 -> 52x36, 3 frames", "[2/2] tapes/b.y4m: 26x18 -> 52x36, 6 frames"]);
    let event = dry("upscale in.y4m out.y4m --json").events().pop().unwrap();
    let numbers = ["input_width", "input_height", "width", "height", "frames", "batches"];
    assert_eq!(numbers.map(|key| event[key].as_u64().unwrap()), [26, 18, 52, 36, 7, 2]);
    assert!(event["host_bytes"].as_u64().unwrap() > 0 && event["output_bytes"].as_u64().unwrap() > 0, "{event}");
    assert_eq!(lab.names(), before);

    lab.write_frames("out.y4m", SMALL, 1);
    let refused = lab.run("upscale in.y4m out.y4m --model formula:tiny --dry-run");
    assert_eq!((refused.code, refused.text()), (Some(2), String::new()), "{}", refused.stderr);
    let kept = fs::read(lab.path("out.y4m")).unwrap();
    dry("upscale in.y4m out.y4m --overwrite");
    assert!(fs::read(lab.path("out.y4m")).unwrap() == kept);

    // H.264 has even sides.
    let upscale =
        |option: &str| lab.succeed(&format!("upscale in.y4m odd.mp4 --model formula:tiny --scale 1.5 {option}"));
    let size = |option: &str| upscale(option).text().lines().next().unwrap().to_owned();
    assert_eq!(size("--dry-run"), size(""));
}

/// An interrupted job is not touched, whatever the dry run would do with it.
#[test]
fn a_dry_run_keeps_the_work_of_an_interrupted_run() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 7);
    fs::create_dir(lab.path(".out.y4m.reseed")).unwrap();
    fs::write(lab.path(".out.y4m.reseed/job.json"), "{}").unwrap();
    for existing in ["", "--resume", "--overwrite"] {
        lab.succeed(&format!("{UPSCALE} --dry-run {existing}"));
        assert_eq!(fs::read(lab.path(".out.y4m.reseed/job.json")).unwrap(), b"{}", "{existing}");
    }
}

#[test]
fn the_first_line_is_the_sizes() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 3);
    let outcome = lab.succeed(UPSCALE);
    assert_eq!(outcome.text().lines().next(), Some("in.y4m: 26x18 -> 52x36, 3 frames"));
    assert_eq!(lab.succeed(&format!("{UPSCALE} --overwrite --quiet")).text(), "");
}
