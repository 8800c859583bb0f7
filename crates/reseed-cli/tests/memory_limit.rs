//! Where the system has no host memory left, a run ends with one line and exit code 5.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "exit codes are worth seeing")]

use std::process::Command;

use crate::common::{Lab, Outcome, outcome};
use reseed_media::Size;

/// Runs the command with so many KiB of address space.
fn limited(lab: &Lab, kib: usize, args: &str) -> Outcome {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {kib}; exec \"$0\" \"$@\"")).arg(env!("CARGO_BIN_EXE_reseed"));
    command.args(args.split_whitespace()).current_dir(lab.path(""));
    outcome(command)
}

#[test]
fn exhausted_memory_is_one_line() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", Size { h: 64, w: 96 }, 6);
    let start = (1..).map(|i| 8192 * i).find(|kib| limited(&lab, *kib, "--version").code == Some(0)).unwrap();
    let (mut codes, mut limit) = (Vec::new(), start);
    let args = "upscale in.y4m out.y4m --model formula:tiny --scale 4 --threads 2 --device cpu --quiet --overwrite";
    while codes.last() != Some(&0) {
        let Outcome { code, stderr, .. } = limited(&lab, limit, args);
        println!("{} MiB: {code:?} {stderr}", limit >> 10);
        match code {
            Some(0) => assert_eq!(stderr, ""),
            Some(5) => assert_eq!(stderr.lines().count(), 1, "{} MiB: {stderr}", limit >> 10),
            code => panic!("{} MiB: {code:?} {stderr}", limit >> 10),
        }
        codes.extend(code);
        limit += limit / 8;
    }
    assert!(codes.len() > 3, "{codes:?}");
    assert_eq!(reseed_media::open(&lab.path("out.y4m")).unwrap().info().frames, Some(6));
}
