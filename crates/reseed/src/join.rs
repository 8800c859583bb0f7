//! Joins the batches of a shot: frames that two batches share are cross-faded.

use std::collections::VecDeque;
use std::f64::consts::PI;

use rayon::prelude::*;

/// Weights of the cross-fade: ½ + ½ cos(π p), a Hann ramp, with p from 0 to 1 over the shared frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// One shared frame is that of the earlier batch; more are cross-faded as by `Smooth`. The first frame of a batch
    /// is encoded without frames before it and comes out sharper than the others, so that it is better left out, and
    /// a result that is not mixed has no ghosts.
    #[default]
    Auto,
    /// A Hann ramp over all n shared frames: p = (i + 1) / (n + 1).
    Smooth,
    /// The ramp of the public pipeline: a Hann ramp over the middle third. With one, two or four shared frames it is a
    /// hard switch.
    Reference,
}

impl Overlap {
    /// Weight of the earlier batch in each shared frame; the later batch has the complement to 1.
    pub fn weights(self, shared: usize) -> Vec<f32> {
        let position = |i: usize| match self {
            Overlap::Auto if shared == 1 => 0.0,
            Overlap::Auto | Overlap::Smooth => (i + 1) as f64 / (shared + 1) as f64,
            Overlap::Reference if shared < 3 => i as f64,
            Overlap::Reference => (3.0 * i as f64 / (shared - 1) as f64 - 1.0).clamp(0.0, 1.0),
        };
        (0..shared).map(|i| (0.5 + 0.5 * (PI * position(i)).cos()) as f32).collect()
    }
}

/// The final frames that a batch added to the shot.
pub struct JoinedSlice<P> {
    /// Values `[H, W, 3]` of each frame.
    pub frames: Vec<Vec<f32>>,
    /// The payload of the batch.
    pub payload: P,
}

/// Cross-fades batches and holds frames until no later batch can change them.
pub struct Joiner<P> {
    weights: Vec<f32>,
    frames: VecDeque<Vec<f32>>,
    slices: VecDeque<(usize, P)>,
}

impl<P> Joiner<P> {
    /// A joiner of batches that share `shared` frames with their predecessor, or none at the start of a shot.
    pub fn new(mode: Overlap, shared: usize) -> Joiner<P> {
        Joiner { weights: mode.weights(shared), frames: VecDeque::new(), slices: VecDeque::new() }
    }

    /// Adds a batch whose first `shared` frames belong to the previous batch too; returns the slices that are final.
    /// Where the joiner starts in the middle of a shot, it has not all of the shared frames and drops the others.
    pub fn add(&mut self, batch: Vec<Vec<f32>>, shared: usize, payload: P) -> Vec<JoinedSlice<P>> {
        let mut done = if shared == 0 { self.finish() } else { Vec::new() };
        assert!(
            shared == 0 || shared == self.weights.len(),
            "{shared} shared frames instead of {}",
            self.weights.len()
        );
        let mut batch = batch.into_iter();
        let missing = shared.saturating_sub(self.frames.len());
        let first = self.frames.len() + missing - shared;
        batch.by_ref().take(missing).for_each(drop);
        let later = batch.by_ref().take(shared - missing);
        for ((earlier, later), weight) in
            self.frames.range_mut(first..).zip(later).zip(self.weights.iter().skip(missing))
        {
            blend(earlier, &later, *weight);
        }
        let before = self.frames.len();
        self.frames.extend(batch);
        self.slices.push_back((self.frames.len() - before, payload));
        while self.slices.front().is_some_and(|(count, _)| count + self.weights.len() <= self.frames.len()) {
            done.extend(self.pop());
        }
        done
    }

    /// Restores the frames of one batch that [`Joiner::held`] returned.
    pub fn restore(&mut self, frames: Vec<Vec<f32>>, payload: P) {
        self.slices.push_back((frames.len(), payload));
        self.frames.extend(frames);
    }

    /// The frames of each of the last batches that a later batch can still change.
    pub fn held(&self) -> Vec<Vec<Vec<f32>>> {
        let mut frames = self.frames.iter().cloned();
        self.slices.iter().map(|(count, _)| frames.by_ref().take(*count).collect()).collect()
    }

    /// Ends the shot; returns its remaining slices.
    pub fn finish(&mut self) -> Vec<JoinedSlice<P>> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    fn pop(&mut self) -> Option<JoinedSlice<P>> {
        let (count, payload) = self.slices.pop_front()?;
        Some(JoinedSlice { frames: self.frames.drain(..count).collect(), payload })
    }
}

/// earlier ← weight · earlier + (1 - weight) · later. With weight 1 the later batch is not needed.
fn blend(earlier: &mut [f32], later: &[f32], weight: f32) {
    if weight == 1.0 {
        return;
    }
    earlier.par_iter_mut().zip(later).with_min_len(1 << 13).for_each(|(e, l)| *e = *e * weight + l * (1.0 - weight));
}
