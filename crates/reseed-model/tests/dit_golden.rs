//! DitGolden tests of the transformer against outputs of the published implementation.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; errors are printed")]

use reseed_cpu::{CpuOps, Level};
use reseed_model::Dit;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{DType, MathMode, Precision, relative_error};
use reseed_testing::distant::Distant;
use reseed_testing::golden::dit::{DitGolden, NAMES, allowed, allowed_int8};
use reseed_testing::golden::golden_path;

fn check(level: Level, names: &[&str]) {
    let ops = CpuOps::at(level, DType::F32, None).unwrap();
    for name in names {
        let golden = DitGolden::open(name);
        let dit = Dit::load(&ops, &golden.source()).unwrap();
        assert_eq!(dit.config, golden.config);
        let error = relative_error(&golden.output.values, &golden.run(&ops, &dit));
        let allowed = allowed(Precision::F32);
        println!("{name} at {level}: {error:.2e}");
        assert!(error <= allowed, "{name} at {level}: relative error {error:.2e}, allowed {allowed:.2e}");
    }
}

#[test]
fn all_goldens_match_at_every_optimised_level() {
    Level::available().filter(|&level| level != Level::Reference).for_each(|level| check(level, NAMES));
}

/// One clip of each layout; the long tests run all.
#[test]
fn a_clip_of_each_layout_matches_at_the_reference_level() {
    check(Level::Reference, &["3b_clip_5", "7b_clip_5"]);
}

#[test]
#[ignore = "takes minutes; run `just long-tests`"]
fn all_goldens_match_at_the_reference_level() {
    check(Level::Reference, NAMES);
}

/// With products of 8-bit integers; other products are f32, so that their error is not hidden by roundings.
fn check_int8(names: &[&str]) {
    let cpu = CpuOps::new(DType::F32, None).unwrap().with_math(MathMode::Fast);
    for name in names {
        let golden = DitGolden::open(name);
        let result = golden.run(&cpu, &Dit::load(&cpu, &golden.source()).unwrap());
        let (error, allowed) = (relative_error(&golden.output.values, &result), allowed_int8(Precision::F32));
        println!("{name}: {error:.2e}");
        // An error below that of bf16 would mean that nothing was rounded.
        assert!((1e-3..=allowed).contains(&error), "{name}: relative error {error:.2e}, allowed {allowed:.2e}");
    }
}

#[test]
fn a_clip_of_each_layout_matches_with_8_bit_products() {
    check_int8(&["3b_clip_5", "7b_clip_5"]);
}

#[test]
#[ignore = "takes a minute; run `just long-tests`"]
fn all_goldens_match_with_8_bit_products() {
    check_int8(NAMES);
}

/// Compares the input projections and the outputs of every layer.
#[test]
fn outputs_of_every_layer_match() {
    let cpu = CpuOps::new(DType::F32, None).unwrap();
    for name in ["3b_clip_5", "7b_clip_5"] {
        let (golden, ops) = (DitGolden::open(name), Distant::new(&cpu));
        golden.run(&ops, &Dit::load(&ops, &golden.source()).unwrap());
        let results = std::mem::take(&mut ops.log().results);
        let of = |stage: &str, op: &str| -> Vec<Vec<f32>> {
            let found = results.iter().filter(|(s, o, _)| (s.as_str(), *o) == (stage, op));
            found.map(|(_, _, values)| values.clone()).collect()
        };
        let taps = Safetensors::open(&golden_path("dit", &format!("{name}_taps"))).unwrap();
        let mut seen = vec![("vid_in".to_string(), of("in", "linear").swap_remove(0))];
        seen.push(("txt_in".to_string(), of("in", "linear").swap_remove(1)));
        for layer in 0..golden.config.layers {
            // Text comes first. The last layer has no text output.
            let mut gates = of(&format!("blocks.{layer}"), "gated_add");
            seen.push((format!("block{layer}.vid"), gates.pop().unwrap()));
            if layer + 1 < golden.config.layers {
                seen.push((format!("block{layer}.txt"), gates.swap_remove(1)));
            }
        }
        for (tap, values) in &seen {
            let error = relative_error(&taps.read(tap).unwrap(), values);
            let allowed = allowed(Precision::F32);
            println!("{name} {tap}: {error:.2e}");
            assert!(error <= allowed, "{name} {tap}: relative error {error:.2e}, allowed {allowed:.2e}");
        }
        let stored = taps.shapes().keys().filter(|tap| *tap != "time");
        assert!(stored.eq(seen.iter().map(|(tap, _)| tap).collect::<std::collections::BTreeSet<_>>()));
    }
}
