//! A terminal that is gone, a full disk and a closed pipe stop no job and cause no panic.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{PipeWriter, Read, pipe};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use crate::common;
use crate::common::{Lab, outcome};
use reseed_media::Size;

const SMALL: Size = Size { h: 16, w: 16 };
const UPSCALE: &str = "upscale in.y4m out.y4m --model formula:tiny --scale 1 --overwrite";

/// A place where every write fails: a full disk, a pipe without a reader.
type Failing = (&'static str, fn() -> Stdio);

const FAILING: [Failing; 2] = [("full disk", || full_disk().into()), ("closed pipe", || closed_pipe().into())];

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn closed_pipe() -> PipeWriter {
    let (_reader, writer) = pipe().unwrap();
    writer
}

/// A terminal and its window.
fn terminal() -> (File, OwnedFd) {
    let (mut window, mut terminal) = (0, 0);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the two numbers are places for the call to write to, and null means the defaults.
    let opened = unsafe { libc::openpty(&mut window, &mut terminal, name, settings, size) };
    assert_eq!(opened, 0);
    // SAFETY: the call has opened both, and nobody else owns them.
    let [window, terminal] = [window, terminal].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (window.into(), terminal)
}

fn code(mut command: Command) -> Option<i32> {
    command.status().unwrap().code()
}

#[test]
fn a_failing_stderr_changes_neither_a_job_nor_its_exit_code() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 12);
    lab.succeed(UPSCALE);
    let want = fs::read(lab.path("out.y4m")).unwrap();
    for (name, stderr) in FAILING {
        for log in ["", "debug"] {
            let run = |args: &str| {
                let mut command = lab.command(args);
                command.stdout(Stdio::null()).stderr(stderr());
                if !log.is_empty() {
                    command.env("RESEED_LOG", log);
                }
                code(command)
            };
            fs::remove_file(lab.path("out.y4m")).unwrap();
            // Warnings about an ignored option, threads and the model beside the progress.
            assert_eq!(run(&format!("{UPSCALE} --blocks_to_swap 1 --threads 60000")), Some(0), "{name}");
            assert!(fs::read(lab.path("out.y4m")).unwrap() == want, "{name}");
            assert_eq!(run("image in.png out.png"), Some(3), "{name}");
            assert_eq!(run("upscale in.y4m"), Some(2), "{name}");
        }
    }
}

#[test]
fn a_job_survives_its_terminal() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 300);
    let (mut window, terminal) = terminal();
    let mut command = lab.command(UPSCALE);
    let mut child = command.stdout(Stdio::null()).stderr(terminal).spawn().unwrap();
    // The command holds a copy of the terminal.
    drop(command);
    let mut shown = [0; 40];
    let count = window.read(&mut shown).unwrap();
    assert!(shown[..count].starts_with(b"\r\x1b[Kupscale"), "{:?}", String::from_utf8_lossy(&shown[..count]));
    drop(window);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(common::frames(&lab.path("out.y4m")).1.len(), 300);
}

#[test]
fn a_failing_stderr_does_not_end_a_folder() {
    let lab = Lab::new();
    fs::create_dir(lab.path("in")).unwrap();
    fs::write(lab.path("in/a.y4m"), "a letter").unwrap();
    lab.write_frames("in/b.y4m", SMALL, 3);
    for (name, stderr) in FAILING {
        let mut command = lab.command("upscale in out --model formula:tiny --scale 1");
        command.stdout(Stdio::null()).stderr(stderr());
        assert_eq!(code(command), Some(1), "{name}");
        fs::remove_file(lab.path("out/b.y4m")).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn lost_results_are_reported_and_lose_no_work() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 6);
    for args in
        ["--help", "--version", "man", "completions bash", "doctor", "models list", &format!("{UPSCALE} --json")]
    {
        let run = |stdout: Stdio| {
            let mut command = lab.command(args);
            let child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
            let output = child.wait_with_output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (code, stderr) = run(full_disk().into());
        assert_eq!(code, Some(1), "{args}: {stderr}");
        assert_eq!(stderr, "reseed: standard output: No space left on device (os error 28)\n", "{args}");
        // A reader who has seen enough.
        assert_eq!(run(closed_pipe().into()), (Some(0), String::new()), "{args}");
    }
    assert_eq!(common::frames(&lab.path("out.y4m")).1.len(), 6);
}

#[test]
fn far_too_many_threads_are_capped() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut command = lab.command("image in.png out.png --model formula:tiny --scale 2 --threads 60000");
    // So many threads would need more than this, in KiB.
    let script = "ulimit -v 8000000; exec \"$0\" \"$@\"";
    let args: Vec<_> = command.get_args().map(|arg| arg.to_owned()).collect();
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(script).arg(command.get_program()).args(args).current_dir(lab.path(""));
    command = limited;
    let outcome = outcome(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let line = format!("warning: --threads 60000: using {}, four for each of {cores} cores\n", 4 * cores);
    assert_eq!(outcome.stderr, line);
}
