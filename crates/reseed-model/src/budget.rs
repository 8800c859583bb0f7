//! Which plan runs a clip inside a budget: the model itself, on the device that only counts, says what each one takes.

use reseed_ops::{Hw, Ledger, Ops, Shape, Thw, TraceOps};

use crate::error::Result;
use crate::plan::{Keeping, slices};
use crate::vae::{Half, State};

/// One half of the VAE over a clip.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The half, loaded on a device that only counts.
    pub half: &'a dyn Half,
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
    pub keeping: Keeping,
    /// Of a run that uses it.
    pub ledger: Ledger,
}

impl Plan {
    /// Whether the result waits for nothing but arithmetic.
    fn is_resident(&self) -> bool {
        self.keeping.parked.is_empty()
    }
}

/// Latent frames of a slice, frames at once, in how many levels, and whether in strips, the fastest first.
const CANDIDATES: &[(usize, usize, usize, bool)] = &[
    (2, 2, 2, false),
    (2, 2, 1, false),
    (1, 2, 1, false),
    (1, 2, 2, false),
    (1, 1, 1, false),
    (1, 1, 2, false),
    (1, 1, 2, true),
];

#[derive(Clone, Copy)]
struct Candidate {
    slice: usize,
    at_once: usize,
    levels: usize,
    strips: bool,
}

impl Job<'_> {
    /// The plan with slices of `slice` latent frames, or of any length, that takes at most `budget` bytes and copies
    /// least; where none fits, the one that takes least.
    pub fn plan(&self, device: &dyn Fn() -> TraceOps, slice: Option<usize>, budget: usize) -> Result<Plan> {
        let mut best: Option<Plan> = None;
        for &(length, at_once, levels, strips) in CANDIDATES {
            let candidate = Candidate { slice: slice.unwrap_or(length), at_once, levels, strips };
            let plan = self.smallest(device, candidate, budget)?;
            let fits = |plan: &Plan| plan.ledger.arena <= budget;
            let better = |best: &Plan| match (fits(&plan), fits(best)) {
                // Strips keep the card waiting, whatever they save.
                (true, true) => plan.ledger.copied < best.ledger.copied && !strips,
                (fits, _) => fits || plan.ledger.arena < best.ledger.arena,
            };
            if best.as_ref().is_none_or(better) {
                best = Some(plan);
            }
            if best.as_ref().is_some_and(|best| fits(best) && best.is_resident()) {
                break;
            }
        }
        Ok(best.expect("there are candidates"))
    }

    /// The plan that parks the fewest layers and fits, or parks all. Parking one more never takes more memory, so that the
    /// number is found by halves.
    fn smallest(&self, device: &dyn Fn() -> TraceOps, candidate: Candidate, budget: usize) -> Result<Plan> {
        let trace = |parked: usize| self.trace(&device(), candidate, parked);
        let mut plan = trace(0)?;
        if plan.ledger.arena <= budget {
            return Ok(plan);
        }
        let (mut too_few, mut enough) = (0, self.half.deep_slots(usize::MAX).len());
        plan = trace(enough)?;
        while plan.ledger.arena <= budget && enough - too_few > 1 {
            let middle = (too_few + enough) / 2;
            let other = trace(middle)?;
            match other.ledger.arena <= budget {
                true => (enough, plan) = (middle, other),
                false => too_few = middle,
            }
        }
        Ok(plan)
    }

    /// Runs the clip on the tracing device. All slices between the third and the last are alike.
    fn trace(&self, ops: &TraceOps, candidate: Candidate, parked: usize) -> Result<Plan> {
        let Candidate { slice, at_once, levels, strips } = candidate;
        let keeping = Keeping { at_once, levels, parked: self.half.deep_slots(parked), strips };
        let mut state = State::kept(keeping.clone());
        let all = slices(self.frames, slice * self.factor);
        for (i, frames) in all.iter().enumerate().filter(|(i, _)| *i < 4 || i + 1 == all.len()) {
            if i + 1 == all.len() {
                state.end_with_next();
            }
            let thw = Thw { t: frames.len(), h: self.plane.h, w: self.plane.w };
            let x = ops.upload(Shape::clip(thw, self.half.channels_in()), &[])?;
            self.half.run(ops, x, &mut state)?;
        }
        Ok(Plan { slice, keeping, ledger: ops.ledger() })
    }
}
