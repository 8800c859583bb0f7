//! The planner: plans fit their budget, estimates match runs, and no plan changes the result.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_cpu::CpuOps;
use reseed_model::plan::{CachePlan, InputPlan, slices};
use reseed_model::planner::{CoderPlan, CoderPlanner};
use reseed_model::{Coder, Config, Error, State, Stream, Vae};
use reseed_ops::{ConvOutput, DType, Hw, Shape, SpeedModel, TraceOps, relative_error};
use reseed_testing::device::OtherUpsample;
use reseed_testing::{Side, formula, load, run_slices, step};

const GIB: usize = 1 << 30;

fn device() -> TraceOps {
    TraceOps::new(DType::F16, DType::F16, Box::new(|_| 0))
}

/// The plan that decodes `frames` frames of this size within `budget`.
fn decode(plane: Hw, frames: usize, budget: usize) -> CoderPlan {
    decode_on(&device, plane, frames, budget)
}

fn decode_on(device: &dyn Fn() -> TraceOps, plane: Hw, frames: usize, budget: usize) -> CoderPlan {
    let vae = load(&device(), &Config::full());
    let plane = Hw::new(plane.h / 8, plane.w / 8);
    let planner = CoderPlanner { coder: &vae.decoder, temporal_factor: 1, plane, frames: 1 + (frames - 1) / 4 };
    planner.plan(device, None, budget).unwrap()
}

/// Memory of the weights and the driver on a GPU.
const OVERHEAD: usize = 940 << 20;

#[test]
fn caches_stay_on_the_device_when_they_fit() {
    let plan = decode(Hw::new(720, 1280), 17, 12 * GIB);
    assert!(plan.cache_plan.offloaded.is_empty() && plan.report.copied == 0, "{plan:?}");
    assert!(plan.report.arena <= 19 * GIB / 2, "{plan:?}");
}

#[test]
fn small_budgets_are_met_by_offloading() {
    let cases = [
        (Hw::new(720, 1280), 17, 6),
        (Hw::new(720, 1280), 17, 4),
        (Hw::new(1080, 1920), 17, 12),
        (Hw::new(1080, 1920), 17, 8),
        (Hw::new(2160, 3840), 5, 15),
    ];
    for (plane, frames, limit) in cases {
        let budget = limit * GIB - OVERHEAD;
        let plan = decode(plane, frames, budget);
        assert!(plan.report.arena <= budget && !plan.cache_plan.offloaded.is_empty(), "{plane:?} in {limit}: {plan:?}");
    }
}

// Kernels hide part of the copies; the rest is waiting time.
#[test]
fn offloading_costs_at_most_30_percent_at_moderate_budgets() {
    for (plane, limit) in [(Hw::new(720, 1280), 6), (Hw::new(1080, 1920), 12)] {
        let (unlimited, limited) = (decode(plane, 17, usize::MAX), decode(plane, 17, limit * GIB - OVERHEAD));
        assert!(
            limited.report.time * 10 <= unlimited.report.time * 13,
            "{plane:?} in {limit}: {limited:?}, unlimited {unlimited:?}"
        );
    }
}

// All chunks pass a layer before the next one. Those that wait are in host memory, so that no cache is streamed.
#[test]
fn offloaded_inputs_make_4k_fit_into_24_gib() {
    let plane = Hw::new(2160, 3840);
    let (unlimited, limited) = (decode(plane, 5, usize::MAX), decode(plane, 5, 24 * GIB - OVERHEAD));
    let CachePlan { streamed, offloaded_inputs, breadth_first, .. } = &limited.cache_plan;
    assert!(streamed.is_empty() && !offloaded_inputs.is_empty() && *breadth_first, "{limited:?}");
    assert!(limited.report.time * 10 <= unlimited.report.time * 14, "{limited:?}, unlimited {unlimited:?}");
}

