//! Videos that cannot be read or written: one error line, the documented exit code, no leftover files, no lost frames.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::video::make;
use crate::common::{Lab, Outcome, outcome};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const INPUT: i32 = 3;

const PLAIN: &str = "--model identity --scale 1 --color none";
const VIDEO: &str =
    "-f lavfi -i testsrc2=size=64x48:rate=25:duration=8 -c:v libx264 -preset ultrafast -g 25 -pix_fmt yuv420p";

/// A folder with a video of eight seconds.
fn lab() -> Lab {
    let lab = Lab::new();
    make(&lab.path(""), &format!("{VIDEO} -movflags +faststart"), "in.mp4");
    lab
}

fn one_line(outcome: &Outcome, args: &str, code: i32, needed: &[&str]) {
    assert_eq!(outcome.code, Some(code), "reseed {args}: {}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("reseed: ") && outcome.stderr.lines().count() == 1,
        "reseed {args}: {}",
        outcome.stderr
    );
    for needed in needed {
        assert!(outcome.stderr.contains(needed), "reseed {args}: no `{needed}` in: {}", outcome.stderr);
    }
}

fn refused(lab: &Lab, args: &str, code: i32, needed: &[&str]) {
    let before = lab.names();
    let args = format!("upscale {args} {PLAIN}");
    one_line(&lab.run(&args), &args, code, needed);
    assert_eq!(lab.names(), before, "reseed {args} left files");
}

#[test]
fn inputs_that_are_not_videos_are_refused() {
    let lab = Lab::new();
    fs::write(lab.path("letter.mp4"), "Dear friend, this is no film.").unwrap();
    refused(&lab, "letter.mp4 out.mp4", INPUT, &["letter.mp4: ffmpeg cannot read it", "Invalid data"]);
    fs::write(lab.path("empty.mkv"), "").unwrap();
    refused(&lab, "empty.mkv out.mp4", INPUT, &["empty.mkv: ffmpeg cannot read it"]);
    refused(&lab, "none.mp4 out.mp4", INPUT, &["none.mp4: cannot read"]);
    make(&lab.path(""), "-f lavfi -i sine=duration=1 -c:a aac", "song.mp4");
    refused(&lab, "song.mp4 out.mp4", INPUT, &["song.mp4: there is no video in it"]);
    fs::write(lab.path("letter.png"), "Dear friend").unwrap();
    refused(&lab, "letter.png out.png", INPUT, &["letter.png: named as PNG"]);
    fs::create_dir(lab.path("nothing")).unwrap();
    refused(&lab, "nothing out", INPUT, &["nothing: no images in this folder and no videos"]);
}

#[test]
fn a_truncated_video_is_restored_as_far_as_it_goes() {
    let lab = lab();
    make(&lab.path(""), "-i in.mp4 -c copy", "in.mkv");
    for name in ["in.mp4", "in.mkv"] {
        let bytes = fs::read(lab.path(name)).unwrap();
        fs::write(lab.path(name), &bytes[..bytes.len() * 6 / 10]).unwrap();
        let outcome = lab.run(&format!("upscale {name} out-{name} {PLAIN}"));
        assert_eq!(outcome.code, Some(0), "{name}: {}", outcome.stderr);
        let needed = [name, "its header says 8.0 s", "its end is missing"];
        let warned = outcome.stderr.lines().any(|line| needed.iter().all(|part| line.contains(part)));
        assert!(warned, "{name}: {}", outcome.stderr);
        lab.succeed(&format!("upscale {name} part-{name} {PLAIN} --end 3"));
    }
    fs::write(lab.path("half.mp4"), &fs::read(lab.path("part-in.mp4")).unwrap()[..600]).unwrap();
    refused(&lab, "half.mp4 out.mp4", INPUT, &["half.mp4: ffmpeg cannot read it"]);
}

#[test]
fn an_empty_time_range_is_refused() {
    let lab = lab();
    refused(&lab, "in.mp4 out.mp4 --start 100", INPUT, &["in.mp4: there are no frames in it"]);
    refused(&lab, "in.mp4 out.mp4 --start 3 --end 2", USAGE, &["--end must be later than --start"]);
}

#[test]
fn an_existing_output_is_replaced_only_with_overwrite() {
    let lab = lab();
    let before = fs::read(lab.path("in.mp4")).unwrap();
    refused(&lab, "in.mp4 in.mp4", USAGE, &["in.mp4 is both input and output"]);
    fs::write(lab.path("out.mp4"), "older").unwrap();
    refused(&lab, "in.mp4 out.mp4 --end 1", USAGE, &["out.mp4: already exists; --overwrite replaces it"]);
    assert_eq!(fs::read(lab.path("out.mp4")).unwrap(), b"older");
    lab.succeed(&format!("upscale in.mp4 out.mp4 {PLAIN} --end 1 --overwrite"));
    assert!(fs::read(lab.path("out.mp4")).unwrap().len() > 1000);
    assert!(fs::read(lab.path("in.mp4")).unwrap() == before);
}

