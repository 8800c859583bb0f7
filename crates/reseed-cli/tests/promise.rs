//! `--max-vram`: what a run takes of a card, seen by a driver that counts memory and computes nothing.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod common;

use common::Tensor;
use common::card::Card;

/// What the driver takes for itself.
const CONTEXT: u64 = 560 << 20;

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

#[test]
fn few_bits_take_the_room_of_few_bits() {
    let card = Card::new();
    let run = |model: &str| card.run(&format!("bench dit --model {model} --layers 2 --latent 1x16x16 --repeat 1"));
    let ((_, wide), (few, taken)) = (run("formula:7b"), run("formula:7b-q4"));
    // A 7B network's first layer and its last, whose text ends at attention.
    let values = 3 * 113_246_208 + 9216 * 3072;
    let (floats, bits) = (2 * values, values / 256 * 144);
    // The largest matrix is there in floats while it is used.
    let most = wide - floats + bits + 2 * 12288 * 3072;
    assert!(taken <= most + (64 << 20), "{taken} bytes for few bits, {wide} for floats, {most} expected");
    assert_eq!(few.events()[0]["card_peak_bytes"].as_u64(), Some(taken));
}