// Measured speeds of an H200. Without offloaded inputs they are 105, 220, 106, 220, 427, 162 and 298.
#[test]
fn limited_decodes_on_an_h200_take_at_most_these_percentages_of_their_arithmetic() {
    let cases = [
        (Hw::new(720, 1280), 17, 6, 107),
        (Hw::new(720, 1280), 17, 4, 172),
        (Hw::new(1080, 1920), 17, 12, 108),
        (Hw::new(1080, 1920), 17, 8, 170),
        (Hw::new(2160, 3840), 5, 15, 400),
        (Hw::new(2160, 3840), 5, 24, 132),
        (Hw::new(2160, 3840), 21, 24, 220),
    ];
    for (plane, frames, limit, percent) in cases {
        let speed = SpeedModel { flops: 132 * 6_300, bytes: 3_300, bus: 48 };
        let h200 = move || device().with_speed(speed).with_large_buffers(limit * GIB / 16);
        let budget = limit * GIB - OVERHEAD;
        let plan = decode_on(&h200, plane, frames, budget);
        let report = plan.report;
        let arithmetic = report.time - report.waited;
        assert!(report.arena <= budget, "{frames} frames of {plane:?} in {limit} GiB: {plan:?}");
        assert!(report.time * 100 <= arithmetic * percent, "{frames} frames of {plane:?} in {limit} GiB: {plan:?}");
    }
}

// The planner traces a limited number of slices. A run has more of them, and also uploads and downloads.
#[test]
fn estimated_memory_matches_the_memory_of_a_run() {
    let (plane, frames) = (Hw::new(45, 80), 40);
    let vae = load(&device(), &Config::full());
    let planner = CoderPlanner { coder: &vae.decoder, temporal_factor: 1, plane, frames };
    for budget in [2 * GIB, 5 * GIB / 4, GIB] {
        let (plan, trace) = (planner.plan(&device, None, budget).unwrap(), device());
        assert!(plan.report.arena <= budget, "{plan:?}");
        let mut stream = Stream::new(&trace, &vae.decoder, plane, &plan.cache_plan);
        for slice in slices(frames, plan.slice) {
            stream.step(&vec![0.0; slice.len() * plane.count() * 16], slice.end == frames).unwrap();
        }
        let (estimated, used) = (plan.report.arena, trace.report().arena);
        assert!(used <= estimated && estimated <= used + used / 20, "{used} bytes, {estimated} estimated: {plan:?}");
    }
}

#[test]
fn offloaded_layers_are_prefetched_into_the_arena() {
    let (trace, plane) = (device(), Hw::new(45, 80));
    let offloaded = Vae::load_offloaded(&trace, &formula(&Config::full())).unwrap();
    let (device_weights, host_weights) = (trace.report().weights, trace.report().hosted);
    assert!(device_weights < host_weights / 100, "{device_weights} bytes on the device, {host_weights} on the host");
    let resident = load(&device(), &Config::full());
    let (mut prefetched, bus) = (0, trace.speed().bus as usize);
    for (resident, offloaded) in
        [(&resident.encoder as &dyn Coder, &offloaded.encoder as &dyn Coder), (&resident.decoder, &offloaded.decoder)]
    {
        let (plane, temporal_factor) = if resident.channels_in() == 3 { (Hw::new(360, 640), 4) } else { (plane, 1) };
        let plan = |coder| {
            let planner = CoderPlanner { coder, temporal_factor, plane, frames: 1 + 4 * temporal_factor };
            planner.plan(&device, Some(1), usize::MAX).unwrap()
        };
        let (resident, offloaded) = (plan(resident), plan(offloaded));
        assert_eq!((offloaded.cache_plan, offloaded.report.time), (resident.cache_plan, resident.report.time));
        let bytes = offloaded.report.copied - resident.report.copied;
        assert_eq!(offloaded.report.peak, resident.report.peak + bytes);
        assert!(offloaded.report.arena > resident.report.arena + bytes / 100 * 99, "{bytes} bytes of weights");
        // The time of every copy is rounded down to nanoseconds.
        let (time, all) = (offloaded.prefetch_time as usize, bytes / bus);
        assert!(resident.prefetch_time == 0 && time <= all && all - time < 100, "{time} of {all} nanoseconds");
        prefetched += bytes;
    }
    assert_eq!(prefetched, host_weights);
}

/// A device that is out of memory in call `nth` of `upsample`.
fn failing(nth: usize) -> OtherUpsample {
    let calls = AtomicUsize::new(0);
    let fail = move |_: &CpuOps, y: ConvOutput| match calls.fetch_add(1, Ordering::Relaxed) == nth {
        true => {
            let (op, device, shape) = ("upsample", "failing".into(), Shape::from([1]));
            Err(reseed_ops::Error::OutOfMemory { op, device, shape, bytes: 1 })
        }
        false => Ok(y),
    };
    OtherUpsample(CpuOps::new(DType::F32, Some(2)).unwrap(), Box::new(fail))
}

