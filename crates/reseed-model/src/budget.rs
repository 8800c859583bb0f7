//! Which plan runs a clip inside a budget: the model itself, on the device that only counts, says what each one takes.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use reseed_ops::{Hw, Shape, Thw, Timing, TraceOps, TraceReport, Transfer};

use crate::error::Result;
use crate::plan::{CachePlan, slices};
use crate::vae::{Coder, State};

/// One half of the VAE over a clip.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The half, loaded on a device that only counts.
    pub half: &'a dyn Coder,
    /// Frames of its input that make one latent frame: 1 for the decoder.
    pub factor: usize,
    /// Plane of its input.
    pub plane: Hw,
    /// Frames of its input.
    pub frames: usize,
}

/// Slices, what is kept where, and what that takes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Latent frames of a slice.
    pub slice: usize,
    /// What is kept where.
    pub keeping: CachePlan,
    /// Of a run that uses it, over the first slices and the last.
    pub report: TraceReport,
    /// Frames of the input in those slices.
    pub frames: usize,
    /// Bytes on the device between slices.
    pub kept: usize,
    /// Nanoseconds until the half's layers are there, where they wait in the host's memory. Not among the report's.
    pub coming: u64,
}

/// What plans differ in beside the caches that are offloaded.
#[derive(Clone, Copy)]
struct Candidate {
    /// Latent frames of a slice.
    slice: usize,
    /// Frames at once, in how many levels.
    at_once: (usize, usize),
    /// Whether they go abreast.
    abreast: bool,
    strips: bool,
}

const fn deep(slice: usize, at_once: (usize, usize)) -> Candidate {
    Candidate { slice, at_once, abreast: false, strips: false }
}

const fn abreast(slice: usize, at_once: (usize, usize)) -> Candidate {
    Candidate { abreast: true, ..deep(slice, at_once) }
}

const CANDIDATES: &[Candidate] = &[
    deep(2, (2, 2)),
    deep(2, (2, 1)),
    deep(1, (2, 1)),
    deep(1, (2, 2)),
    abreast(2, (1, 2)),
    abreast(1, (2, 1)),
    abreast(1, (1, 1)),
    deep(1, (1, 1)),
    deep(1, (1, 2)),
    // Strips keep the card waiting: for when nothing else fits.
    Candidate { strips: true, ..deep(1, (1, 2)) },
];

impl Job<'_> {
    /// The plan with slices of `slice` latent frames, or of any length, that takes at most `budget` bytes and the least
    /// time; where none fits, the one that takes the least memory.
    pub fn plan(&self, device: &dyn Fn() -> TraceOps, slice: Option<usize>, budget: usize) -> Result<Plan> {
        let mut goal = budget;
        loop {
            let (search, plan) = self.fastest(device, slice, goal)?;
            // Tensors change their places from slice to slice, and gaps between them grow for a while.
            let long = search.traced(plan.keeping.offloaded.clone(), plan.keeping.leads.clone(), LONG)?;
            if long.report.arena <= budget || !search.fits(&plan) {
                return Ok(long);
            }
            goal = goal.saturating_sub(long.report.arena - budget);
        }
    }

    /// The same, judged by the first slices.
    fn fastest<'a>(
        &'a self,
        device: &'a dyn Fn() -> TraceOps,
        slice: Option<usize>,
        budget: usize,
    ) -> Result<(Search<'a>, Plan)> {
        let mut found: Vec<(Search, Plan)> = Vec::new();
        for candidate in CANDIDATES {
            let search = self.search(device, with_slice(candidate, slice), budget);
            let fits = |(_, plan): &&(Search, Plan)| search.fits(plan);
            if candidate.strips && found.iter().any(|found| fits(&found)) {
                break;
            }
            let fastest = found.iter().filter(fits).map(|(_, plan)| plan.report.time).min();
            let plan = search.run(fastest)?;
            found.push((search, plan));
        }
        found.sort_by_key(|(search, plan)| match search.fits(plan) {
            true => (0, plan.report.time),
            false => (plan.report.arena, 0),
        });
        let mut best: Option<(Search, Plan)> = None;
        for (i, (search, plan)) in found.into_iter().enumerate() {
            let plan = if i < IMPROVED { search.improved(plan)? } else { plan };
            if best.as_ref().is_none_or(|(_, best)| search.better(&plan, best)) {
                best = Some((search, plan));
            }
        }
        Ok(best.expect("there are candidates"))
    }

    fn search<'a>(&'a self, device: &'a dyn Fn() -> TraceOps, candidate: Candidate, budget: usize) -> Search<'a> {
        Search { job: self, device, candidate, budget, order: OnceCell::new() }
    }

    /// The same for a clip that leaves nothing on the device between slices, so that others can take turns with it.
    pub fn plan_apart(&self, device: &dyn Fn() -> TraceOps, slice: Option<usize>, budget: usize) -> Result<Plan> {
        let mut best: Option<Plan> = None;
        for candidate in CANDIDATES {
            let search = self.search(device, with_slice(candidate, slice), budget);
            let plan = search.offloaded()?;
            if best.as_ref().is_none_or(|best| search.better(&plan, best)) {
                best = Some(plan);
            }
        }
        Ok(best.expect("there are candidates"))
    }
}

