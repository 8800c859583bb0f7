//! Planner of the VAE: the fastest schedule of a coder that fits a memory budget.
//!
//! The planner runs the model on [`TraceOps`] for each candidate plan. The trace reports the peak memory and the time
//! estimated by the device's speed model.

mod search;

use reseed_ops::{Hw, TraceOps, TraceReport};

use crate::error::Result;
use crate::plan::CachePlan;
use crate::vae::Coder;
use search::Search;

/// Plans the run of one coder over a clip.
#[derive(Clone, Copy)]
pub struct CoderPlanner<'a> {
    /// The coder, loaded on a tracing device.
    pub coder: &'a dyn Coder,
    /// Input frames per latent frame: 1 for the decoder.
    pub temporal_factor: usize,
    /// Plane of the input.
    pub plane: Hw,
    /// Number of input frames.
    pub frames: usize,
}

/// Schedule of a coder with its memory and estimated time.
#[derive(Clone, Debug)]
pub struct CoderPlan {
    /// Latent frames per slice.
    pub slice: usize,
    /// Chunks and residency of the temporal caches.
    pub cache_plan: CachePlan,
    /// Trace of the first slices and the last slice.
    pub report: TraceReport,
    /// Input frames in the traced slices.
    pub traced_frames: usize,
    /// Bytes of tensors that stay on the device between slices.
    pub resident_bytes: usize,
    /// Nanoseconds to prefetch offloaded layers before the first slice. The report does not include them.
    pub prefetch_time: u64,
}

/// Schedule parameters other than the set of offloaded caches.
#[derive(Clone, Copy)]
struct Candidate {
    /// Latent frames per slice.
    slice: usize,
    chunk_frames: usize,
    chunk_levels: usize,
    breadth_first: bool,
    strips: bool,
}

const fn depth_first(slice: usize, chunk_frames: usize, chunk_levels: usize) -> Candidate {
    Candidate { slice, chunk_frames, chunk_levels, breadth_first: false, strips: false }
}

const fn breadth_first(slice: usize, chunk_frames: usize, chunk_levels: usize) -> Candidate {
    Candidate { breadth_first: true, ..depth_first(slice, chunk_frames, chunk_levels) }
}

const CANDIDATES: &[Candidate] = &[
    depth_first(2, 2, 2),
    depth_first(2, 2, 1),
    depth_first(1, 2, 1),
    depth_first(1, 2, 2),
    breadth_first(2, 1, 2),
    breadth_first(1, 2, 1),
    breadth_first(1, 1, 1),
    Candidate { strips: true, ..breadth_first(2, 1, 2) },
    Candidate { strips: true, ..breadth_first(1, 1, 1) },
    depth_first(1, 1, 1),
    depth_first(1, 1, 2),
    // Depth-first, strips stall the device in every layer, so they are tried only when no other candidate fits.
    Candidate { strips: true, ..depth_first(1, 1, 2) },
];

/// Number of fastest candidates that the local search improves.
const IMPROVED: usize = 2;

impl CoderPlanner<'_> {
    /// The fastest plan within `budget` bytes, or the smallest plan when none fits. `slice` fixes the latent frames per
    /// slice.
    pub fn plan(&self, device: &dyn Fn() -> TraceOps, slice: Option<usize>, budget: usize) -> Result<CoderPlan> {
        let mut goal = budget;
        loop {
            let (search, plan) = self.fastest(device, slice, goal)?;
            // Addresses of tensors change from slice to slice, and fragmentation grows during the first ones.
            let long = search.trace_long(&plan)?;
            if long.report.arena <= budget || !search.fits(&plan) {
                return Ok(long);
            }
            goal = goal.saturating_sub(long.report.arena - budget);
        }
    }

    /// The fastest plan by a trace of the first slices.
    fn fastest<'a>(
        &'a self,
        device: &'a dyn Fn() -> TraceOps,
        slice: Option<usize>,
        budget: usize,
    ) -> Result<(Search<'a>, CoderPlan)> {
        let mut found: Vec<(Search, CoderPlan)> = Vec::new();
        for candidate in CANDIDATES {
            let search = Search::new(self, device, with_slice(candidate, slice), budget);
            let fits = |(_, plan): &&(Search, CoderPlan)| search.fits(plan);
            if candidate.strips && !candidate.breadth_first && found.iter().any(|found| fits(&found)) {
                break;
            }
            let fastest = found.iter().filter(fits).map(|(_, plan)| plan.report.time).min();
            let plan = search.greedy(fastest)?;
            found.push((search, plan));
        }
        found.sort_by_key(|(search, plan)| match search.fits(plan) {
            true => (0, plan.report.time),
            false => (plan.report.arena, 0),
        });
        let mut best: Option<(Search, CoderPlan)> = None;
        for (i, (search, plan)) in found.into_iter().enumerate() {
            let plan = if i < IMPROVED { search.improve(plan)? } else { plan };
            if best.as_ref().is_none_or(|(_, best)| search.is_better(&plan, best)) {
                best = Some((search, plan));
            }
        }
        Ok(best.expect("CANDIDATES is not empty"))
    }

    /// The best plan with all caches offloaded, so that no tensor stays on the device between slices. Tiles that run in
    /// turns share the memory then.
    pub fn plan_fully_offloaded(
        &self,
        device: &dyn Fn() -> TraceOps,
        slice: Option<usize>,
        budget: usize,
    ) -> Result<CoderPlan> {
        let mut best: Option<CoderPlan> = None;
        for candidate in CANDIDATES {
            let search = Search::new(self, device, with_slice(candidate, slice), budget);
            let plan = search.offload_all()?;
            if best.as_ref().is_none_or(|best| search.is_better(&plan, best)) {
                best = Some(plan);
            }
        }
        Ok(best.expect("CANDIDATES is not empty"))
    }
}

fn with_slice(candidate: &Candidate, slice: Option<usize>) -> Candidate {
    Candidate { slice: slice.unwrap_or(candidate.slice), ..*candidate }
}
