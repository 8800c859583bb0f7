//! Golden tests of batching, cross-fades and noised conditions, and properties of batching and joining.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use reseed::internals::batch::{Batch, Batcher, End, extend};
use reseed::internals::join::{JoinedSlice, Joiner};
use reseed::internals::noise::noised;
use reseed::{Batching, Latent, Overlap};
use reseed_ops::{FrameValues, Thw};
use reseed_testing::pipeline::{PipelineGolden, distance, json, number, numbers};

/// The batches of these shots.
fn batches(plan: Batching, shots: &[Vec<usize>]) -> Vec<Batch<usize>> {
    let mut batcher = Batcher::new(plan);
    let mut batches = Vec::new();
    for shot in shots {
        batches.extend(shot.iter().filter_map(|frame| batcher.push(*frame)));
        batches.extend(batcher.end_shot());
    }
    batches
}

#[test]
fn padding_of_clips_matches_the_golden_file() {
    let cases = json("plans.json");
    for case in cases["padding"].as_array().unwrap() {
        let clip: Vec<usize> = (0..number(&case["t"])).collect();
        let end = if case["where"] == "front" { End::Front } else { End::Back };
        assert_eq!(extend(&clip, number(&case["k"]), end), numbers(&case["frames"]), "{case}");
    }
}

#[test]
fn batches_of_clips_match_the_golden_file() {
    let cases = json("plans.json");
    let cases = cases["plans"].as_array().unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let (size, overlap) = (number(&case["batch_size"]), number(&case["overlap"]));
        let plan = Batching { size, overlap, uniform: case["uniform"].as_bool().unwrap() };
        assert_eq!(plan.shared(), number(&case["overlap_used"]));
        let frames: Vec<usize> = (0..number(&case["frames"])).collect();
        let clip = extend(&frames, number(&case["prepend"]), End::Front);
        let got = batches(plan, &[clip]);
        let want = case["batches"].as_array().unwrap();
        assert_eq!(got.len(), want.len(), "{case}");
        let mut written = 0;
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_eq!((got.number, &got.seen), (i, &numbers(&want["frames"])), "{case}");
            assert_eq!(got.frames.len(), number(&want["length"]), "{case}");
            let next = written + got.frames.len() - got.shared;
            assert_eq!(vec![written, next], numbers(&want["write"]), "{case}");
            written = next;
        }
    }
}

#[test]
fn cross_fade_weights_match_the_golden_file() {
    let cases = json("plans.json");
    for (name, mode) in [("smooth", Overlap::Smooth), ("reference", Overlap::Reference)] {
        for (shared, want) in cases["weights"][name].as_object().unwrap() {
            let got = mode.weights(shared.parse().unwrap());
            let want: Vec<f32> = want.as_array().unwrap().iter().map(|w| w.as_f64().unwrap() as f32).collect();
            assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= f32::EPSILON), "{name} {shared}: {got:?}");
            assert_eq!(got.len(), want.len());
        }
    }
}

#[test]
fn joined_batches_match_the_golden_files() {
    for name in ["cut", "smooth_1", "smooth_2", "smooth_5", "reference_1", "reference_2", "reference_3", "reference_8"]
    {
        let golden = PipelineGolden::open(&format!("join_{name}"));
        let shared = number(&golden.case["overlap"]);
        let mode = if golden.case["mode"] == "smooth" { Overlap::Smooth } else { Overlap::Reference };
        let mut joiner = Joiner::new(mode, shared);
        let parts = (0..).map(|k| format!("part{k}")).take_while(|part| golden.tensors.contains_key(part));
        let mut slices: Vec<JoinedSlice<()>> = Vec::new();
        for (k, part) in parts.enumerate() {
            let frames = golden.frame_values(&part).into_iter().map(FrameValues::Host).collect();
            slices.extend(joiner.add(frames, if k == 0 { 0 } else { shared }, ()).unwrap());
        }
        slices.extend(joiner.finish());
        let frames = slices.into_iter().flat_map(|slice| slice.frames);
        let got: Vec<Vec<f32>> = frames.map(|frame| frame.fetch().unwrap()).collect();
        // Values are up to 1.8. Both implementations round two products, their sum and the weights.
        let error = distance(&got, &golden.frame_values("output")).max;
        assert!(error <= 2.0 * 4.0 * 1.8 * f64::from(f32::EPSILON) / 2.0, "{name}: {error:.2e}");
    }
}

#[test]
fn noised_conditions_match_the_golden_files() {
    for name in ["image", "clip"] {
        let golden = PipelineGolden::open(&format!("condition_{name}"));
        let latent = |name: &str| {
            let dims = &golden.tensor(name).dims;
            Latent { thw: Thw::new(dims[0], dims[2], dims[3]), values: golden.frame_values(name).concat() }
        };
        let scale = golden.case["scale"].as_f64().unwrap() as f32;
        let got = noised(&latent("latent"), &latent("noise"), &latent("second_noise"), scale);
        let error = distance(&[got.values], &[latent("output").values]).max;
        // Values are up to 1.8. Both implementations round the timestep, three products and two sums.
        assert!(error <= 2.0 * 6.0 * 1.8 * f64::from(f32::EPSILON) / 2.0, "{name}: {error:.2e}");
    }
}

proptest! {
    #[test]
    fn every_frame_is_written_once_and_no_batch_crosses_a_cut(
        lengths in prop::collection::vec(1usize..30, 1..5),
        size in 1usize..14,
        overlap in 0usize..15,
        uniform: bool,
    ) {
        let mut next = 0..;
        let shots: Vec<Vec<usize>> = lengths.iter().map(|n| next.by_ref().take(*n).collect()).collect();
        let plan = Batching { size, overlap, uniform };
        let mut written = Vec::new();
        for batch in batches(plan, &shots) {
            prop_assert_eq!(batch.seen.len() % 4, 1);
            prop_assert_eq!(&batch.seen[..batch.frames.len()], &batch.frames[..]);
            let shot = shots.iter().find(|shot| shot.contains(&batch.frames[0])).unwrap();
            prop_assert!(batch.seen.iter().all(|frame| shot.contains(frame)));
            written.extend_from_slice(&batch.frames[batch.shared..]);
        }
        prop_assert_eq!(written, shots.concat());
    }

    /// Also with an overlap that spans several batches.
    #[test]
    fn a_joiner_returns_every_frame_once_and_holds_less_than_two_batches(
        length in 1usize..40,
        size in 1usize..14,
        overlap in 0usize..14,
    ) {
        let plan = Batching { size, overlap, uniform: false };
        let mut joiner = Joiner::new(Overlap::Smooth, plan.shared());
        let (mut written, mut added, mut returned) = (Vec::new(), 0, 0);
        for batch in batches(plan, &[(0..length).collect()]) {
            let fresh = batch.frames[batch.shared..].to_vec();
            added += fresh.len();
            let frames = batch.frames.iter().map(|frame| FrameValues::Host(vec![*frame as f32])).collect();
            let slices = joiner.add(frames, batch.shared, fresh).unwrap();
            returned += slices.iter().map(|slice| slice.frames.len()).sum::<usize>();
            prop_assert!(added - returned < 2 * size);
            written.extend(slices);
        }
        written.extend(joiner.finish());
        let mut next = 0;
        for slice in written {
            for (values, frame) in slice.frames.into_iter().zip(&slice.payload) {
                prop_assert_eq!(*frame, next);
                // A cross-fade of equal values changes them by rounding only.
                prop_assert!((values.fetch().unwrap()[0] - *frame as f32).abs() <= 1e-5);
                next += 1;
            }
        }
        prop_assert_eq!(next, length);
    }
}
