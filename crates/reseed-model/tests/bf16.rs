//! In bf16 the model is off by what its roundings explain, no more and no less.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Golden, SMALL};
use reseed_model::{Config, Vae};
use reseed_ops::{CpuOps, DType, relative_error};

/// Roundings to bf16 on the longest path, those of weights included.
fn roundings(config: &Config, encode: bool, tiled: bool) -> usize {
    let levels = config.channels.len();
    let blocks = 2 + levels * if encode { config.layers } else { config.decoder_layers };
    let input = 1;
    let conv = 2; // the kernel and the output
    let norm = 1;
    let attention = norm + 2 * conv + 1; // two linear layers around it, and itself
    let blending = if tiled { 4 } else { 0 }; // a pixel lies in four tiles at most
    input + conv + blocks * 2 * (norm + conv) + attention + (levels - 1) * conv + norm + conv + blending
}

#[test]
fn goldens_in_bf16_are_off_by_their_roundings() {
    let ops = CpuOps::new(DType::Bf16, Some(2)).unwrap();
    // A rounding moves a value by up to half a step, each amount as likely as the next: 1/√3 of that on average.
    let one = f64::from(DType::Bf16.rounding()) / 3f64.sqrt();
    let mut loaded: Option<(Config, Vae)> = None;
    for name in SMALL {
        let golden = Golden::open(name);
        let vae = match loaded.take() {
            Some((config, vae)) if config == golden.config => vae,
            _ => Vae::load(&ops, &golden.source()).unwrap(),
        };
        let error = relative_error(&golden.output.values, &golden.run(&ops, &vae, 1, 2));
        // Roundings are independent of each other; a norm between any two keeps them from growing.
        let allowed = (roundings(&golden.config, golden.encode, golden.tiling.is_some()) as f64).sqrt() * one;
        assert!(error <= allowed, "{name}: relative error {error:.2e}, allowed {allowed:.2e}");
        // The output alone was rounded once, which values just below a power of two show half as much; a run that shows
        // less was not in bf16.
        assert!(error >= one / 2.0, "{name}: relative error {error:.2e} is too good for bf16");
        loaded = Some((golden.config, vae));
    }
}
