//! Ctrl-C stops a run quickly, with exit code 130 and no leftover files.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{Lab, Tensor};
use reseed_media::Size;

/// Interrupts a long run as soon as its partial output exists, and asserts that no files remain.
fn assert_interruptible(lab: &Lab, args: &str, partial: &str) {
    let before = lab.names();
    let mut child = lab.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !lab.path(partial).exists() {
        assert_eq!(child.try_wait().unwrap(), None, "reseed {args} finished before it could be interrupted");
        sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "reseed {args}");
    assert_eq!(output.stdout, b"");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "reseed: cancelled; nothing was written\n");
    assert_eq!(lab.names(), before);
}

#[test]
fn an_interrupted_decode_leaves_no_files() {
    let lab = Lab::new();
    lab.input("in", &Tensor::uniform(&[1500, 16, 8, 8]));
    assert_interruptible(&lab, "vae decode in out --weights formula:tiny", ".out.partial");
}

#[test]
fn an_interrupted_video_leaves_no_files() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", Size { h: 64, w: 64 }, 2000);
    assert_interruptible(&lab, "vae roundtrip in.y4m out.y4m --weights formula:tiny", ".out.y4m.partial");
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
    );
}

#[test]
fn an_interrupted_folder_leaves_no_files() {
    let lab = Lab::new();
    lab.write_frames("in", Size { h: 64, w: 64 }, 400);
    assert_interruptible(&lab, "vae roundtrip in out --weights formula:tiny", "out.partial");
}
