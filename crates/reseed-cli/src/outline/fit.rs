//! Going on when the device has less memory than there was.

use std::sync::{Mutex, PoisonError};

use reseed::{NetworkResidency, Replan, Replanner, Settings, VaePlan, WindowPlan};
use reseed_model::Vae;
use reseed_model::plan::Tiling;

use super::{JobPlan, JobPlanner, Schedule};
use crate::args::PlanArgs;
use crate::budget::SMALLEST;
use crate::report::{bytes, warn};

/// A job whose plans can be made smaller while it runs.
pub struct BudgetReplanner<'a> {
    outline: &'a JobPlanner<'a>,
    vae: &'a Vae,
    between: NetworkResidency,
    slice: usize,
    /// Each half's tiles, which must not change within a job.
    tiling: Vec<Option<Tiling>>,
    workers: usize,
    /// Bytes that the last plan took.
    taken: Mutex<usize>,
}

impl<'a> BudgetReplanner<'a> {
    /// A job that runs as `choice` says, with the loaded autoencoder.
    pub fn new(outline: &'a JobPlanner, vae: &'a Vae, choice: &JobPlan, settings: &Settings) -> BudgetReplanner<'a> {
        let turns = &choice.turns;
        BudgetReplanner {
            outline,
            vae,
            between: choice.between,
            slice: settings.vae.slice,
            tiling: turns.halves.iter().map(|half| half.tiling).collect(),
            workers: settings.vae.workers,
            taken: Mutex::new(turns.bytes()),
        }
    }

    /// Plans for `room` bytes that differ from those before in nothing but what is kept where.
    fn within(&self, room: usize) -> Option<Schedule> {
        let plan = PlanArgs { slice: u16::try_from(self.slice).ok(), ..self.outline.plan.clone() };
        let turns = self.outline.turns(self.vae, self.between, &plan, room).ok()?;
        turns.halves.iter().map(|half| half.tiling).eq(self.tiling.iter().copied()).then_some(turns)
    }
}

impl Replanner for BudgetReplanner<'_> {
    fn smaller(&self) -> Option<Replan> {
        let device = self.outline.device;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken > SMALLEST {
            let room = (device.room)().ok()??.min(*taken / 8 * 7);
            let turns = self.within(room)?;
            *taken = turns.bytes();
            if device.ops.reserve(*taken).is_ok() {
                let name = device.ops.name();
                warn(&format!("{name}: less memory than there was: going on with {}", bytes(*taken)));
                return Some(Replan { vae: vae_plan(&turns, self.workers), layers: layers(&turns, self.between) });
            }
        }
        None
    }
}

/// Says in a job's settings how its networks run.
pub fn write(choice: &JobPlan, settings: &mut Settings) {
    settings.vae = vae_plan(&choice.turns, settings.vae.workers);
    settings.turns = WindowPlan { window: choice.window, layers: layers(&choice.turns, choice.between) };
}

/// Layers that come for a window.
fn layers(turns: &Schedule, between: NetworkResidency) -> usize {
    if between == NetworkResidency::Host { turns.step.resident } else { 0 }
}

fn vae_plan(turns: &Schedule, workers: usize) -> VaePlan {
    let [encode, decode] = &turns.halves[..] else { unreachable!("two plans") };
    VaePlan {
        slice: encode.plan.slice,
        encode: encode.plan.cache_plan.clone(),
        decode: decode.plan.cache_plan.clone(),
        encode_tiling: encode.tiling,
        decode_tiling: decode.tiling,
        workers,
    }
}
