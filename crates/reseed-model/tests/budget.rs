//! Plans inside a budget: what fits, and that no plan changes the result.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_cpu::CpuOps;
use reseed_model::budget::{Job, Plan};
use reseed_model::plan::{CachePlan, slices};
use reseed_model::{Coder, Config, Error, State, Stream, Vae};
use reseed_ops::{ConvOutput, DType, Hw, Shape, TraceOps, relative_error};
use reseed_testing::device::OtherUpsample;
use reseed_testing::{Side, formula, load, run_slices, step};

const GIB: usize = 1 << 30;

fn device() -> TraceOps {
    TraceOps::new(DType::F16, DType::F16, Box::new(|_| 0))
}

/// The plan that decodes `frames` pictures of this size inside `budget`.
fn decode(plane: Hw, frames: usize, budget: usize) -> Plan {
    let vae = load(&device(), &Config::full());
    let plane = Hw::new(plane.h / 8, plane.w / 8);
    let job = Job { half: &vae.decoder, factor: 1, plane, frames: 1 + (frames - 1) / 4 };
    job.plan(&device, None, budget).unwrap()
}

/// What is left of `--max-vram` beside the weights and the driver's own memory.
const BESIDE: usize = 940 << 20;

#[test]
fn what_fits_is_kept_on_the_device() {
    let plan = decode(Hw::new(720, 1280), 17, 12 * GIB);
    assert!(plan.keeping.offloaded.is_empty() && plan.report.copied == 0, "{plan:?}");
    assert!(plan.report.arena <= 19 * GIB / 2, "{plan:?}");
}

#[test]
fn small_budgets_are_met_by_parking() {
    let cases = [
        (Hw::new(720, 1280), 17, 6),
        (Hw::new(720, 1280), 17, 4),
        (Hw::new(1080, 1920), 17, 12),
        (Hw::new(1080, 1920), 17, 8),
        (Hw::new(2160, 3840), 5, 15),
    ];
    for (plane, frames, limit) in cases {
        let budget = limit * GIB - BESIDE;
        let plan = decode(plane, frames, budget);
        assert!(plan.report.arena <= budget && !plan.keeping.offloaded.is_empty(), "{plane:?} in {limit}: {plan:?}");
    }
}

// What waits for the bus is what is left when kernels have hidden what they can.
#[test]
fn parking_some_pasts_costs_less_than_parking_all() {
    for (plane, limit) in [(Hw::new(720, 1280), 6), (Hw::new(1080, 1920), 12)] {
        let (free, held) = (decode(plane, 17, usize::MAX), decode(plane, 17, limit * GIB - BESIDE));
        assert!(held.report.time * 10 <= free.report.time * 13, "{plane:?} in {limit}: {held:?}, else {free:?}");
    }
}

// A plan is traced over a few slices; a run goes on, and uploads and sends beside.
#[test]
fn a_run_takes_the_memory_that_its_plan_says() {
    let (plane, frames) = (Hw::new(45, 80), 40);
    let vae = load(&device(), &Config::full());
    let job = Job { half: &vae.decoder, factor: 1, plane, frames };
    for budget in [2 * GIB, 5 * GIB / 4, GIB] {
        let (plan, trace) = (job.plan(&device, None, budget).unwrap(), device());
        assert!(plan.report.arena <= budget, "{plan:?}");
        let mut stream = Stream::new(&trace, &vae.decoder, plane, &plan.keeping);
        for slice in slices(frames, plan.slice) {
            stream.step(&vec![0.0; slice.len() * plane.count() * 16], slice.end == frames).unwrap();
        }
        let (estimated, taken) = (plan.report.arena, trace.report().arena);
        assert!(
            taken <= estimated && estimated <= taken + taken / 20,
            "{taken} bytes, {estimated} estimated: {plan:?}"
        );
    }
}

