//! Slices, threads and workers do not change the result.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use proptest::prelude::*;
use reseed_cpu::CpuOps;
use reseed_model::plan::{CachePlan, Tiling};
use reseed_model::{Config, State, Stream, Vae};
use reseed_ops::{DType, Hw, relative_error};
use reseed_testing::{Clip, Side, load, run_slices, step};

fn cpu(threads: usize) -> CpuOps {
    CpuOps::new(DType::F32, Some(threads)).unwrap()
}

/// Levels wider than a panel of output channels, with groups across panels: work is also split along channels.
fn wide() -> Config {
    let mut config = Config::with_channels(&[40, 72], 2);
    config.temporal_stages = 1;
    config
}

/// No attention, one residual block per level, one group.
fn reduced() -> Config {
    Config { layers: 1, decoder_layers: 1, attention: false, ..Config::with_channels(&[6, 10, 16, 16], 1) }
}

/// Bound on the relative difference of two runs with different orders of summation.
///
/// A sum of n terms of equal magnitude in f32 rounds partial sums that grow like √k, each with a relative error of
/// ε/√12. The relative error of the sum is ε·√(n/24). The errors of consecutive sums and of the two runs are
/// independent. The bound is one standard deviation for all sums in sequence. Residual connections keep the actual
/// error far below it.
fn allowed(config: &Config) -> f64 {
    let widest = *config.channels.iter().max().unwrap();
    let sum = f64::from(f32::EPSILON) * (27.0 * widest as f64 / 24.0).sqrt();
    // Two sums per residual block of the decoder, the mid block, the resampling layers, the first and the last layer.
    let levels = config.channels.len();
    let sums = 2 * levels * config.decoder_layers + 6 + (levels - 1) + 2;
    (2.0 * sums as f64).sqrt() * sum
}

/// Slices of a clip of `latents` frames. Bit `i` of `cuts` ends a slice after frame `i`.
fn partition(latents: usize, cuts: usize) -> Vec<usize> {
    let mut slices = vec![0];
    for i in 0..latents {
        *slices.last_mut().unwrap() += 1;
        if i + 1 < latents && cuts >> i & 1 == 1 {
            slices.push(0);
        }
    }
    slices
}

/// Relative difference between a clip in slices and the whole clip.
fn difference(ops: &CpuOps, vae: &Vae, side: Side, slices: &[usize], plane: Hw) -> f64 {
    let latents = slices.iter().sum();
    let clip = side.input(&vae.config, latents, plane);
    let whole = run_slices(ops, vae, side, &clip, &[latents]);
    let sliced = run_slices(ops, vae, side, &clip, slices);
    assert_eq!(whole.len(), sliced.len(), "{side:?} {slices:?}");
    relative_error(&whole, &sliced)
}

#[test]
fn any_slicing_equals_the_whole_clip() {
    let ops = cpu(2);
    let vae = load(&ops, &Config::tiny());
    let allowed = allowed(&vae.config);
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let case = (1usize..=6, 0usize..32, 1usize..=4, 1usize..=5, any::<bool>());
    proptest!(config, |((latents, cuts, h, w, encode) in case)| {
        let side = if encode { Side::Encode } else { Side::Decode };
        let error = difference(&ops, &vae, side, &partition(latents, cuts), Hw::new(h, w));
        prop_assert!(error <= allowed, "{side:?}: {error:.2e}, allowed {allowed:.2e}");
    });
}

// The cache after the first frame of a clip is special: temporal upsamplers make one frame of it instead of two.
#[test]
fn slices_after_a_first_slice_of_one_frame_equal_the_whole_clip() {
    let ops = cpu(2);
    let vae = load(&ops, &Config::tiny());
    let allowed = allowed(&vae.config);
    for side in Side::BOTH {
        for slices in [&[1, 1][..], &[1, 2], &[1, 1, 1, 1], &[1, 3, 1]] {
            for plane in [Hw::new(1, 1), Hw::new(3, 5)] {
                let error = difference(&ops, &vae, side, slices, plane);
                assert!(error <= allowed, "{side:?} {slices:?} {plane}: {error:.2e}, allowed {allowed:.2e}");
            }
        }
    }
}

