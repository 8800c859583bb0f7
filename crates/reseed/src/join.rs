//! Joins the batches of a shot: frames that two of them share are cross-faded.

use std::collections::VecDeque;
use std::f64::consts::PI;

use rayon::prelude::*;

/// Weights of the cross-fade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// A raised cosine over all shared frames.
    #[default]
    Smooth,
    /// The public pipeline's: a raised cosine over the middle third, which is a cut for one, two and four frames.
    Reference,
}

impl Overlap {
    /// The weight of the earlier batch in each of the shared frames; the later one has the rest.
    pub fn weights(self, shared: usize) -> Vec<f32> {
        let position = |i: usize| match self {
            Overlap::Smooth => (i + 1) as f64 / (shared + 1) as f64,
            Overlap::Reference if shared < 3 => i as f64,
            Overlap::Reference => (3.0 * i as f64 / (shared - 1) as f64 - 1.0).clamp(0.0, 1.0),
        };
        (0..shared).map(|i| (0.5 + 0.5 * (PI * position(i)).cos()) as f32).collect()
    }
}

/// Frames that one batch brought, and whatever travels with them.
pub struct Slice<P> {
    /// The frames, final.
    pub frames: Vec<Vec<f32>>,
    /// What was given with their batch.
    pub payload: P,
}

/// Holds frames until no later batch can change them.
pub struct Joiner<P> {
    weights: Vec<f32>,
    frames: VecDeque<Vec<f32>>,
    slices: VecDeque<(usize, P)>,
}

impl<P> Joiner<P> {
    /// For batches that share `shared` frames with the one before, or none at the start of a shot.
    pub fn new(mode: Overlap, shared: usize) -> Joiner<P> {
        Joiner { weights: mode.weights(shared), frames: VecDeque::new(), slices: VecDeque::new() }
    }

    /// Takes a batch of which the first `shared` frames were in the one before; gives the slices that are final.
    pub fn add(&mut self, batch: Vec<Vec<f32>>, shared: usize, payload: P) -> Vec<Slice<P>> {
        let mut done = if shared == 0 { self.finish() } else { Vec::new() };
        assert!(shared == 0 || shared == self.weights.len(), "{shared} shared frames of {}", self.weights.len());
        let mut batch = batch.into_iter();
        let first = self.frames.len() - shared;
        for ((earlier, later), weight) in
            self.frames.range_mut(first..).zip(batch.by_ref().take(shared)).zip(&self.weights)
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

    /// Takes back what [`Joiner::held`] gave for a batch.
    pub fn restore(&mut self, frames: Vec<Vec<f32>>, payload: P) {
        self.slices.push_back((frames.len(), payload));
        self.frames.extend(frames);
    }

    /// What each of the last batches brought and a later one can still change.
    pub fn held(&self) -> Vec<Vec<Vec<f32>>> {
        let mut frames = self.frames.iter().cloned();
        self.slices.iter().map(|(count, _)| frames.by_ref().take(*count).collect()).collect()
    }

    /// Ends the shot; gives what is left of it.
    pub fn finish(&mut self) -> Vec<Slice<P>> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    fn pop(&mut self) -> Option<Slice<P>> {
        let (count, payload) = self.slices.pop_front()?;
        Some(Slice { frames: self.frames.drain(..count).collect(), payload })
    }
}

fn blend(earlier: &mut [f32], later: &[f32], weight: f32) {
    earlier.par_iter_mut().zip(later).with_min_len(1 << 13).for_each(|(e, l)| *e = *e * weight + l * (1.0 - weight));
}
