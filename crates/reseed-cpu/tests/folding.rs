//! At the start of a clip several taps read the same frame. All levels but the reference sum the kernels of these taps
//! first. With integers the result must be exact, up to the roundings of Winograd F(4,3).
#![allow(clippy::unwrap_used, reason = "a test stops at the first error")]

use reseed_cpu::{CpuOps, Level};
use reseed_ops::conformance::Values;
use reseed_ops::reference::{self, Clip, taps_first};
use reseed_ops::{
    ConvData, ConvSpec, DType, Device, Epilogue, Ops, Shape, TemporalCache, Tensor, Thw, Transfer, UpsampleData,
    UpsampleSpec,
};

/// Integers from -2 to 2. Sums of their products are exact in f32, and sums of kernels are exact in bf16.
fn integers(seed: u64, count: usize) -> Vec<f32> {
    Values::new(seed).take(count).into_iter().map(|v| (2.5 * v).round_ties_even().clamp(-2.0, 2.0)).collect()
}

fn cube(c_in: usize, c_out: usize) -> ConvSpec {
    ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3))
}

fn halving(c: usize) -> ConvSpec {
    ConvSpec { stride: Thw::new(2, 2, 2), pad_before: 0, pad_after: 1, ..cube(c, c) }
}

#[test]
fn the_first_frames_of_a_clip_need_fewer_taps() {
    let (c_in, c_out) = (4, 5);
    for spec in [cube(c_in, c_out), ConvSpec { c_out, ..halving(c_in) }] {
        let weight = taps_first(&Values::new(1).take(27 * c_in * c_out), c_in, c_out);
        let bias: Vec<f64> = Values::new(2).take(c_out).into_iter().map(f64::from).collect();
        let mut x = Clip::zeros(Thw::new(5, 3, 5), c_in);
        x.data = Values::new(3).take(x.data.len()).into_iter().map(f64::from).collect();
        let want = reference::conv(None, &x, &spec, &weight, &bias);

        // The convolution of one frame with the sum of some of the three temporal taps.
        let flat = ConvSpec { taps: Thw::new(1, 3, 3), stride: Thw { t: 1, ..spec.stride }, ..spec };
        let plane = |t: usize, kernels: &[usize], bias: &[f64]| {
            let (frame, size) = (x.data.len() / x.thw.t, weight.len() / 3);
            let sum = (0..size).map(|i| kernels.iter().map(|k| weight[k * size + i]).sum()).collect::<Vec<f64>>();
            let x = Clip { thw: Thw { t: 1, ..x.thw }, channels: c_in, data: x.data[t * frame..][..frame].to_vec() };
            reference::conv(None, &x, &flat, &sum, bias).data
        };
        let nothing = vec![0.0; c_out];
        let add = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f64>>();
        let first = plane(0, &[0, 1, 2], &bias);
        let second = match spec.stride.t {
            1 => add(plane(0, &[0, 1], &bias), plane(1, &[2], &nothing)),
            _ => add(add(plane(0, &[0], &bias), plane(1, &[1], &nothing)), plane(2, &[2], &nothing)),
        };
        let folded = [first, second].concat();
        let error = want.data.iter().zip(&folded).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
        // Two sums of n terms below 1. The error of each is at most n roundings of n.
        let terms = (27 * c_in + 1) as f64;
        let allowed = 2.0 * terms * terms * f64::EPSILON / 2.0;
        assert!(error <= allowed, "{spec:?}: {error:e}, allowed {allowed:e}");
        assert_eq!((spec.folded(0), spec.folded(1)), (3, 3 - spec.stride.t));
    }
}

/// Calls `check` with the reference and every other level of this machine, for f32 and bf16.
fn for_each_level(check: impl Fn(&CpuOps, &CpuOps)) {
    for dtype in [DType::F32, DType::Bf16] {
        let reference = CpuOps::at(Level::Reference, dtype, Some(2)).unwrap();
        for level in Level::available().filter(|&level| level != Level::Reference) {
            check(&reference, &CpuOps::at(level, dtype, Some(2)).unwrap());
        }
    }
}

fn clip(ops: &CpuOps, thw: Thw, channels: usize) -> Tensor {
    let shape = Shape::clip(thw, channels);
    ops.upload(shape, &integers(thw.t as u64, shape.count())).unwrap()
}

