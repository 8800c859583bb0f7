//! Networks on the devices of a job, from one job to the next.

use super::clip::{self, ATTEMPTS};
use super::{FrameMemory, JobPlan, JobPlanner};
use crate::error::{Kind, Result};
use crate::networks::Networks;
use crate::settings::VaeSettings;
use crate::size::Geometry;

/// Networks on their devices, and the job that they were loaded for.
pub struct Loaded {
    pub networks: Networks,
    pub plan: JobPlan,
    geometry: Geometry,
    batch: usize,
    frames: FrameMemory,
    vae: VaeSettings,
}

impl Loaded {
    /// The work on finished frames beside which they were planned.
    pub fn frame_memory(&self) -> FrameMemory {
        self.frames
    }
}

/// A plan, and networks of an earlier job that can run it.
pub type Planned = (JobPlan, Option<Networks>);

/// The plan of a job after another job with this model, once per lane: all lanes compute alike, so that the device with
/// the least memory decides. Networks are used again where the last job had the same sizes, and wherever memory has no
/// limit, since every plan then leaves them on the device.
pub fn plan_lanes(planners: &[JobPlanner], last: Vec<Loaded>) -> Result<Vec<Planned>> {
    let Some(tightest) = tightest(planners)?.map(|i| &planners[i]) else { return Ok(Vec::new()) };
    let same = last.first().filter(|last| {
        (&last.geometry, last.batch, last.vae) == (&tightest.geometry, tightest.batch, tightest.vae)
            && last.frames == tightest.frames
    });
    let plan = same.map(|last| last.plan.clone());
    let mut networks = match plan.is_some() || (tightest.devices.vae.room)()?.is_none() {
        true => last,
        false => {
            drop(last);
            Vec::new()
        }
    }
    .into_iter()
    .map(|last| last.networks);
    let plan = plan.map_or_else(|| tightest.plan(), Ok)?;
    Ok(planners.iter().map(|_| (plan.clone(), networks.next())).collect())
}

/// Loads the networks of all lanes. The device with the least memory may plan again unless the plan is pinned; the
/// others follow it.
pub fn load_lanes(planners: &[JobPlanner], planned: Vec<Planned>, pinned: bool) -> Result<Vec<Loaded>> {
    let Some(first) = tightest(planners)? else { return Ok(Vec::new()) };
    let mut planned: Vec<_> = planned.into_iter().map(Some).collect();
    let mut take = |i: usize| planned[i].take().expect("a lane is loaded once");
    let (plan, networks) = take(first);
    let attempts = if pinned { 1 } else { ATTEMPTS };
    let loaded = planners[first].load(plan, networks, attempts)?;
    let plan = loaded.plan.clone();
    let mut loaded = Some(loaded);
    let lane = |(i, planner): (usize, &JobPlanner)| match loaded.take_if(|_| i == first) {
        Some(loaded) => Ok(loaded),
        None => planner.load_pinned(plan.clone(), take(i).1),
    };
    planners.iter().enumerate().map(lane).collect()
}

/// The lane with the least memory.
fn tightest(planners: &[JobPlanner]) -> Result<Option<usize>> {
    let rooms: Result<Vec<_>> = planners.iter().map(|planner| (planner.devices.vae.room)()).collect();
    let rooms = rooms?.into_iter().map(|room| room.unwrap_or(usize::MAX));
    Ok(rooms.enumerate().min_by_key(|(_, room)| *room).map(|(i, _)| i))
}

impl JobPlanner<'_> {
    /// Loads the networks as `plan` says, unless they are loaded. Where other processes allocate the memory meanwhile,
    /// plans again, in so many attempts.
    fn load(&self, mut plan: JobPlan, mut loaded: Option<Networks>, attempts: usize) -> Result<Loaded> {
        for _ in 0..attempts {
            let ready = match loaded.take() {
                Some(networks) => self.reserve(networks, plan),
                None => self.load_networks(plan),
            };
            match ready {
                Ok((plan, networks)) => return Ok(self.loaded(plan, networks)),
                Err(error) if error.kind() == Kind::Memory => plan = self.plan()?,
                Err(error) => return Err(error),
            }
        }
        Err(clip::contended(&self.devices.vae))
    }

    /// Loads the networks as `plan` says, unless they are loaded, and never plans again.
    fn load_pinned(&self, plan: JobPlan, networks: Option<Networks>) -> Result<Loaded> {
        let networks = networks.map_or_else(|| self.networks(&plan), Ok)?;
        let (plan, networks) = self.reserve(networks, plan)?;
        Ok(self.loaded(plan, networks))
    }

    fn loaded(&self, plan: JobPlan, networks: Networks) -> Loaded {
        let (batch, frames) = (self.batch, self.frames);
        Loaded { networks, plan, geometry: self.geometry.clone(), batch, frames, vae: self.vae }
    }

    fn networks(&self, plan: &JobPlan) -> Result<Networks> {
        let coders = [&*self.devices.encoder().ops, &*self.devices.vae.ops];
        self.weights.load(coders, &*self.devices.transformer().ops, plan.residency)
    }

    /// Loads the networks, plans for the memory that is left, and reserves that.
    fn load_networks(&self, plan: JobPlan) -> Result<(JobPlan, Networks)> {
        let networks = self.networks(&plan)?;
        let Some(room) = (self.devices.vae.room)()? else { return Ok((plan, networks)) };
        let schedule = self.schedule(networks.vae(), plan.residency, &self.vae, room)?;
        self.reserve(networks, JobPlan { schedule, ..plan })
    }

    fn reserve(&self, networks: Networks, plan: JobPlan) -> Result<(JobPlan, Networks)> {
        self.devices.vae.ops.reserve(plan.arena_bytes())?;
        Ok((plan, networks))
    }
}