#[test]
fn a_new_state_starts_a_new_clip() {
    let ops = cpu(2);
    let vae = load(&ops, &Config::tiny());
    for side in Side::BOTH {
        let (shot, next) = (side.input(&vae.config, 3, Hw::new(3, 5)), side.input(&vae.config, 2, Hw::new(3, 5)));
        let fresh = run_slices(&cpu(2), &vae, side, &next, &[2]);
        let mut state = State::new();
        step(&ops, side.coder(&vae), &shot, 0..shot.t, &mut state);
        let continued = step(&ops, side.coder(&vae), &next, 0..next.t - 1, &mut state);
        state = State::new();
        assert_eq!(step(&ops, side.coder(&vae), &next, 0..next.t, &mut state), fresh, "{side:?}");
        assert_ne!(continued[..], fresh[..continued.len()], "{side:?}: the cache must change the result");
    }
}

// Ops reuse buffers without clearing them: a second run starts with the contents of the first.
#[test]
fn repeated_runs_give_identical_results() {
    let ops = cpu(2);
    let vae = load(&ops, &Config::tiny());
    for side in Side::BOTH {
        let clip = side.input(&vae.config, 4, Hw::new(3, 5));
        let first = run_slices(&ops, &vae, side, &clip, &[2, 1, 1]);
        run_slices(&ops, &vae, side, &side.input(&vae.config, 3, Hw::new(4, 4)), &[3]);
        assert_eq!(run_slices(&ops, &vae, side, &clip, &[2, 1, 1]), first, "{side:?}");
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (one, two, five) = (cpu(1), cpu(2), cpu(5));
    for config in [Config::tiny(), wide(), reduced()] {
        let vae = load(&one, &config);
        for side in Side::BOTH {
            let clip = side.input(&config, 3, Hw::new(3, 5));
            let single = run_slices(&one, &vae, side, &clip, &[2, 1]);
            for ops in [&two, &five] {
                let parallel = run_slices(ops, &vae, side, &clip, &[2, 1]);
                assert!(parallel == single, "{side:?} of {:?} on {} threads", config.channels, ops.threads());
            }
        }
    }
}

fn tiled(ops: &CpuOps, vae: &Vae, side: Side, clip: &Clip, workers: usize) -> Vec<f32> {
    let tiling = Tiling { tile: Hw::new(32, 24), overlap: Hw::new(8, 8) };
    let tiles = tiling.tiles(side.cut(), clip.plane, vae.config.spatial_factor()).unwrap();
    assert!(!tiles.len().is_multiple_of(3), "the last tiles must not fill all workers");
    let mut stream = Stream::new(ops, side.coder(vae), clip.plane, &CachePlan::default()).tiled(Some(tiles), workers);
    let slices = side.slices(&vae.config, &[1, 2]);
    slices.into_iter().flat_map(|s| stream.step(clip.frames(s.clone()), s.end == clip.t).unwrap()).collect()
}

#[test]
fn results_do_not_depend_on_the_number_of_workers() {
    let ops = cpu(2);
    let vae = load(&ops, &Config::tiny());
    for side in Side::BOTH {
        let clip = side.input(&vae.config, 3, Hw::new(7, 5));
        let single = tiled(&ops, &vae, side, &clip, 1);
        for workers in [2, 3, 100] {
            assert!(tiled(&ops, &vae, side, &clip, workers) == single, "{side:?} with {workers} workers");
        }
    }
}

#[test]
fn marking_the_last_slice_frees_the_caches_and_keeps_the_result() {
    let ops = cpu(2);
    let vae = load(&ops, &Config::tiny());
    for side in Side::BOTH {
        for latents in [&[1][..], &[3], &[1, 2], &[2, 1, 1]] {
            let clip = side.input(&vae.config, latents.iter().sum(), Hw::new(3, 2));
            let mut state = State::new();
            let mut ended = Vec::new();
            for slice in side.slices(&vae.config, latents) {
                if slice.end == clip.t {
                    state.end_with_next();
                }
                ended.extend(step(&ops, side.coder(&vae), &clip, slice, &mut state));
            }
            assert_eq!(ended, run_slices(&ops, &vae, side, &clip, latents), "{side:?} {latents:?}");
            assert_eq!(state.bytes(), 0, "{side:?} {latents:?}");
        }
    }
}