#[test]
fn unsupported_codecs_containers_and_encoder_options_are_refused() {
    let lab = lab();
    refused(&lab, "in.mp4 out.webm --codec h264", USAGE, &["out.webm", "does not hold h264, only av1"]);
    refused(&lab, "in.mp4 out.mp4 --codec prores", USAGE, &["out.mp4", "does not hold prores"]);
    refused(&lab, "in.mp4 out.avi", USAGE, &["out.avi", ".mkv"]);
    refused(&lab, "in.mp4 nowhere/out.mp4", FAILED, &["the folder nowhere does not exist"]);
    let unknown = lab.run(&format!("upscale in.mp4 out.mp4 {PLAIN} --codec mpeg7"));
    assert_eq!(unknown.code, Some(USAGE));
    assert!(unknown.stderr.contains("unknown codec `mpeg7`; choose h264, "), "{}", unknown.stderr);
    refused(
        &lab,
        "in.mp4 out.mp4 --encoder-arg preset=warp --batch-size 300",
        FAILED,
        &["out.mp4: ffmpeg failed while writing it"],
    );
}

#[test]
fn a_missing_ffmpeg_is_reported() {
    let lab = lab();
    let mut command = lab.command(&format!("upscale in.mp4 out.mp4 {PLAIN}"));
    command.env("RESEED_FFMPEG", lab.path("nowhere"));
    let line = ["ffmpeg was not found; install it with `", "RESEED_FFMPEG"];
    one_line(&outcome(command), "without ffmpeg", INPUT, &line);
    assert_eq!(lab.names(), ["in.mp4"]);
}

/// Wrapper scripts around ffmpeg and ffprobe. The ffmpeg one runs `failure` when its arguments match `pattern`.
#[cfg(unix)]
fn failing_ffmpeg(lab: &Lab, pattern: &str, failure: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = lab.path("tools");
    fs::create_dir(&folder).unwrap();
    let scripts = [
        ("ffmpeg", format!("#!/bin/sh\ncase \"$*\" in {pattern}) {failure};; *) exec ffmpeg \"$@\";; esac\n")),
        ("ffprobe", "#!/bin/sh\nexec ffprobe \"$@\"\n".to_owned()),
    ];
    for (name, script) in scripts {
        fs::write(folder.join(name), script).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Runs a job of one batch with a failing ffmpeg and asserts the exit code and the error line.
#[cfg(unix)]
fn run_with_failing_ffmpeg(pattern: &str, failure: &str, code: i32, needed: &[&str]) -> Lab {
    let lab = lab();
    let tools = failing_ffmpeg(&lab, pattern, failure);
    let args = format!("upscale in.mp4 out.mp4 {PLAIN} --batch-size 300");
    let mut command = lab.command(&args);
    command.env("RESEED_FFMPEG", tools);
    one_line(&outcome(command), &args, code, needed);
    lab
}

#[cfg(unix)]
#[test]
fn an_encoder_failure_is_reported_and_leaves_no_files() {
    let failure = "head -c 100000 > /dev/null; echo 'No space left on device' >&2; exit 1";
    let line = "out.mp4: ffmpeg failed while writing it: No space left on device";
    assert_eq!(run_with_failing_ffmpeg("*pipe:0*", failure, FAILED, &[line]).names(), ["in.mp4", "tools"]);
    let killed = ["out.mp4: ffmpeg failed while writing it: it ended with signal: 9"];
    assert_eq!(run_with_failing_ffmpeg("*pipe:0*", "kill -9 $$", FAILED, &killed).names(), ["in.mp4", "tools"]);
}

/// All frames are encoded before the segments are joined, and none is lost.
#[cfg(unix)]
#[test]
fn a_failure_to_join_segments_keeps_the_finished_frames() {
    let line = ["out.mp4: ffmpeg failed while writing it: Out of luck", "200 finished frames are kept: --resume"];
    let lab = run_with_failing_ffmpeg("*concat*", "echo 'Out of luck' >&2; exit 1", FAILED, &line);
    assert_eq!(lab.names(), [".out.mp4.reseed", "in.mp4", "tools"]);
    lab.succeed(&format!("upscale in.mp4 out.mp4 {PLAIN} --batch-size 300 --resume"));
    assert_eq!(lab.names(), ["in.mp4", "out.mp4", "tools"]);
}

#[cfg(unix)]
#[test]
fn a_decoder_failure_is_reported_and_leaves_no_files() {
    let failure = "ffmpeg \"$@\" | { head -c 300000; cat > /dev/null; }; echo 'Power cut' >&2; exit 1";
    let line = "in.mp4: ffmpeg failed while reading it: Power cut";
    assert_eq!(run_with_failing_ffmpeg("*pipe:1*", failure, INPUT, &[line]).names(), ["in.mp4", "tools"]);
}
