//! Smaller plans for a running job whose device has lost memory to other processes.

use std::sync::{Mutex, PoisonError};

use reseed_model::Vae;
use reseed_model::plan::Tiling;

use super::clip::SMALLEST;
use super::{JobPlan, JobPlanner, Schedule};
use crate::networks::NetworkResidency;
use crate::run_plan::{Replan, Replanner};
use crate::settings::VaeSettings;

/// Finds smaller plans for a running job.
pub struct BudgetReplanner<'a> {
    planner: &'a JobPlanner<'a>,
    vae: &'a Vae,
    residency: NetworkResidency,
    slice: usize,
    /// The tiles of encoder and decoder, which must not change within a job.
    tiling: Vec<Option<Tiling>>,
    /// Bytes of the last plan.
    bytes: Mutex<usize>,
}

impl<'a> BudgetReplanner<'a> {
    /// For a job with this plan and this loaded VAE.
    pub fn new(planner: &'a JobPlanner, vae: &'a Vae, plan: &JobPlan) -> BudgetReplanner<'a> {
        BudgetReplanner {
            planner,
            vae,
            residency: plan.residency,
            slice: plan.slice(),
            tiling: plan.schedule.coders.iter().map(|coder| coder.tiling).collect(),
            bytes: Mutex::new(plan.arena_bytes()),
        }
    }

    /// A schedule within `room` bytes that differs from the last one only in what is kept where.
    fn within(&self, room: usize) -> Option<Schedule> {
        let vae = VaeSettings { slice: Some(self.slice), ..self.planner.vae };
        let schedule = self.planner.schedule(self.vae, self.residency, &vae, room).ok()?;
        schedule.coders.iter().map(|coder| coder.tiling).eq(self.tiling.iter().copied()).then_some(schedule)
    }
}

impl Replanner for BudgetReplanner<'_> {
    fn smaller(&self) -> Option<Replan> {
        let device = &self.planner.devices.vae;
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *bytes > SMALLEST {
            let room = (device.room)().ok()??.min(*bytes / 8 * 7);
            let schedule = self.within(room)?;
            *bytes = schedule.bytes();
            if device.ops.reserve(*bytes).is_ok() {
                let (vae, layers) = (schedule.vae_plan(), schedule.prefetched_layers(self.residency));
                return Some(Replan { vae, layers, device: device.ops.name(), bytes: *bytes });
            }
        }
        None
    }
}
