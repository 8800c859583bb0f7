//! `--max-vram`: what a run takes of a card, seen by a driver that counts memory and computes nothing.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Lab, Outcome, Tensor};

/// What the driver takes for itself.
const CONTEXT: u64 = 560 << 20;

/// A folder with that driver in it.
struct Card(Lab);

impl Card {
    fn new() -> Card {
        let lab = Lab::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub/cuda.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o"])
            .args([&lab.path("libcuda.so.1"), &source])
            .output()
            .unwrap_or_else(|error| panic!("cc, which Rust links with, builds the driver of this test: {error}"));
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        std::os::unix::fs::symlink("libcuda.so.1", lab.path("libcuda.so")).unwrap();
        Card(lab)
    }

    /// What a run left, and the most bytes that it took.
    fn run(&self, words: &str) -> (Outcome, u64) {
        let mut command = self.0.command(&format!("{words} --device cuda --json"));
        command.env("LD_LIBRARY_PATH", self.0.path("")).env("RESEED_STUB", self.0.path("most"));
        let outcome = common::outcome(command);
        assert_eq!(outcome.code, Some(0), "reseed {words}: {}", outcome.stderr);
        (outcome, fs::read_to_string(self.0.path("most")).unwrap().parse().unwrap())
    }
}

#[test]
fn no_run_takes_more_than_it_may() {
    let card = Card::new();
    for (direction, size, frames, limit, exact) in [
        ("decode", "1280x720", 17, 6, true),
        ("decode", "1280x720", 17, 4, true),
        ("decode", "1920x1080", 17, 12, true),
        ("decode", "3840x2160", 5, 15, true),
        ("encode", "1920x1080", 17, 6, true),
        ("encode", "1920x1080", 17, 5, false),
    ] {
        let words = format!("bench vae {direction} --size {size} --frames {frames} --max-vram {limit}G --repeat 1");
        let (outcome, most) = card.run(&words);
        assert!(most <= limit << 30, "{words}: {most} bytes");
        assert_eq!(!outcome.stderr.contains("which is not exact"), exact, "{words}: {}", outcome.stderr);
    }
}

#[test]
fn a_run_takes_what_was_foretold() {
    let card = Card::new();
    card.0.input("in", &Tensor::uniform(&[3, 16, 30, 40]));
    let (foretold, _) = card.run("estimate vae decode --size 320x240 --frames 9");
    let event = &foretold.events()[0];
    let number = |key: &str| event[key].as_u64().unwrap();
    let foretold = CONTEXT + number("weights_bytes") + number("peak_above_weights_bytes");
    let (_, taken) = card.run("vae decode in out --weights formula:full");
    let ratio = taken as f64 / foretold as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{taken} bytes taken, {foretold} foretold");
}