/// Decodes five latent frames on a device that fails once. Returns the frames and the number of replans.
fn decode_failing(nth: usize, smaller: Option<CachePlan>) -> (Result<Vec<f32>, Error>, usize) {
    let (ops, plane) = (failing(nth), Hw::new(3, 5));
    let vae: Vae = load(&ops, &Config::tiny());
    let clip = Side::Decode.input(&vae.config, 5, plane);
    let mut stream = Stream::new(&ops, &vae.decoder, plane, &CachePlan::default());
    let mut replans = 0;
    let mut run = || -> Result<Vec<f32>, Error> {
        let (mut frames, mut values) = (Vec::new(), Vec::new());
        for slice in slices(clip.t, 1) {
            let mut replan = || {
                replans += 1;
                smaller.clone()
            };
            let last = slice.end == clip.t;
            stream.start_or_replan(clip.frames(slice), last, &mut replan)?.wait(&mut values)?;
            frames.extend_from_slice(&values);
        }
        Ok(frames)
    };
    (run(), replans)
}

#[test]
fn a_run_out_of_memory_continues_with_a_smaller_plan() {
    let small = CachePlan { chunk_frames: 1, chunk_levels: 1, offloaded: (0..100).collect(), ..CachePlan::default() };
    let (whole, replans) = decode_failing(usize::MAX, Some(small.clone()));
    assert_eq!(replans, 0);
    let whole = whole.unwrap();
    for nth in [0, 4, 9, 14] {
        let (got, replans) = decode_failing(nth, Some(small.clone()));
        let error = relative_error(&whole, &got.unwrap());
        assert!(error <= 1e-5 && replans == 1, "call {nth}: {error:.2e}, {replans} plans");
    }
    let (got, replans) = decode_failing(4, None);
    assert!(matches!(got, Err(Error::Device(reseed_ops::Error::OutOfMemory { .. }))) && replans == 1);
}

#[test]
fn a_larger_budget_is_never_slower() {
    let plane = Hw::new(720, 1280);
    let times: Vec<u64> = (3..=10).map(|budget| decode(plane, 17, budget * GIB).report.time).collect();
    assert!(times.is_sorted_by(|a, b| b <= &(a + a / 50)), "{times:?}");
}

/// Some blocks whose inputs wait in host memory, with all numbers of kept chunks and prefetch distances.
fn inputs(kept: usize) -> BTreeMap<usize, InputPlan> {
    (0..100).map(|slot| (slot, InputPlan { kept: kept - 1, prefetch_distance: slot % 4 })).collect()
}

#[test]
fn chunks_and_offloading_change_only_rounding() {
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    let vae = load(&ops, &Config::tiny());
    for side in Side::BOTH {
        let clip = side.input(&vae.config, 4, Hw::new(3, 5));
        for latents in [&[4][..], &[1, 1, 2], &[2, 2]] {
            let whole = run_slices(&ops, &vae, side, &clip, latents);
            for (chunk_frames, breadth_first) in [1, 2, 3, 100].into_iter().flat_map(|n| [(n, false), (n, true)]) {
                let mut state = State::with_plan(CachePlan {
                    chunk_frames,
                    chunk_levels: 1 + chunk_frames % 2,
                    offloaded: (0..100).filter(|slot| chunk_frames != 3 || slot % 5 < 2).collect(),
                    streamed: (0..100).filter(|slot| slot % 4 < 2).collect(),
                    prefetch_distances: (0..100).filter(|slot| slot % 5 < 4).map(|slot| (slot, slot % 3)).collect(),
                    breadth_first,
                    offloaded_inputs: inputs(chunk_frames),
                    strips: chunk_frames == 1,
                });
                let mut parts = Vec::new();
                for slice in side.slices(&vae.config, latents) {
                    parts.extend(step(&ops, side.coder(&vae), &clip, slice, &mut state));
                }
                let error = relative_error(&whole, &parts);
                let case = format!("{side:?} {latents:?}, chunks of {chunk_frames}, breadth-first {breadth_first}");
                assert!(error <= 1e-5, "{case}: {error:.2e}");
            }
        }
    }
}