/// How far a result may be from the exact one. Winograd F(4,3) executes half the products, or a quarter over both axes,
/// and rounds: a wrong frame is off by one or more, and a tie of bf16 by one of its steps.
fn slack(executed: f32, dtype: DType, exact: f32) -> f32 {
    match (executed <= 0.5, dtype) {
        (false, _) => 0.0,
        (true, DType::F32) => 0.01,
        (true, _) => 0.01 + exact.abs() / 128.0,
    }
}

#[test]
fn a_folded_convolution_of_integers_is_exact_at_every_level() {
    for_each_level(|reference, device| {
        for spec in [cube(3, 5), cube(40, 35), cube(64, 96), halving(12), ConvSpec::same(7, 9, Thw::new(1, 1, 1))] {
            for t in [1, 3, 5] {
                let run = |ops: &CpuOps| {
                    let weight = integers(7, spec.c_in * spec.c_out * spec.taps.count());
                    let read = || Ok(ConvData { weight: weight.clone(), bias: integers(8, spec.c_out) });
                    let conv = ops.conv_weights(spec, &read).unwrap();
                    let x = clip(ops, Thw::new(t, 5, 7), spec.c_in);
                    let y = ops.conv(TemporalCache::Start, &x, &conv, Epilogue::default()).unwrap().tensor;
                    (ops.download(&y).unwrap(), conv.executed)
                };
                let ((want, _), (found, executed)) = (run(reference), run(device));
                for (want, found) in want.into_iter().zip(found) {
                    let off = (found - want).abs();
                    let name = device.name();
                    assert!(
                        off <= slack(executed, device.dtype(), want),
                        "{spec:?}, {t} frames, {name}: {found}, not {want}"
                    );
                }
            }
        }
    });
}

/// The first frames of a clip need less scratch than later ones, and a new thread has none.
#[test]
fn a_new_thread_computes_what_a_used_one_does() {
    for_each_level(|_, device| {
        let one_thread = CpuOps::at(device.level(), device.dtype(), Some(1)).unwrap();
        for spec in [cube(16, 16), cube(64, 64)] {
            let read = || {
                let weight = integers(7, spec.c_in * spec.c_out * spec.taps.count());
                Ok(ConvData { weight, bias: integers(8, spec.c_out) })
            };
            let conv = one_thread.conv_weights(spec, &read).unwrap();
            let x = clip(&one_thread, Thw::new(5, 40, 48), spec.c_in);
            let run = || {
                let output = one_thread.conv(TemporalCache::Start, &x, &conv, Epilogue::default()).unwrap();
                one_thread.download(&output.tensor).unwrap()
            };
            assert!(run() == run(), "{spec:?}, {}", device.name());
        }
    });
}

#[test]
fn a_folded_upsampler_of_integers_is_exact_at_every_level() {
    for_each_level(|reference, device| {
        for (time, channels) in [(true, 5), (false, 5), (true, 35), (false, 35), (false, 136)] {
            let spec = UpsampleSpec { channels, time };
            for t in [1, 2, 4] {
                let run = |ops: &CpuOps| {
                    let upsample = ops.upsample_weights(spec, &|| Ok(upsampler(&spec))).unwrap();
                    let x = clip(ops, Thw::new(t, 3, 5), channels);
                    let first = ops.tail(None, x.frames(0, 1), spec.cached_frames()).unwrap();
                    let caches =
                        [TemporalCache::Start, TemporalCache::AfterFirst(&first), TemporalCache::Frames(&first)];
                    let run = |cache| ops.upsample(cache, &x, &upsample, None).unwrap().tensor;
                    caches.map(|cache| ops.download(&run(cache)).unwrap())
                };
                let (got, want) = (run(device), run(reference));
                for (case, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!(got == want, "{spec:?}, {t} frames, cache {case}, {}", device.name());
                }
            }
        }
    });
}

fn upsampler(spec: &UpsampleSpec) -> UpsampleData {
    // Sums over more channels between both convolutions would not be exact in bf16.
    const BETWEEN: usize = 35;
    let (c, wide) = (spec.channels, spec.phases() * spec.channels);
    let mut weight = integers(3, 27 * c * c);
    weight.chunks_exact_mut(27).enumerate().filter(|(i, _)| i % c >= BETWEEN).for_each(|(_, taps)| taps.fill(0.0));
    UpsampleData {
        upscale: ConvData { weight: integers(1, wide * c), bias: integers(2, wide) },
        conv: ConvData { weight, bias: integers(4, c) },
    }
}
