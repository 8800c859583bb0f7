//! The order of computation in a slice: which layers run over which frames.

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;

use reseed_ops::{ConvOutput, Device, Tensor};

use super::parts::Part;
use super::state::State;
use crate::error::Result;

/// Layers that always run together.
pub trait Block {
    /// The cache slots of these layers.
    fn slots(&self) -> Range<usize>;
    /// Runs the layers over the next frames of a clip.
    fn forward(&self, ops: &dyn Device, x: ConvOutput, state: &mut State) -> Result<ConvOutput>;
}

/// A block, and the number of frames that it takes at a time.
pub struct Step<'a> {
    /// Name for reports.
    pub stage: &'a str,
    /// Frames at a time; by default as many as the step before it returns.
    pub at_once: Option<usize>,
    /// The block.
    pub block: &'a dyn Block,
}

impl Step<'_> {
    fn slot(&self) -> usize {
        self.block.slots().start
    }
}

impl State {
    /// Runs steps over a slice. Depth-first, a part of the slice passes all steps before the next part, which needs
    /// little memory. Breadth-first, all parts pass a step with an offloaded cache before the next step, so that the
    /// cache is copied once per slice.
    pub(crate) fn run(&mut self, ops: &dyn Device, steps: &[Step], x: ConvOutput) -> Result<ConvOutput> {
        let (mut parts, mut steps) = (vec![Part::from(x)], steps);
        while !steps.is_empty() {
            let (now, later) = steps.split_at(self.together(steps));
            parts = self.pass(ops, now, parts, later.first().map(Step::slot))?;
            steps = later;
        }
        let parts = parts.into_iter().map(|part| part.on_device(ops));
        parts.reduce(|all, part| joined(ops, all?, part?)).expect("a slice has frames")
    }

    /// The number of leading steps that each part passes before the next part. The output of a step that splits its
    /// input is never collected: after an upsampler parts are largest.
    fn together(&self, steps: &[Step]) -> usize {
        let offloaded = |step: &Step| step.block.slots().any(|slot| self.plan.offloaded.contains(&slot));
        let collect =
            |a: &Step, b: &Step| self.plan.breadth_first && a.at_once.is_none() && (offloaded(a) || offloaded(b));
        (1..steps.len()).find(|&i| collect(&steps[i - 1], &steps[i])).unwrap_or(steps.len())
    }

    /// Runs steps over one part after the other, each split as the first step requires. The results are collected for
    /// the step of slot `next`.
    fn pass(&mut self, ops: &dyn Device, steps: &[Step], parts: Vec<Part>, next: Option<usize>) -> Result<Vec<Part>> {
        let [step, rest @ ..] = steps else { return self.collect(ops, parts, next) };
        let mut parts = match step.at_once {
            Some(at_once) => self.split(ops, parts, at_once, step.slot())?,
            None => parts.into(),
        };
        let slots = step.slot()..steps[steps.len() - 1].block.slots().end;
        let (seen, repeated, later) = (self.seen, self.repeated.clone(), self.later);
        let mut done: Vec<Part> = Vec::new();
        while let Some(part) = parts.pop_front() {
            self.later = later + parts.len();
            self.repeated = if parts.is_empty() { repeated.clone() } else { slots.clone() };
            let after = next.filter(|_| self.later == 0);
            let part = part.on_device(ops)?;
            self.expect(Some(step.slot()), slots.end, parts.front());
            self.expect(after, slots.end, done.first());
            let frames = part.tensor.thw().t;
            ops.stage(step.stage);
            let part = step.block.forward(ops, part, self)?;
            let results = self.pass(ops, rest, vec![part.into()], next)?;
            self.receive(Some(step.slot()), parts.front_mut());
            self.receive(after, done.first_mut());
            done.extend(results);
            self.count(frames);
        }
        (self.seen, self.repeated, self.later) = (seen, repeated, later);
        Ok(done)
    }

    /// Results that wait for the step of slot `next`: the last ones wait for the shortest time.
    fn collect(&mut self, ops: &dyn Device, parts: Vec<Part>, next: Option<usize>) -> Result<Vec<Part>> {
        let plan = next.and_then(|next| self.plan.offloaded_inputs.get(&next));
        match plan.is_some_and(|plan| self.later >= plan.kept) {
            true => parts.into_iter().map(|part| self.offload_part(ops, part.x)).collect(),
            false => Ok(parts),
        }
    }

    /// Parts of at most `at_once` frames; the first frame of a clip is a part of its own. The first ones wait for the
    /// shortest time.
    fn split(&mut self, ops: &dyn Device, parts: Vec<Part>, at_once: usize, slot: usize) -> Result<VecDeque<Part>> {
        let kept = self.plan.offloaded_inputs.get(&slot).map_or(usize::MAX, |plan| plan.kept);
        let mut split = VecDeque::new();
        for part in parts {
            let frames = part.frames();
            let first = if self.starts() && split.is_empty() { 1 } else { at_once };
            if frames <= first {
                split.push_back(part);
                continue;
            }
            let part = part.on_device(ops)?;
            for start in iter::once(0).chain((first..frames).step_by(at_once)) {
                let end = frames.min(if start == 0 { first } else { start + at_once });
                let frames = part.frames(start, end - start);
                split.push_back(match split.len() < kept {
                    true => copied(ops, frames)?.into(),
                    false => self.offload_part(ops, frames)?,
                });
            }
        }
        Ok(split)
    }
}

/// A copy of frames that shares no memory with the others, so that layers may overwrite and free it. Statistics are few
/// and stay shared.
fn copied(ops: &dyn Device, x: ConvOutput) -> Result<ConvOutput> {
    let frames = x.tensor.thw().t;
    Ok(ConvOutput { tensor: ops.tail(None, x.tensor, frames)?, stats: x.stats })
}

/// Clip `b` appended to clip `a`, with the statistics.
fn joined(ops: &dyn Device, a: ConvOutput, b: ConvOutput) -> Result<ConvOutput> {
    let join = |a: Tensor, b: Tensor| {
        let frames = a.thw().t + b.thw().t;
        ops.tail(Some(a), b, frames)
    };
    let flat = |stats: Tensor| {
        let [t, groups, two] = *stats.shape().dims() else { panic!("statistics {stats:?}") };
        stats.reshape([t, 1, groups, two])
    };
    let stats = match (a.stats, b.stats) {
        (Some(a), Some(b)) => {
            let all = join(flat(a), flat(b))?;
            let (frames, groups) = (all.thw().t, all.thw().w);
            Some(all.reshape([frames, groups, 2]))
        }
        _ => None,
    };
    Ok(ConvOutput { tensor: join(a.tensor, b.tensor)?, stats })
}
