//! An ffmpeg that loses frames, hangs, floods or is killed: one error line, nothing wrong under the output's name, all
//! finished work kept, and the same bytes after `--resume`.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::video::make;
use crate::common::{Lab, Outcome, outcome};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const INPUT: i32 = 3;

/// Frames of the input: one full segment of 120 and a short one.
const FRAMES: usize = 130;
const ARGS: &str = "upscale in.mkv out.mp4 --model identity --scale 1 --color none --batch-size 40 --deinterlace off";

/// A folder with a video and with programs that behave like ffmpeg and ffprobe except where a test says otherwise.
struct Fixture {
    lab: Lab,
    args: String,
    /// The bytes of an undisturbed run.
    expected: Vec<u8>,
}

impl Fixture {
    fn new(args: &str) -> Fixture {
        let lab = Lab::new();
        let video = format!("-f lavfi -i testsrc2=size=32x16:rate=25:duration=5.2 -c:v ffv1 -frames:v {FRAMES}");
        make(&lab.path(""), &video, "in.mkv");
        lab.succeed(args);
        let output = args.split(' ').nth(2).unwrap();
        let expected = fs::read(lab.path(output)).unwrap();
        fs::remove_file(lab.path(output)).unwrap();
        fs::create_dir(lab.path("tools")).unwrap();
        Fixture { lab, args: args.to_owned(), expected }
    }

    fn output(&self) -> &str {
        self.args.split(' ').nth(2).unwrap()
    }

