//! `--max-vram`: what a run takes of a card, seen by a driver that counts memory and computes nothing.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::Tensor;
use common::card::Card;
use reseed_media::Size;

/// What the driver takes for itself.
const CONTEXT: u64 = 560 << 20;

#[test]
fn a_card_is_used_where_there_is_one() {
    let (card, words) = (Card::new(), "estimate vae decode --weights formula:tiny --size 64x64 --frames 5");
    let taken = |outcome: common::Outcome| outcome.events()[0]["card_peak_bytes"].as_u64();
    assert!(taken(common::outcome(card.beside(words))).is_some_and(|bytes| bytes > CONTEXT));
    assert_eq!(taken(common::outcome(card.beside(&format!("{words} --device cpu")))), None);
    assert_eq!(taken(card.0.succeed(&format!("{words} --json"))), None);
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
        ("encode", "1920x1080", 17, 5, true),
        ("encode", "1920x1080", 17, 4, false),
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
    let (estimated, _) = card.run("estimate vae decode --size 320x240 --frames 9");
    let event = &estimated.events()[0];
    let number = |key: &str| event[key].as_u64().unwrap();
    let estimated = CONTEXT + number("weights_bytes") + number("peak_above_weights_bytes");
    // A bench too has the half that it times alone on the card.
    for words in ["vae decode in out --weights formula:full", "bench vae decode --size 320x240 --frames 9 --repeat 1"] {
        let (_, taken) = card.run(words);
        let ratio = taken as f64 / estimated as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{words}: {taken} bytes taken, {estimated} estimated");
    }
}

#[test]
fn what_waits_outside_a_card_is_pinned_or_that_is_said() {
    let card = Card::new();
    let run = |pins: &str| {
        let mut command =
            card.command("bench vae decode --weights formula:tiny --dtype bf16 --size 64x64 --frames 5 --repeat 1");
        command.env("RESEED_STUB_PINS", pins);
        common::outcome(command)
    };
    for pins in ["ours", "refused"] {
        let outcome = run(pins);
        assert_eq!(outcome.code, Some(0), "{pins}: {}", outcome.stderr);
    }
    let none = run("none");
    assert_eq!(none.code, Some(5), "{}", none.stderr);
    assert!(none.stderr.contains("the host has not"), "{}", none.stderr);
}

/// The whole model at full size, in windows where that is faster: what is taken is what was estimated, and no more.
#[test]
fn jobs_take_what_they_may_and_what_was_foretold() {
    let card = Card::new();
    card.0.film("in.y4m", Size { h: 180, w: 320 }, 17);
    let mut in_turns = 0;
    for (model, limit) in [("3b", 6), ("3b", 8), ("7b", 8)] {
        let job = format!("--model formula:{model} --size 1280x720 --batch-size 17 --color none --max-vram {limit}G");
        let (estimated, _) = card.run(&format!("estimate upscale in.y4m {job}"));
        let estimated = &estimated.events()[0];
        in_turns += usize::from(estimated["swapped"] == true);
        let (outcome, most) = card.run(&format!("bench upscale --from 320x180 --batches 2 {job}"));
        assert!(most <= limit << 30, "{job}: {most} bytes");
        assert!(!outcome.stderr.contains("which is not exact"), "{job}: {}", outcome.stderr);
        let done = outcome.events().pop().unwrap();
        for same in ["swapped", "window", "layers", "resident_layers"] {
            assert_eq!(done[same], estimated[same], "{job}: {same}");
        }
        let ratio = most as f64 / estimated["device_bytes"].as_f64().unwrap();
        assert!((ratio - 1.0).abs() < 0.05, "{job}: {most} bytes taken, {estimated}");
    }
    assert!(in_turns > 0, "no budget is so small that networks take turns");
}

/// Memory that the first step asks for beside what was reserved: what depends on the size of the latent.
const IN_STEP: u64 = 12;

#[test]
fn a_job_goes_on_when_others_take_the_memory() {
    let card = Card::new();
    card.0.film("in.y4m", Size { h: 90, w: 160 }, 7);
    // While weights are loaded and when tensors get their memory there must be some left; a job has its own.
    for (vram, left, in_job) in [("--max-vram 1G", 350, false), ("--max-vram 1G", 0, true), ("", 0, true)] {
        let job =
            format!("upscale in.y4m out.y4m --overwrite --model formula:tiny --size 1280x720 --color none {vram}");
        let (whole, _, asked) = card.run_beside(&job, (0, 0));
        assert_eq!(whole.code, Some(0), "{}", whole.stderr);
        let bytes = || fs::metadata(card.0.path("out.y4m")).unwrap().len();
        let length = bytes();
        let (loading, step) = (asked - IN_STEP, asked - IN_STEP + 1);
        for when in if in_job { [step, step + 5, asked] } else { [loading / 3, loading - 1, loading] } {
            let (outcome, ..) = card.run_beside(&job, (when, left));
            assert_eq!(outcome.code, Some(0), "thief at {when} of {asked}: {}", outcome.stderr);
            assert_eq!(bytes(), length, "thief at {when} of {asked}");
            let told = outcome.stderr.contains("less memory than there was");
            assert_eq!(told, in_job, "thief at {when} of {asked}: {}", outcome.stderr);
        }
    }
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
