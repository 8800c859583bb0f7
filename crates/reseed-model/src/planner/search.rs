//! Search for the caches to offload: a greedy pass, swaps, then simulated annealing.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use reseed_ops::{Shape, Thw, Timing, TraceOps, TraceReport, Transfer};

use super::{Candidate, CoderPlan, CoderPlanner};
use crate::error::Result;
use crate::plan::{CachePlan, slices};
use crate::vae::State;

/// Traced slices for a time estimate: all slices between the third and the last take the same time.
const SHORT_TRACE: usize = 4;
/// Traced slices for a memory estimate.
const LONG_TRACE: usize = 200;
/// Slots between the start points of [`Search::restart_late`].
const START_STRIDE: usize = 3;
/// Steps of simulated annealing.
const ANNEALING_STEPS: usize = 600;
/// Maximum number of caches that one annealing step moves.
const ANNEALING_MOVES: u64 = 3;
/// Initial temperature of the annealing, as a fraction of the plan's time.
const INITIAL_TEMPERATURE: f64 = 0.04;
/// Annealing runs only when a plan waits for copies more than one part in this many of its time.
const ANNEALING_THRESHOLD: u64 = 50;
/// Maximum prefetch distance.
const MAX_PREFETCH_DISTANCE: usize = 2;

/// Search over the sets of offloaded caches for one candidate.
pub(super) struct Search<'a> {
    planner: &'a CoderPlanner<'a>,
    device: &'a dyn Fn() -> TraceOps,
    candidate: Candidate,
    budget: usize,
    /// Changes in descending order of the bytes that a cache copies, computed on first use.
    order: OnceCell<Vec<Change>>,
}

/// Where the caches of a plan are; see [`CachePlan`].
#[derive(Clone, Default)]
struct Caches {
    offloaded: BTreeSet<usize>,
    streamed: BTreeSet<usize>,
}

/// Offloads the cache of a slot, or streams it if it is offloaded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Offload(usize),
    Stream(usize),
}

impl Caches {
    fn of(plan: &CoderPlan) -> Caches {
        let CachePlan { offloaded, streamed, .. } = plan.cache_plan.clone();
        Caches { offloaded, streamed }
    }

    fn contains(&self, change: Change) -> bool {
        match change {
            Change::Offload(slot) => self.offloaded.contains(&slot),
            Change::Stream(slot) => self.streamed.contains(&slot),
        }
    }

    fn toggle(&mut self, change: Change) {
        let (set, slot) = match change {
            Change::Offload(slot) => (&mut self.offloaded, slot),
            Change::Stream(slot) => (&mut self.streamed, slot),
        };
        if !set.remove(&slot) {
            set.insert(slot);
        }
    }
}