    /// `program` runs `body`, with the last file of the arguments as `$out`, if its arguments match `pattern`.
    fn replace(&self, program: &str, pattern: &str, body: &str) {
        for name in ["ffmpeg", "ffprobe"] {
            let body = if name == program { body } else { "exec false" };
            let pattern = if name == program { pattern } else { "never" };
            let script = format!(
                "#!/bin/sh\nfor each; do case \"$each\" in file:*) out=${{each#file:}};; esac; done\n\
                 case \"$*\" in {pattern}) {body};; *) exec {name} \"$@\";; esac\n"
            );
            let path = self.lab.path("tools").join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn command(&self) -> Command {
        let mut command = self.lab.command(&self.args);
        command.env("RESEED_FFMPEG", self.lab.path("tools")).env("RESEED_FFMPEG_TIMEOUT", "2");
        command
    }

    /// Runs with the replaced programs and expects one error line and no output file.
    fn fails(&self, code: i32, needed: &[&str]) -> Outcome {
        let outcome = outcome(self.command());
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        for needed in needed {
            assert!(outcome.stderr.contains(needed), "no `{needed}` in: {}", outcome.stderr);
        }
        assert!(!self.lab.path(self.output()).exists());
        outcome
    }

    /// Resumes with the real programs and expects the bytes of an undisturbed run.
    fn resumes(&self) {
        self.lab.succeed(&format!("{} --resume", self.args));
        assert!(fs::read(self.lab.path(self.output())).unwrap() == self.expected, "other bytes after --resume");
        assert_eq!(self.lab.names(), ["in.mkv", self.output(), "tools"]);
    }

    fn work(&self) -> PathBuf {
        self.lab.path(&format!(".{}.reseed", self.output()))
    }
}

/// Ways to write a bad file and exit with success, and what the error line says.
const LIES: [(&str, &str, &str); 4] = [
    ("no output", "cat > /dev/null; : > \"$out\"; exit 0", "the written file cannot be read"),
    (
        "a truncated file",
        "ffmpeg \"$@\"; head -c 1500 \"$out\" > \"$out.t\"; mv \"$out.t\" \"$out\"; exit 0",
        "the written file ",
    ),
    (
        "a message",
        "ffmpeg \"$@\"; echo \"[out#0/mp4 @ 0x5] Error writing trailer of $out: No space left on device\" >&2; exit 0",
        "ffmpeg failed while writing it: Error writing trailer of",
    ),
    ("a wrong status", "cat > /dev/null; exit 0", "the written file "),
];

#[test]
fn a_segment_is_verified_before_it_gets_its_name() {
    let fixture = Fixture::new(ARGS);
    for (name, body, line) in LIES {
        fixture.replace("ffmpeg", "*-encode-*", body);
        let outcome = fixture.fails(FAILED, &["out.mp4: ffmpeg failed while writing it: ", line]);
        assert!(outcome.stderr.contains("finished frames are kept: --resume continues"), "{name}: {}", outcome.stderr);
        let finished = fs::read_dir(fixture.work()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!finished.into_iter().any(|file| file.to_string_lossy().ends_with(".mp4")), "{name}");
        fixture.resumes();
        fs::remove_file(fixture.lab.path("out.mp4")).unwrap();
    }
}

#[test]
fn an_encoder_that_keeps_too_few_frames_is_not_believed() {
    let fixture = Fixture::new(ARGS);
    // A frame has 768 bytes.
    let body = "dd bs=768 count=3 iflag=fullblock 2> /dev/null | ffmpeg \"$@\"; cat > /dev/null; exit 0";
    fixture.replace("ffmpeg", "*-encode-*", body);
    fixture.fails(FAILED, &["out.mp4: ffmpeg failed while writing it: the written file holds 3 of 120 frames"]);
    fixture.resumes();
}

#[test]
fn the_joined_file_is_verified_before_it_gets_its_name() {
    for args in [ARGS.to_owned(), format!("{} --codec ffv1", ARGS.replace("out.mp4", "out.mkv"))] {
        let fixture = Fixture::new(&args);
        let lies = if fixture.output() == "out.mp4" { &LIES[1..3] } else { &LIES[1..2] };
        for (name, body, line) in lies {
            fixture.replace("ffmpeg", "*concat*", body);
            let outcome = fixture.fails(FAILED, &["ffmpeg failed while writing it: ", line]);
            let kept = format!("{FRAMES} finished frames are kept: --resume continues");
            assert!(outcome.stderr.contains(&kept), "{name}: {}", outcome.stderr);
            fixture.resumes();
            fs::remove_file(fixture.lab.path(fixture.output())).unwrap();
        }
    }
}

/// The file size limit makes the last writes of the real ffmpeg fail, as a full disk does. ffmpeg then exits with
/// success.
#[test]
fn a_disk_that_fills_while_the_trailer_is_written_loses_nothing() {
    for args in [ARGS.to_owned(), format!("{} --codec ffv1", ARGS.replace("out.mp4", "out.mkv"))] {
        let fixture = Fixture::new(&args);
        let blocks = (fixture.expected.len() - 1) / 512;
        for blocks in [blocks, blocks - 4] {
            let body = format!("trap '' XFSZ; ulimit -f {blocks}; exec ffmpeg \"$@\"");
            fixture.replace("ffmpeg", "*concat*", &body);
            fixture.fails(FAILED, &["ffmpeg failed while writing it: ", "File too large", "frames are kept"]);
            fixture.resumes();
            fs::remove_file(fixture.lab.path(fixture.output())).unwrap();
        }
    }
}

#[test]
fn programs_that_hang_are_stopped() {
    let fixture = Fixture::new(ARGS);
    let hang = "sleep 1000; exit 0";
    let hung = "s and was stopped";
    for (program, pattern, code, line) in [
        ("ffprobe", "*-show_streams*", INPUT, "in.mkv: ffmpeg cannot read it: it did nothing for "),
        ("ffmpeg", "*pipe:1*", INPUT, "in.mkv: ffmpeg failed while reading it: it did nothing for "),
        ("ffmpeg", "*-try-*", FAILED, "out.mp4: ffmpeg failed while writing it: it did nothing for "),
        ("ffmpeg", "*-encode-*", FAILED, "out.mp4: ffmpeg failed while writing it: it did nothing for "),
        ("ffmpeg", "*concat*", FAILED, "out.mp4: ffmpeg failed while writing it: it did nothing for "),
    ] {
        fixture.replace(program, pattern, hang);
        fixture.fails(code, &[line, hung]);
        let _ = fs::remove_dir_all(fixture.work());
    }
    // Two encoders write AV1, so that ffmpeg is asked which one it has.
    let fixture = Fixture { args: format!("{ARGS} --codec av1"), ..fixture };
    fixture.replace("ffmpeg", "*-encoders*", hang);
    fixture.fails(FAILED, &["does not work as ffmpeg: it did nothing for ", hung]);
}

#[test]
fn a_missing_encoder_is_found_before_anything_is_computed() {
    let fixture = Fixture::new(ARGS);
    fixture.replace("ffmpeg", "*-try-*", "echo \"Unknown encoder 'libx264'\" >&2; exit 1");
    fixture.fails(USAGE, &["ffmpeg has no encoder for h264 (libx264); choose another codec"]);
    assert!(!fixture.work().exists());
}

#[test]
fn messages_without_end_are_stopped() {
    let fixture = Fixture::new(ARGS);
    for (program, pattern, code) in [("ffprobe", "*-show_streams*", INPUT), ("ffmpeg", "*-encode-*", FAILED)] {
        fixture.replace(program, pattern, "exec cat /dev/zero >&2");
        fixture.fails(code, &["it printed messages without end and was stopped"]);
    }
}

#[test]
fn output_without_end_is_stopped() {
    let fixture = Fixture::new(ARGS);
    fixture.replace("ffprobe", "*-show_streams*", "exec cat /dev/zero");
    fixture.fails(INPUT, &["in.mkv: ffmpeg cannot read it: it printed more than 256 MiB"]);
}

#[test]
fn a_killed_ffmpeg_loses_nothing() {
    let fixture = Fixture::new(ARGS);
    for pattern in ["*-encode-*", "*concat*"] {
        fixture.replace("ffmpeg", pattern, "kill -9 $$");
        fixture.fails(FAILED, &["ffmpeg failed while writing it: it ended with signal: 9"]);
        fixture.resumes();
        fs::remove_file(fixture.lab.path("out.mp4")).unwrap();
    }
}

/// Whether a process exists.
fn is_alive(pid: &str) -> bool {
    let status = Command::new("kill").args(["-0", pid]).stderr(Stdio::null()).status().unwrap();
    status.success()
}

#[test]
fn ctrl_c_ends_programs_that_hang() {
    let fixture = Fixture::new(ARGS);
    let pids = fixture.lab.path("pids");
    let body = format!("echo $$ >> {0}; sleep 1000 & echo $! >> {0}; wait; exit 0", pids.display());
    for (program, pattern) in [("ffmpeg", "*pipe:1*"), ("ffmpeg", "*-encode-*"), ("ffmpeg", "*concat*")] {
        fixture.replace(program, pattern, &body);
        let mut command = fixture.command();
        command.env("RESEED_FFMPEG_TIMEOUT", "600").stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let written = || fs::read_to_string(&pids).unwrap_or_default();
        while written().lines().count() < 2 {
            sleep(Duration::from_millis(5));
        }
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{pattern}: {}", String::from_utf8_lossy(&output.stderr));
        for pid in written().lines() {
            // A killed process disappears when its parent, or the system, has waited for it.
            while is_alive(pid) {
                sleep(Duration::from_millis(5));
            }
        }
        fs::remove_file(&pids).unwrap();
        let _ = fs::remove_dir_all(fixture.work());
    }
}
