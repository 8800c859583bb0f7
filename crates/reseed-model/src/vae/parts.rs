//! A slice in parts: which layers run over which frames, one after the other.

use std::iter;
use std::ops::Range;

use reseed_ops::{ConvOutput, Ops, Tensor};

use super::state::State;
use crate::error::Result;

/// Some layers that always run together.
pub trait Block {
    /// The slots of these layers.
    fn slots(&self) -> Range<usize>;
    /// Runs them over the next frames of a clip.
    fn forward(&self, ops: &dyn Ops, x: ConvOutput, state: &mut State) -> Result<ConvOutput>;
}

/// A block on its way through a slice.
pub struct Step<'a> {
    /// What its time is counted under.
    pub stage: &'a str,
    /// Frames that it takes at a time, if not as many as the step before makes.
    pub at_once: Option<usize>,
    /// The block.
    pub block: &'a dyn Block,
}

impl State {
    /// Runs steps over a slice. Parts of it go through as many steps as they can, so that little of it exists at a time;
    /// but where a cache is offloaded and parts go abreast, all of them take that step before any takes the next, and the cache
    /// comes and leaves once.
    pub(crate) fn run(&mut self, ops: &dyn Ops, steps: &[Step], x: ConvOutput) -> Result<ConvOutput> {
        let (mut parts, mut steps) = (vec![x], steps);
        while !steps.is_empty() {
            let (now, later) = steps.split_at(self.together(steps));
            parts = self.pass(ops, now, parts)?;
            steps = later;
        }
        parts.into_iter().map(Ok).reduce(|all, part| joined(ops, all?, part?)).expect("a slice has frames")
    }

    /// How many of these steps, the first at least, a part takes before the next part takes any. What a step that cuts makes
    /// is never collected: with a step up parts are largest there.
    fn together(&self, steps: &[Step]) -> usize {
        let offloaded = |step: &Step| step.block.slots().any(|slot| self.keeping.offloaded.contains(&slot));
        let meet =
            |a: &Step, b: &Step| self.keeping.breadth_first && a.at_once.is_none() && (offloaded(a) || offloaded(b));
        (1..steps.len()).find(|&i| meet(&steps[i - 1], &steps[i])).unwrap_or(steps.len())
    }

    /// Runs steps over one part after the other, each cut as short as the first of them wants.
    fn pass(&mut self, ops: &dyn Ops, steps: &[Step], parts: Vec<ConvOutput>) -> Result<Vec<ConvOutput>> {
        let [step, rest @ ..] = steps else { return Ok(parts) };
        let parts = match step.at_once {
            Some(at_once) => self.cut(ops, parts, at_once)?,
            None => parts,
        };
        let slots = step.block.slots().start..steps[steps.len() - 1].block.slots().end;
        let (seen, outer, mut left) = (self.seen, self.again.clone(), parts.len());
        let mut done = Vec::new();
        for part in parts {
            left -= 1;
            self.again = if left > 0 { slots.clone() } else { outer.clone() };
            let frames = part.tensor.thw().t;
            ops.stage(step.stage);
            let part = step.block.forward(ops, part, self)?;
            done.extend(self.pass(ops, rest, vec![part])?);
            self.see(frames);
        }
        (self.seen, self.again) = (seen, outer);
        Ok(done)
    }

    /// Parts of at most `at_once` frames; the frame that a clip starts with is one of its own.
    fn cut(&self, ops: &dyn Ops, parts: Vec<ConvOutput>, at_once: usize) -> Result<Vec<ConvOutput>> {
        let mut cut = Vec::new();
        for part in parts {
            let frames = part.tensor.thw().t;
            let first = if self.starts() && cut.is_empty() { 1 } else { at_once };
            if frames <= first {
                cut.push(part);
                continue;
            }
            for start in iter::once(0).chain((first..frames).step_by(at_once)) {
                let end = frames.min(if start == 0 { first } else { start + at_once });
                cut.push(copied(ops, part.frames(start, end - start))?);
            }
        }
        Ok(cut)
    }
}

/// The same frames in memory of their own, which layers may work in and which is free when they are done with it; their
/// few statistics may stay.
fn copied(ops: &dyn Ops, x: ConvOutput) -> Result<ConvOutput> {
    let frames = x.tensor.thw().t;
    Ok(ConvOutput { tensor: ops.tail(None, x.tensor, frames)?, stats: x.stats })
}

/// One clip behind the other, with their statistics.
fn joined(ops: &dyn Ops, a: ConvOutput, b: ConvOutput) -> Result<ConvOutput> {
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