/// Slices that tell how fast a plan is: all between the third and the last do the same.
const SHORT: usize = 4;
/// Slices that tell what memory it takes.
const LONG: usize = 200;
/// Slots between places to look for a plan from.
const STARTS: usize = 3;
/// How many of the candidates that were found to be the fastest are improved.
const IMPROVED: usize = 2;
/// Steps of a walk that leads through slower plans, how many caches are moved in one at most, and by how much a plan may well be
/// slower at its start.
const STEPS: usize = 600;
const MOVED: u64 = 3;
const HEAT: f64 = 0.04;
/// Offloaded layers that run while a cache comes back, at most.
const MOST_LEAD: usize = 2;
/// The share of a plan's time, one in so many, that it must wait to be worth that.
const WORTH: u64 = 50;

fn with_slice(candidate: &Candidate, slice: Option<usize>) -> Candidate {
    Candidate { slice: slice.unwrap_or(candidate.slice), ..*candidate }
}

/// Looks for the caches to offload.
struct Search<'a> {
    job: &'a Job<'a>,
    device: &'a dyn Fn() -> TraceOps,
    candidate: Candidate,
    budget: usize,
    /// All slots, those first whose caches cost most copies, once somebody has asked.
    order: OnceCell<Vec<usize>>,
}

impl Search<'_> {
    fn fits(&self, plan: &Plan) -> bool {
        plan.report.arena <= self.budget
    }

    /// Whether `plan` is the one to take of two. A hundredth of the time is worth no memory.
    fn better(&self, plan: &Plan, other: &Plan) -> bool {
        let (a, b) = (&plan.report, &other.report);
        match (self.fits(plan), self.fits(other)) {
            (true, true) => a.time < b.time - b.time / 100 || a.time < b.time + b.time / 100 && a.arena < b.arena,
            (fits, _) => fits || a.arena < b.arena,
        }
    }

    /// A fast plan, unless `fastest` is less time than any could take; all is offloaded where nothing fits.
    fn run(&self, fastest: Option<u64>) -> Result<Plan> {
        let resident = self.trace(BTreeSet::new())?;
        if self.fits(&resident) {
            return Ok(resident);
        }
        let offloaded = self.offloaded()?;
        let least = offloaded.report.time - offloaded.report.waited;
        if !self.fits(&offloaded) || fastest.is_some_and(|time| time < least) {
            return Ok(offloaded);
        }
        self.prefetched(offloaded)
    }

    /// All is offloaded and, where that does not fit otherwise, comes back as late as it must.
    fn offloaded(&self) -> Result<Plan> {
        let all: BTreeSet<usize> = (0..self.job.half.slots()).collect();
        let plan = self.trace(all.clone())?;
        if self.fits(&plan) {
            return Ok(plan);
        }
        let leads = all.iter().map(|&slot| (slot, 0)).collect();
        self.retimed(self.traced(all, leads, SHORT)?)
    }

    /// Keeps caches on the device while they fit, those first that save most copies.
    fn prefetched(&self, mut plan: Plan) -> Result<Plan> {
        for &slot in self.order()? {
            if !plan.keeping.offloaded.contains(&slot) {
                continue;
            }
            let other = self.moved(&plan, &[slot])?;
            if self.fits(&other) && other.report.time <= plan.report.time {
                plan = other;
            }
        }
        Ok(plan)
    }

    /// All slots, those first whose caches cost most copies.
    fn order(&self) -> Result<&[usize]> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        let copied = |slot: usize| Ok((Reverse(self.trace(BTreeSet::from([slot]))?.report.copied), slot));
        let mut slots = (0..self.job.half.slots()).map(copied).collect::<Result<Vec<_>>>()?;
        slots.sort();
        Ok(self.order.get_or_init(|| slots.into_iter().map(|(_, slot)| slot).collect()))
    }

    /// A faster plan that parks other caches, as long as one is found.
    fn improved(&self, mut plan: Plan) -> Result<Plan> {
        if plan.keeping.offloaded.is_empty() || !self.fits(&plan) {
            return Ok(plan);
        }
        plan = self.started_late(plan)?;
        loop {
            let before = plan.report.time;
            plan = self.swapped(plan)?;
            plan = self.prefetched(plan)?;
            if plan.report.time >= before {
                return self.retimed(self.annealed(self.retimed(plan)?)?);
            }
        }
    }

    /// A faster plan that was come to by way of slower ones: caches are moved at random, and what is worse is gone on from the more
    /// rarely the worse it is and the later. The numbers drawn are always the same.
    fn annealed(&self, mut plan: Plan) -> Result<Plan> {
        if plan.report.waited < plan.report.time / WORTH {
            return Ok(plan);
        }
        let (mut best, mut random, slots) = (plan.clone(), 1u64, self.job.half.slots() as u64);
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for left in (1..=STEPS).rev() {
            let moved: Vec<usize> = (0..=draw(MOVED)).map(|_| draw(slots) as usize).collect();
            let other = self.moved(&plan, &moved)?;
            let worse = other.report.time as f64 / plan.report.time as f64 - 1.0;
            let chance = (-worse / (HEAT * left as f64 / STEPS as f64)).exp();
            if self.fits(&other) && (draw(1 << 20) as f64) < chance * f64::from(1 << 20) {
                plan = other;
                best = if plan.report.time < best.report.time { plan.clone() } else { best };
            }
        }
        Ok(best)
    }

    /// Brings caches back earlier, or later, where that is faster. One that does not fit may then do so: things lie elsewhere.
    fn retimed(&self, mut plan: Plan) -> Result<Plan> {
        let slots = plan.keeping.offloaded.clone();
        for (slot, lead) in slots.into_iter().flat_map(|slot| (0..=MOST_LEAD).map(move |lead| (slot, lead))) {
            if lead == plan.keeping.lead(slot) {
                continue;
            }
            let CachePlan { offloaded, mut leads, .. } = plan.keeping.clone();
            leads.insert(slot, lead);
            let other = self.traced(offloaded, leads, SHORT)?;
            plan = if self.fits(&other) && other.report.time < plan.report.time { other } else { plan };
        }
        Ok(plan)
    }

    /// A faster plan that was looked for from where only layers next to the output are offloaded.
    fn started_late(&self, mut plan: Plan) -> Result<Plan> {
        let slots = self.job.half.slots();
        for first in (STARTS..slots).step_by(STARTS) {
            let start = self.traced((first..slots).collect(), plan.keeping.leads.clone(), SHORT)?;
            if !self.fits(&start) {
                break;
            }
            let other = self.prefetched(start)?;
            plan = if other.report.time < plan.report.time { other } else { plan };
        }
        Ok(plan)
    }

    /// Parks a cache in place of another where that is faster.
    fn swapped(&self, mut plan: Plan) -> Result<Plan> {
        let slots = 0..self.job.half.slots();
        let (offloaded, here): (Vec<usize>, Vec<usize>) = slots.partition(|slot| plan.keeping.offloaded.contains(slot));
        for slot in offloaded {
            for &other in &here {
                let swapped = self.moved(&plan, &[slot, other])?;
                if self.fits(&swapped) && swapped.report.time < plan.report.time {
                    plan = swapped;
                }
            }
        }
        Ok(plan)
    }

    /// The plan with these caches kept elsewhere than now.
    fn moved(&self, plan: &Plan, slots: &[usize]) -> Result<Plan> {
        let CachePlan { offloaded, leads, .. } = &plan.keeping;
        self.traced(offloaded ^ &slots.iter().copied().collect(), leads.clone(), SHORT)
    }

    fn trace(&self, offloaded: BTreeSet<usize>) -> Result<Plan> {
        self.traced(offloaded, BTreeMap::new(), SHORT)
    }

    /// Runs the first `most` slices of the clip on the tracing device, and the last.
    fn traced(&self, offloaded: BTreeSet<usize>, leads: BTreeMap<usize, usize>, most: usize) -> Result<Plan> {
        let Candidate { slice, at_once: (at_once, levels), abreast, strips } = self.candidate;
        let (job, ops) = (self.job, (self.device)());
        let keeping = CachePlan { at_once, levels, offloaded, leads, abreast, strips };
        let mut state = State::with_plan(keeping.clone());
        let here = job.half.prefetch(&ops)?;
        let half = here.as_deref().unwrap_or(job.half);
        ops.finish()?;
        let TraceReport { time: coming, live: weights, .. } = ops.report();
        let all = slices(job.frames, slice * job.factor);
        let (mut kept, mut seen) = (0, 0);
        for (i, frames) in all.iter().enumerate().filter(|(i, _)| *i < most || i + 1 == all.len()) {
            if i + 1 == all.len() {
                state.end_with_next();
            }
            let thw = Thw { t: frames.len(), h: job.plane.h, w: job.plane.w };
            let x = ops.upload(Shape::clip(thw, job.half.channels_in()), &[])?;
            half.run(&ops, x, &mut state)?;
            seen += frames.len();
            kept = kept.max(ops.report().live - weights);
        }
        let mut report = ops.report();
        report.time -= coming;
        report.waited -= coming;
        Ok(Plan { slice, keeping, report, frames: seen, kept, coming })
    }
}
