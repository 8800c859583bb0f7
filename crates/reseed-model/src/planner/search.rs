//! Search for the caches to offload: a greedy pass, swaps, then simulated annealing.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use reseed_ops::{Shape, Thw, Timing, TraceOps, TraceReport, Transfer};

use super::{Candidate, CoderPlan, CoderPlanner};
use crate::error::Result;
use crate::plan::{CachePlan, InputPlan, slices};
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
/// Most input chunks of a block that stay on the device while others are offloaded.
const MAX_KEPT: usize = 6;
/// Maximum prefetch distance of input chunks: the slots of the longest block.
const MAX_INPUT_DISTANCE: usize = 4;

/// Search over the sets of offloaded caches for one candidate.
pub(super) struct Search<'a> {
    planner: &'a CoderPlanner<'a>,
    device: &'a dyn Fn() -> TraceOps,
    candidate: Candidate,
    budget: usize,
    /// Changes in descending order of the bytes that a cache copies, computed on first use.
    order: OnceCell<Vec<Change>>,
    /// Result of [`Search::inputs`].
    inputs: OnceCell<Vec<usize>>,
}

/// Offloads the cache of a slot, streams it if it is offloaded, or offloads the waiting inputs of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Offload(usize),
    Stream(usize),
    Input(usize),
}

impl Change {
    fn is_made(self, plan: &CachePlan) -> bool {
        match self {
            Change::Offload(slot) => plan.offloaded.contains(&slot),
            Change::Stream(slot) => plan.streamed.contains(&slot),
            Change::Input(slot) => plan.offloaded_inputs.contains_key(&slot),
        }
    }

