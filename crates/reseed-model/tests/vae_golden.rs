//! Golden tests of the VAE against outputs of the published implementation.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; errors are printed")]

use reseed_cpu::{CpuOps, Level};
use reseed_ops::{DType, Device, relative_error};
use reseed_testing::golden::{FULL, SMALL, VaeGolden, run_all};

fn check(ops: &dyn Device, names: &[&str], allowed: f64) {
    run_all(ops, names.iter().map(|name| VaeGolden::open(name)).collect(), |golden, result| {
        let (name, error) = (&golden.name, relative_error(&golden.output.values, &result));
        assert!(error <= allowed, "{name} on {}: relative error {error:.2e}, allowed {allowed:.2e}", ops.name());
        println!("{name} on {}: {error:.2e}", ops.name());
    });
}

#[test]
fn small_goldens_match_at_every_optimised_level() {
    for level in Level::available().filter(|level| *level != Level::Reference) {
        check(&CpuOps::at(level, DType::F32, None).unwrap(), SMALL, 1e-5);
    }
}

/// One encoder and one decoder; the long tests run all.
#[test]
fn a_small_clip_of_each_coder_matches_at_the_reference_level() {
    let clips = ["tiny_encode_5", "tiny_decode_5"];
    check(&CpuOps::at(Level::Reference, DType::F32, None).unwrap(), &clips, 1e-5);
}

#[test]
#[ignore = "takes minutes; run `just long-tests`"]
fn small_goldens_match_at_the_reference_level() {
    check(&CpuOps::at(Level::Reference, DType::F32, None).unwrap(), SMALL, 1e-5);
}

#[test]
fn full_size_goldens_match_at_the_best_level() {
    check(&CpuOps::new(DType::F32, None).unwrap(), FULL, 3e-5);
}

#[test]
#[ignore = "takes minutes; run `just long-tests`"]
fn full_size_goldens_match_at_the_reference_level() {
    check(&CpuOps::at(Level::Reference, DType::F32, None).unwrap(), FULL, 3e-5);
}

#[test]
fn full_size_goldens_in_bf16_reach_40_decibels() {
    let ops = CpuOps::new(DType::Bf16, None).unwrap();
    run_all(&ops, FULL.iter().map(|name| VaeGolden::open(name)).collect(), |golden, result| {
        let name = &golden.name;
        let square = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
        let mean = golden.output.values.iter().zip(&result).map(square).sum::<f64>() / result.len() as f64;
        // Frames and latents have a range of four.
        let decibels = 20.0 * (4.0 / mean.sqrt()).log10();
        println!("{name} on {}: {decibels:.1} dB", ops.name());
        assert!(decibels >= 40.0, "{name} on {}: {decibels:.1} dB", ops.name());
    });
}