#[test]
fn layers_that_wait_on_the_host_come_into_the_memory_of_tensors() {
    let (trace, plane) = (device(), Hw::new(45, 80));
    let waiting = Vae::load_offloaded(&trace, &formula(&Config::full())).unwrap();
    let (stays, waits) = (trace.report().weights, trace.report().hosted);
    assert!(stays < waits / 100, "{stays} bytes on the device, {waits} on the host");
    let here = load(&device(), &Config::full());
    let (mut came, bus) = (0, trace.speed().bus as usize);
    for (here, waiting) in
        [(&here.encoder as &dyn Coder, &waiting.encoder as &dyn Coder), (&here.decoder, &waiting.decoder)]
    {
        let (plane, factor) = if here.channels_in() == 3 { (Hw::new(360, 640), 4) } else { (plane, 1) };
        let plan =
            |half| Job { half, factor, plane, frames: 1 + 4 * factor }.plan(&device, Some(1), usize::MAX).unwrap();
        let (here, waiting) = (plan(here), plan(waiting));
        assert_eq!((waiting.keeping, waiting.report.time), (here.keeping, here.report.time));
        let bytes = waiting.report.copied - here.report.copied;
        assert_eq!(waiting.report.peak, here.report.peak + bytes);
        assert!(waiting.report.arena > here.report.arena + bytes / 100 * 99, "{bytes} bytes of weights");
        // Every layer's copy is counted in whole nanoseconds.
        let (coming, all) = (waiting.coming as usize, bytes / bus);
        assert!(here.coming == 0 && coming <= all && all - coming < 100, "{coming} of {all} nanoseconds");
        came += bytes;
    }
    assert_eq!(came, waits);
}

/// A device that is out of memory when it upsamples for the `nth` time.
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

/// Decodes five latent frames on a device that fails once, and says how often a smaller plan was asked for.
fn decode_failing(nth: usize, smaller: Option<CachePlan>) -> (Result<Vec<f32>, Error>, usize) {
    let (ops, plane) = (failing(nth), Hw::new(3, 5));
    let vae: Vae = load(&ops, &Config::tiny());
    let clip = Side::Decode.input(&vae.config, 5, plane);
    let mut stream = Stream::new(&ops, &vae.decoder, plane, &CachePlan::default());
    let mut asked = 0;
    let mut run = || -> Result<Vec<f32>, Error> {
        let (mut pictures, mut values) = (Vec::new(), Vec::new());
        for slice in slices(clip.t, 1) {
            let mut smaller = || {
                asked += 1;
                smaller.clone()
            };
            let last = slice.end == clip.t;
            stream.start_within(clip.frames(slice), last, &mut smaller)?.wait(&mut values)?;
            pictures.extend_from_slice(&values);
        }
        Ok(pictures)
    };
    (run(), asked)
}

#[test]
fn a_run_whose_memory_is_taken_goes_on_with_a_smaller_plan() {
    let small = CachePlan { at_once: 1, levels: 1, offloaded: (0..100).collect(), ..CachePlan::default() };
    let (whole, asked) = decode_failing(usize::MAX, Some(small.clone()));
    assert_eq!(asked, 0);
    let whole = whole.unwrap();
    for nth in [0, 4, 9, 14] {
        let (got, asked) = decode_failing(nth, Some(small.clone()));
        let error = relative_error(&whole, &got.unwrap());
        assert!(error <= 1e-5 && asked == 1, "call {nth}: {error:.2e}, {asked} plans");
    }
    let (got, asked) = decode_failing(4, None);
    assert!(matches!(got, Err(Error::Device(reseed_ops::Error::OutOfMemory { .. }))) && asked == 1);
}

#[test]
fn more_memory_never_takes_longer() {
    let plane = Hw::new(720, 1280);
    let times: Vec<u64> = (3..=10).map(|budget| decode(plane, 17, budget * GIB).report.time).collect();
    assert!(times.is_sorted_by(|a, b| b <= &(a + a / 50)), "{times:?}");
}

#[test]
fn frames_at_once_and_parking_change_nothing_but_rounding() {
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    let vae = load(&ops, &Config::tiny());
    for side in Side::BOTH {
        let clip = side.input(&vae.config, 4, Hw::new(3, 5));
        for latents in [&[4][..], &[1, 1, 2], &[2, 2]] {
            let whole = run_slices(&ops, &vae, side, &clip, latents);
            for (at_once, abreast) in [1, 2, 3, 100].into_iter().flat_map(|n| [(n, false), (n, true)]) {
                let mut state = State::kept(CachePlan {
                    at_once,
                    levels: 1 + at_once % 2,
                    offloaded: (0..100).filter(|slot| at_once != 3 || slot % 5 < 2).collect(),
                    leads: (0..100).filter(|slot| slot % 5 < 4).map(|slot| (slot, slot % 3)).collect(),
                    abreast,
                    strips: at_once == 1 && !abreast,
                });
                let mut parts = Vec::new();
                for slice in side.slices(&vae.config, latents) {
                    parts.extend(step(&ops, side.coder(&vae), &clip, slice, &mut state));
                }
                let error = relative_error(&whole, &parts);
                assert!(error <= 1e-5, "{side:?} {latents:?}, {at_once} at once, abreast {abreast}: {error:.2e}");
            }
        }
    }
}
