//! The VAE on the tracing device: shapes, arithmetic cost and memory.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::CpuOps;
use reseed_model::{Config, State, Vae};
use reseed_ops::{DType, Device, Hw, ProfileOps, Shape, TraceOps};
use reseed_testing::{Clip, Side, load};

fn trace() -> TraceOps {
    TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0))
}

/// Output shape of every slice.
fn shapes(ops: &dyn Device, vae: &Vae, side: Side, clip: &Clip, latents: &[usize]) -> Vec<Shape> {
    let mut state = State::new();
    let run = |slice| side.coder(vae).run(ops, clip.upload(ops, slice), &mut state).unwrap().shape();
    side.slices(&vae.config, latents).into_iter().map(run).collect()
}

#[test]
fn traced_shapes_equal_computed_shapes() {
    let (cpu, trace, config) = (CpuOps::new(DType::F32, Some(2)).unwrap(), trace(), Config::tiny());
    let (computed, traced) = (load(&cpu, &config), load(&trace, &config));
    for side in Side::BOTH {
        for plane in [Hw::new(1, 1), Hw::new(1, 3), Hw::new(5, 3)] {
            for latents in [&[1][..], &[2], &[1, 1], &[3], &[2, 1], &[4], &[1, 2, 1]] {
                let clip = side.input(&config, latents.iter().sum(), plane);
                let got = shapes(&trace, &traced, side, &clip, latents);
                assert_eq!(got, shapes(&cpu, &computed, side, &clip, latents), "{side:?} {plane} {latents:?}");
                // The output has the size that the coder declares.
                let frames: usize = got.iter().map(|shape| shape.dims()[0]).sum();
                let out = side.coder(&traced).plane_out(clip.plane);
                assert_eq!(frames, side.coder(&traced).frames_out(clip.t, true));
                assert!(got.iter().all(|shape| shape.dims()[1..3] == [out.h, out.w]));
            }
        }
    }
}

/// Multiplications by weights and multiplications in attention, per frame pixel, in the last of these slices.
fn multiplications(side: Side, latents: &[usize]) -> (f64, f64) {
    let (trace, config, plane) = (trace(), Config::full(), Hw::new(3, 5));
    let ops = ProfileOps::new(&trace);
    let vae = load(&ops, &config);
    let clip = side.input(&config, latents.iter().sum(), plane);
    let flops = |op: &dyn Fn(&str) -> bool| -> u64 {
        ops.records().unwrap().iter().filter(|record| op(record.op)).map(|record| record.cost.flops).sum()
    };
    let weighted = || flops(&|op| ["conv", "upsample", "linear"].contains(&op));
    let attention = || flops(&|op| op == "attention");
    let (mut state, mut before, mut frames) = (State::new(), (0, 0), 0);
    for slice in side.slices(&config, latents) {
        before = (weighted(), attention());
        frames = slice.len();
        let out = side.coder(&vae).run(&ops, clip.upload(&ops, slice), &mut state).unwrap();
        if side == Side::Decode {
            frames = out.thw().t;
        }
    }
    let pixels = (frames * plane.count() * config.spatial_factor() * config.spatial_factor()) as f64;
    let per_pixel = |flops: u64| flops as f64 / 2.0 / pixels;
    (per_pixel(weighted() - before.0), per_pixel(attention() - before.1))
}

/// Multiplications per frame pixel in the convolutions and linear layers of the published network.
const ENCODE_STEADY: usize = 4_461_376;
const DECODE_STEADY: usize = 11_776_992;
/// The same for an image: kernels are summed over the taps that read its frame, and no frame is computed to be dropped.
const ENCODE_IMAGE: usize = 2_066_048;
const DECODE_IMAGE: usize = 4_878_848;

/// The published upsamplers: channels, frame pixels per output pixel in steady state, and whether it doubles time.
const UPSAMPLERS: [(usize, usize, bool); 3] = [(512, 16 * 2, true), (512, 4, true), (256, 1, false)];

/// Multiplications saved by merged upsampling in steady state: 1x1x1 and 27 taps become 8 or 12 taps.
fn saved_steady() -> usize {
    let saved = |(c, share, time): (usize, usize, bool)| {
        let merged = if time { 8 } else { 12 };
        // The 1x1x1 convolution has c · c multiplications per output pixel.
        (1 + 27 - merged) * c * c / share
    };
    UPSAMPLERS.into_iter().map(saved).sum()
}

/// The same for an image: 1 + 9 taps become 4, in one frame.
fn saved_image() -> usize {
    let shares = [16, 4, 1];
    UPSAMPLERS.into_iter().zip(shares).map(|((c, ..), share)| (1 + 9 - 4) * c * c / share).sum()
}

#[test]
fn flops_match_the_published_layers() {
    for (side, steady, image) in [
        (Side::Encode, ENCODE_STEADY, ENCODE_IMAGE),
        (Side::Decode, DECODE_STEADY - saved_steady(), DECODE_IMAGE - saved_image()),
    ] {
        // Scores and weighted sums: two products of 512 channels with each of 15 tokens, per token of 64 pixels.
        let attention = (2 * 512 * 15) as f64 / 64.0;
        assert_eq!(multiplications(side, &[2, 1, 1]), (steady as f64, attention / 4.0), "{side:?}, steady");
        assert_eq!(multiplications(side, &[2, 3]), (steady as f64, attention / 4.0), "{side:?}, long slice");
        assert_eq!(multiplications(side, &[1]), (image as f64, attention), "{side:?}, image");
    }
    let mega = |macs: usize| (2 * macs) as f64 / 1e6;
    assert_eq!(format!("{:.2}", mega(DECODE_STEADY - saved_steady())), "18.51");
    assert_eq!(format!("{:.2}", mega(ENCODE_STEADY)), "8.92");
}

#[test]
fn memory_is_constant_over_the_clip_and_freed() {
    for side in Side::BOTH {
        let ops = trace();
        let vae = load(&ops, &Config::full());
        let clip = side.input(&vae.config, 31, Hw::new(2, 3));
        let (mut state, mut after) = (State::new(), Vec::new());
        let latents = [&[2][..], &[1; 29]].concat();
        for slice in side.slices(&vae.config, &latents) {
            side.coder(&vae).run(&ops, clip.upload(&ops, slice), &mut state).unwrap();
            let report = ops.report();
            assert_eq!(report.live, state.bytes(), "{side:?}: between slices only the caches are allocated");
            after.push((report.live, report.peak));
        }
        assert_eq!(after.len(), 30);
        assert_eq!(after[2], after[29], "{side:?}");
        assert!(after[2].1 > after[2].0 && after[2].0 > 0, "{side:?}");
        drop(state);
        assert_eq!(ops.report().live, 0, "{side:?}");
    }
}

// A state that ends with its slice stores no caches, which lowers the peak.
#[test]
fn an_image_uses_less_memory_than_the_first_frame_of_a_clip() {
    for side in Side::BOTH {
        let peak = |ends: bool| {
            let ops = trace();
            let vae = load(&ops, &Config::full());
            let mut state = State::new();
            if ends {
                state.end_with_next();
            }
            let clip = side.input(&vae.config, 1, Hw::new(8, 8));
            side.coder(&vae).run(&ops, clip.upload(&ops, 0..1), &mut state).unwrap();
            ops.report().peak
        };
        assert!(2 * peak(true) < peak(false), "{side:?}: {} of {}", peak(true), peak(false));
    }
}
