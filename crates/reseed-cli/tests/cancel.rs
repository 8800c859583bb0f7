//! Ctrl-C, SIGTERM and SIGHUP stop a run quickly, with one line, exit code 130 and no leftover files.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Lab, Tensor};
use reseed_media::Size;

/// Sends each signal to a long run as soon as its partial output exists, and asserts that no files remain.
fn assert_interruptible(lab: &Lab, args: &str, partial: &str, stdout: &str) {
    let before = lab.names();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let child = start(lab.command(args), &lab.path(partial));
        send(signal, &child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "reseed {args} {signal}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), stdout);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "reseed: cancelled; nothing was written\n");
        assert_eq!(lab.names(), before);
    }
}

/// Starts a run and waits until its partial output exists.
fn start(mut command: Command, partial: &Path) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !partial.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "{command:?} finished before it could be interrupted");
        sleep(Duration::from_millis(5));
    }
    child
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn an_interrupted_decode_leaves_no_files() {
    let lab = Lab::new();
    lab.input("in", &Tensor::uniform(&[1500, 16, 8, 8]));
    assert_interruptible(&lab, "vae decode in out --weights formula:tiny", ".out.partial", "");
}

#[test]
fn an_interrupted_video_leaves_no_files() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", Size { h: 64, w: 64 }, 2000);
    assert_interruptible(&lab, "vae roundtrip in.y4m out.y4m --weights formula:tiny", ".out.y4m.partial", "");
}

#[test]
fn a_job_interrupted_in_its_first_batch_leaves_no_files() {
    let lab = Lab::new();
    // Large frames: a single layer takes longer than the test waits.
    lab.write_frames("in.y4m", Size { h: 1024, w: 1024 }, 9);
    assert_interruptible(
        &lab,
        "upscale in.y4m out.y4m --model formula:tiny --scale 1 --batch-size 9",
        ".out.y4m.partial",
        "in.y4m: 1024x1024 -> 1024x1024, 9 frames\n",
    );
}

#[test]
fn a_run_under_nohup_survives_its_terminal() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", Size { h: 64, w: 64 }, 60);
    let mut command = Command::new("sh");
    let args = "vae roundtrip in.y4m out.y4m --weights formula:tiny";
    command.arg("-c").arg("trap '' HUP; exec \"$0\" \"$@\"").arg(env!("CARGO_BIN_EXE_reseed"));
    command.args(args.split_whitespace()).current_dir(lab.path(""));
    let child = start(command, &lab.path(".out.y4m.partial"));
    send("-HUP", &child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(lab.path("out.y4m").exists());
}

#[test]
fn an_interrupted_folder_leaves_no_files() {
    let lab = Lab::new();
    lab.write_frames("in", Size { h: 64, w: 64 }, 400);
    assert_interruptible(&lab, "vae roundtrip in out --weights formula:tiny", "out.partial", "");
}