impl<'a> Search<'a> {
    pub fn new(
        planner: &'a CoderPlanner<'a>,
        device: &'a dyn Fn() -> TraceOps,
        candidate: Candidate,
        budget: usize,
    ) -> Search<'a> {
        Search { planner, device, candidate, budget, order: OnceCell::new() }
    }

    pub fn fits(&self, plan: &CoderPlan) -> bool {
        plan.report.arena <= self.budget
    }

    /// Whether `plan` is preferable to `other`. Plans within 1% of each other in time compare by memory.
    pub fn is_better(&self, plan: &CoderPlan, other: &CoderPlan) -> bool {
        let (a, b) = (&plan.report, &other.report);
        match (self.fits(plan), self.fits(other)) {
            (true, true) => a.time < b.time - b.time / 100 || a.time < b.time + b.time / 100 && a.arena < b.arena,
            (fits, _) => fits || a.arena < b.arena,
        }
    }

    /// Greedy plan. The search stops early when `fastest` is below the compute time of this candidate. All caches are
    /// offloaded when no plan fits.
    pub fn greedy(&self, fastest: Option<u64>) -> Result<CoderPlan> {
        let resident = self.trace_offloading(Caches::default())?;
        if self.fits(&resident) {
            return Ok(resident);
        }
        let offloaded = self.offload_all()?;
        let compute = offloaded.report.time - offloaded.report.waited;
        if !self.fits(&offloaded) || fastest.is_some_and(|time| time < compute) {
            return Ok(offloaded);
        }
        self.keep_resident(offloaded)
    }

    /// Offloads all caches. When that does not fit, prefetches start as late as possible.
    pub fn offload_all(&self) -> Result<CoderPlan> {
        let all: BTreeSet<usize> = (0..self.planner.coder.slots()).collect();
        let mut caches = Caches { offloaded: all.clone(), ..Caches::default() };
        let plan = self.trace_offloading(caches.clone())?;
        if self.fits(&plan) {
            return Ok(plan);
        }
        if self.candidate.breadth_first {
            caches.streamed = all.clone();
        }
        let distances = all.iter().map(|&slot| (slot, 0)).collect();
        self.tune_prefetch(self.trace(caches, distances, SHORT_TRACE)?)
    }

    /// Moves caches back to the device while they fit, in descending order of their copied bytes.
    fn keep_resident(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        for &change in self.order()? {
            if !Caches::of(&plan).contains(change) {
                continue;
            }
            let other = self.toggle(&plan, &[change])?;
            if self.fits(&other) && other.report.time <= plan.report.time {
                plan = other;
            }
        }
        Ok(plan)
    }

    /// Changes in descending order of the bytes that a cache copies.
    fn order(&self) -> Result<&[Change]> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        let copied = |change: Change| {
            let (Change::Offload(slot) | Change::Stream(slot)) = change;
            let mut caches = Caches { offloaded: BTreeSet::from([slot]), ..Caches::default() };
            if change == Change::Stream(slot) {
                caches.streamed.insert(slot);
            }
            Ok((Reverse(self.trace_offloading(caches)?.report.copied), change))
        };
        let mut changes = self.changes(true).into_iter().map(copied).collect::<Result<Vec<_>>>()?;
        changes.sort();
        Ok(self.order.get_or_init(|| changes.into_iter().map(|(_, change)| change).collect()))
    }

    /// What can be changed in a plan of this candidate, which may stream caches or not.
    fn changes(&self, streams: bool) -> Vec<Change> {
        let slots = 0..self.planner.coder.slots();
        let streamed = slots.clone().filter(|_| streams && self.candidate.breadth_first).map(Change::Stream);
        slots.map(Change::Offload).chain(streamed).collect()
    }

    /// The changes that the search tries. Caches are streamed only if the plan does not fit otherwise.
    fn tried(&self, plan: &CoderPlan) -> Vec<Change> {
        self.changes(!plan.cache_plan.streamed.is_empty())
    }

    /// Local search: swaps until no swap is faster, then annealing.
    pub fn improve(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        if plan.cache_plan.offloaded.is_empty() || !self.fits(&plan) {
            return Ok(plan);
        }
        plan = self.restart_late(plan)?;
        loop {
            let before = plan.report.time;
            plan = self.swap(plan)?;
            plan = self.keep_resident(plan)?;
            if plan.report.time >= before {
                return self.tune_prefetch(self.anneal(self.tune_prefetch(plan)?)?);
            }
        }
    }

    /// Simulated annealing over the set of offloaded caches. The random sequence is fixed.
    fn anneal(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        if plan.report.waited < plan.report.time / ANNEALING_THRESHOLD {
            return Ok(plan);
        }
        let (mut best, mut random, changes) = (plan.clone(), 1u64, self.tried(&plan));
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for remaining in (1..=ANNEALING_STEPS).rev() {
            let count = changes.len() as u64;
            let moved: Vec<Change> = (0..=draw(ANNEALING_MOVES)).map(|_| changes[draw(count) as usize]).collect();
            let other = self.toggle(&plan, &moved)?;
            let slowdown = other.report.time as f64 / plan.report.time as f64 - 1.0;
            let temperature = INITIAL_TEMPERATURE * remaining as f64 / ANNEALING_STEPS as f64;
            let probability = (-slowdown / temperature).exp();
            if self.fits(&other) && (draw(1 << 20) as f64) < probability * f64::from(1 << 20) {
                plan = other;
                best = if plan.report.time < best.report.time { plan.clone() } else { best };
            }
        }
        Ok(best)
    }

    /// Changes prefetch distances where that is faster. It can also make a plan fit, because tensor addresses change.
    fn tune_prefetch(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        let slots = plan.cache_plan.offloaded.clone();
        let distances = |slot| (0..=MAX_PREFETCH_DISTANCE).map(move |distance| (slot, distance));
        for (slot, distance) in slots.into_iter().flat_map(distances) {
            if distance == plan.cache_plan.prefetch_distance(slot) {
                continue;
            }
            let mut prefetch_distances = plan.cache_plan.prefetch_distances.clone();
            prefetch_distances.insert(slot, distance);
            let other = self.trace(Caches::of(&plan), prefetch_distances, SHORT_TRACE)?;
            plan = if self.fits(&other) && other.report.time < plan.report.time { other } else { plan };
        }
        Ok(plan)
    }

    /// Repeats the greedy pass from start points where only the last layers are offloaded.
    fn restart_late(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        let slots = self.planner.coder.slots();
        for first in (START_STRIDE..slots).step_by(START_STRIDE) {
            let distances = plan.cache_plan.prefetch_distances.clone();
            let last: BTreeSet<usize> = (first..slots).collect();
            let streamed = &last & &plan.cache_plan.streamed;
            let start = self.trace(Caches { offloaded: last, streamed }, distances, SHORT_TRACE)?;
            if !self.fits(&start) {
                break;
            }
            let other = self.keep_resident(start)?;
            plan = if other.report.time < plan.report.time { other } else { plan };
        }
        Ok(plan)
    }

    /// Exchanges an offloaded cache for a resident one where that is faster.
    fn swap(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        let caches = Caches::of(&plan);
        let (copied, kept): (Vec<Change>, Vec<Change>) =
            self.tried(&plan).into_iter().partition(|&change| caches.contains(change));
        for change in copied {
            for &other in &kept {
                let swapped = self.toggle(&plan, &[change, other])?;
                if self.fits(&swapped) && swapped.report.time < plan.report.time {
                    plan = swapped;
                }
            }
        }
        Ok(plan)
    }

    /// The plan with these changes made, or undone where they are made already.
    fn toggle(&self, plan: &CoderPlan, changes: &[Change]) -> Result<CoderPlan> {
        let mut caches = Caches::of(plan);
        let unique: BTreeSet<Change> = changes.iter().copied().collect();
        unique.into_iter().for_each(|change| caches.toggle(change));
        self.trace(caches, plan.cache_plan.prefetch_distances.clone(), SHORT_TRACE)
    }

    fn trace_offloading(&self, caches: Caches) -> Result<CoderPlan> {
        self.trace(caches, BTreeMap::new(), SHORT_TRACE)
    }

    /// Traces enough slices of a plan for its peak memory.
    pub fn trace_long(&self, plan: &CoderPlan) -> Result<CoderPlan> {
        self.trace(Caches::of(plan), plan.cache_plan.prefetch_distances.clone(), LONG_TRACE)
    }

    /// Runs the first `most` slices of the clip and the last slice on the tracing device.
    fn trace(
        &self,
        Caches { offloaded, streamed }: Caches,
        prefetch_distances: BTreeMap<usize, usize>,
        most: usize,
    ) -> Result<CoderPlan> {
        let Candidate { slice, chunk_frames, chunk_levels, breadth_first, strips } = self.candidate;
        let (planner, ops) = (self.planner, (self.device)());
        let cache_plan =
            CachePlan { chunk_frames, chunk_levels, offloaded, streamed, prefetch_distances, breadth_first, strips };
        let mut state = State::with_plan(cache_plan.clone());
        let prefetched = planner.coder.prefetch(&ops)?;
        let coder = prefetched.as_deref().unwrap_or(planner.coder);
        ops.finish()?;
        let TraceReport { time: prefetch_time, live: weights, .. } = ops.report();
        let all = slices(planner.frames, slice * planner.temporal_factor);
        let (mut resident_bytes, mut traced_frames) = (0, 0);
        for (i, frames) in all.iter().enumerate().filter(|(i, _)| *i < most || i + 1 == all.len()) {
            if i + 1 == all.len() {
                state.end_with_next();
            }
            let thw = Thw { t: frames.len(), h: planner.plane.h, w: planner.plane.w };
            let x = ops.upload(Shape::clip(thw, planner.coder.channels_in()), &[])?;
            coder.run(&ops, x, &mut state)?;
            traced_frames += frames.len();
            resident_bytes = resident_bytes.max(ops.report().live - weights);
        }
        let mut report = ops.report();
        report.time -= prefetch_time;
        report.waited -= prefetch_time;
        Ok(CoderPlan { slice, cache_plan, report, traced_frames, resident_bytes, prefetch_time })
    }
}