    /// Makes the change, or undoes it where it is made already.
    fn toggle(self, plan: &mut CachePlan) {
        let toggle = |set: &mut BTreeSet<usize>, slot| {
            if !set.remove(&slot) {
                set.insert(slot);
            }
        };
        match self {
            Change::Offload(slot) => toggle(&mut plan.offloaded, slot),
            Change::Stream(slot) => toggle(&mut plan.streamed, slot),
            Change::Input(slot) => {
                if plan.offloaded_inputs.remove(&slot).is_none() {
                    plan.offloaded_inputs.insert(slot, InputPlan::default());
                }
            }
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
        Search { planner, device, candidate, budget, order: OnceCell::new(), inputs: OnceCell::new() }
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

    /// The best of the greedy plans. The search stops early when `fastest` is below the compute time of this candidate.
    /// All caches are offloaded when no plan fits.
    pub fn greedy(&self, fastest: Option<u64>) -> Result<CoderPlan> {
        let resident = self.trace(self.resident(), SHORT_TRACE)?;
        if self.fits(&resident) {
            return Ok(resident);
        }
        let greedy = |start: CoderPlan| {
            let compute = start.report.time - start.report.waited;
            let searched = self.fits(&start) && fastest.is_none_or(|time| time >= compute);
            if searched { self.keep_resident(start) } else { Ok(start) }
        };
        self.best(self.starts()?.into_iter().map(greedy).collect::<Result<_>>()?)
    }

    /// The best plan with all caches offloaded.
    pub fn offload_all(&self) -> Result<CoderPlan> {
        self.best(self.starts()?)
    }

    fn best(&self, plans: Vec<CoderPlan>) -> Result<CoderPlan> {
        let better = |best, plan| if self.is_better(&plan, &best) { plan } else { best };
        Ok(plans.into_iter().reduce(better).expect("a search has a start"))
    }

    /// Plans with all caches offloaded. Where that does not fit, prefetches start as late as possible; breadth-first,
    /// caches are streamed, inputs are offloaded, or both.
    fn starts(&self) -> Result<Vec<CoderPlan>> {
        let all: BTreeSet<usize> = (0..self.planner.coder.slots()).collect();
        let caches = CachePlan { offloaded: all.clone(), ..self.resident() };
        let plan = self.trace(caches.clone(), SHORT_TRACE)?;
        if self.fits(&plan) {
            return Ok(vec![plan]);
        }
        let late = CachePlan { prefetch_distances: all.iter().map(|&slot| (slot, 0)).collect(), ..caches };
        if !self.candidate.breadth_first {
            return Ok(vec![self.tune_prefetch(self.trace(late, SHORT_TRACE)?)?]);
        }
        let input = InputPlan { kept: 1, prefetch_distance: 0 };
        let offloaded_inputs: BTreeMap<_, _> = self.inputs()?.iter().map(|&slot| (slot, input)).collect();
        let streams = CachePlan { streamed: all, ..late.clone() };
        let both = CachePlan { offloaded_inputs: offloaded_inputs.clone(), ..streams.clone() };
        let plans = [streams, CachePlan { offloaded_inputs, ..late }, both];
        plans.into_iter().map(|plan| self.tune_prefetch(self.trace(plan, SHORT_TRACE)?)).collect()
    }

    /// Moves caches back to the device while they fit, in descending order of their copied bytes.
    fn keep_resident(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        for &change in self.order()? {
            if !change.is_made(&plan.cache_plan) {
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
        let copied = |change: Change| Ok((Reverse(self.copied(change)?), change));
        let mut changes = self.changes(true, true)?.into_iter().map(copied).collect::<Result<Vec<_>>>()?;
        changes.sort();
        Ok(self.order.get_or_init(|| changes.into_iter().map(|(_, change)| change).collect()))
    }

    /// Bytes that a change copies where no other cache is offloaded.
    fn copied(&self, change: Change) -> Result<usize> {
        let (Change::Offload(slot) | Change::Stream(slot) | Change::Input(slot)) = change;
        let mut plan = CachePlan { offloaded: BTreeSet::from([slot]), ..self.resident() };
        if change != Change::Offload(slot) {
            change.toggle(&mut plan);
        }
        Ok(self.trace(plan, SHORT_TRACE)?.report.copied)
    }

    /// First slots of the blocks whose input chunks can wait: offloading these copies more than the cache alone.
    fn inputs(&self) -> Result<&[usize]> {
        if let Some(inputs) = self.inputs.get() {
            return Ok(inputs);
        }
        let mut inputs = Vec::new();
        for slot in (0..self.planner.coder.slots()).filter(|_| self.candidate.breadth_first) {
            if self.copied(Change::Input(slot))? > self.copied(Change::Offload(slot))? {
                inputs.push(slot);
            }
        }
        Ok(self.inputs.get_or_init(|| inputs))
    }

    /// What can be changed in a plan of this candidate, which may stream caches and offload inputs or not.
    fn changes(&self, streams: bool, inputs: bool) -> Result<Vec<Change>> {
        let slots = 0..self.planner.coder.slots();
        let streamed = slots.clone().filter(|_| streams && self.candidate.breadth_first).map(Change::Stream);
        let inputs = if inputs { self.inputs()? } else { &[] };
        Ok(slots.map(Change::Offload).chain(streamed).chain(inputs.iter().copied().map(Change::Input)).collect())
    }

    /// The changes that the search tries. Caches are streamed and inputs offloaded only if the plan does not fit
    /// otherwise.
    fn tried(&self, plan: &CoderPlan) -> Result<Vec<Change>> {
        self.changes(!plan.cache_plan.streamed.is_empty(), !plan.cache_plan.offloaded_inputs.is_empty())
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
        let (mut best, mut random, changes) = (plan.clone(), 1u64, self.tried(&plan)?);
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
            let mut cache_plan = plan.cache_plan.clone();
            cache_plan.prefetch_distances.insert(slot, distance);
            plan = self.faster(plan, cache_plan)?;
        }
        let inputs: Vec<usize> = plan.cache_plan.offloaded_inputs.keys().copied().collect();
        for slot in inputs {
            for kept in 1..=MAX_KEPT {
                plan = self.with_input(plan, slot, |input| InputPlan { kept, ..input })?;
            }
            for prefetch_distance in 0..=MAX_INPUT_DISTANCE {
                plan = self.with_input(plan, slot, |input| InputPlan { prefetch_distance, ..input })?;
            }
        }
        Ok(plan)
    }

    /// The plan with the inputs of a block changed, where that is faster.
    fn with_input(&self, plan: CoderPlan, slot: usize, change: impl Fn(InputPlan) -> InputPlan) -> Result<CoderPlan> {
        let (mut cache_plan, before) = (plan.cache_plan.clone(), plan.cache_plan.offloaded_inputs[&slot]);
        let after = change(before);
        cache_plan.offloaded_inputs.insert(slot, after);
        if after == before { Ok(plan) } else { self.faster(plan, cache_plan) }
    }

    /// The faster one of a plan and another one that fits.
    fn faster(&self, plan: CoderPlan, other: CachePlan) -> Result<CoderPlan> {
        let other = self.trace(other, SHORT_TRACE)?;
        Ok(if self.fits(&other) && other.report.time < plan.report.time { other } else { plan })
    }

    /// Repeats the greedy pass from start points where only the last layers are offloaded.
    fn restart_late(&self, mut plan: CoderPlan) -> Result<CoderPlan> {
        let slots = self.planner.coder.slots();
        for first in (START_STRIDE..slots).step_by(START_STRIDE) {
            let last: BTreeSet<usize> = (first..slots).collect();
            let streamed = &last & &plan.cache_plan.streamed;
            let late = CachePlan { offloaded: last, streamed, ..plan.cache_plan.clone() };
            let start = self.trace(late, SHORT_TRACE)?;
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
        let (copied, kept): (Vec<Change>, Vec<Change>) =
            self.tried(&plan)?.into_iter().partition(|change| change.is_made(&plan.cache_plan));
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
        let mut cache_plan = plan.cache_plan.clone();
        let unique: BTreeSet<Change> = changes.iter().copied().collect();
        unique.into_iter().for_each(|change| change.toggle(&mut cache_plan));
        self.trace(cache_plan, SHORT_TRACE)
    }

    /// The plan of this candidate with all caches on the device.
    fn resident(&self) -> CachePlan {
        let Candidate { chunk_frames, chunk_levels, breadth_first, strips, .. } = self.candidate;
        CachePlan { chunk_frames, chunk_levels, breadth_first, strips, ..CachePlan::default() }
    }

    /// Traces enough slices of a plan for its peak memory.
    pub fn trace_long(&self, plan: &CoderPlan) -> Result<CoderPlan> {
        self.trace(plan.cache_plan.clone(), LONG_TRACE)
    }

    /// Runs the first `most` slices of the clip and the last slice on the tracing device.
    fn trace(&self, cache_plan: CachePlan, most: usize) -> Result<CoderPlan> {
        let (planner, slice, ops) = (self.planner, self.candidate.slice, (self.device)());
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
