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

#[test]
fn what_fits_is_kept_on_the_device() {
    let plan = decode(Hw::new(720, 1280), 17, 12 * GIB);
    assert!(plan.keeping.parked.is_empty() && plan.ledger.copied == 0, "{plan:?}");
    assert!(plan.ledger.arena <= 12 * GIB, "{plan:?}");
}

#[test]
fn small_budgets_are_met_by_parking() {
    // What is left of 6, 4, 12, 8 and 16 GiB beside the weights and the driver's own memory.
    let cases = [
        (Hw::new(720, 1280), 17, 5 * GIB),
        (Hw::new(720, 1280), 17, 3 * GIB),
        (Hw::new(1080, 1920), 17, 11 * GIB),
        (Hw::new(1080, 1920), 17, 7 * GIB),
        (Hw::new(2160, 3840), 5, 15 * GIB),
    ];
    for (plane, frames, budget) in cases {
        let plan = decode(plane, frames, budget);
        assert!(plan.ledger.arena <= budget && !plan.keeping.parked.is_empty(), "{plane:?} in {budget}: {plan:?}");
    }
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
                    parked: 0..usize::MAX,
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
