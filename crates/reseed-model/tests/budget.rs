//! Plans inside a budget: what fits, and that no plan changes the result.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Side, load, run_slices, step};
use reseed_model::budget::{Job, Plan};
use reseed_model::plan::Keeping;
use reseed_model::{Config, State};
use reseed_ops::{CpuOps, DType, Hw, TraceOps, relative_error};

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
    assert!(plan.keeping.parked.is_empty() && plan.ledger.copied == 0, "{plan:?}");
    assert!(plan.ledger.arena <= 19 * GIB / 2, "{plan:?}");
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
        assert!(plan.ledger.arena <= budget && !plan.keeping.parked.is_empty(), "{plane:?} in {limit}: {plan:?}");
    }
}

// What waits for the bus is what is left when kernels have hidden what they can.
#[test]
fn parking_some_pasts_costs_less_than_parking_all() {
    for (plane, limit) in [(Hw::new(720, 1280), 6), (Hw::new(1080, 1920), 12)] {
        let (free, held) = (decode(plane, 17, usize::MAX), decode(plane, 17, limit * GIB - BESIDE));
        assert!(held.ledger.time * 10 <= free.ledger.time * 17, "{plane:?} in {limit}: {held:?}, else {free:?}");
    }
}

#[test]
fn more_memory_never_takes_longer() {
    let plane = Hw::new(720, 1280);
    let times: Vec<u64> = (3..=10).map(|budget| decode(plane, 17, budget * GIB).ledger.time).collect();
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
            for at_once in [1, 2, 3, 100] {
                let mut state = State::kept(Keeping {
                    at_once,
                    levels: 1 + at_once % 2,
                    parked: (0..100).filter(|slot| at_once != 3 || slot % 2 == 0).collect(),
                    ahead: 1 + at_once % 2,
                    strips: at_once == 1,
                });
                let mut parts = Vec::new();
                for slice in side.slices(&vae.config, latents) {
                    parts.extend(step(&ops, side.half(&vae), &clip, slice, &mut state));
                }
                let error = relative_error(&whole, &parts);
                assert!(error <= 1e-5, "{side:?} {latents:?}, {at_once} at once: {error:.2e}");
            }
        }
    }
}
