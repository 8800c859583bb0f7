//! Joins the batches of a shot: frames that two batches share are cross-faded.

use std::collections::VecDeque;
use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;
use reseed_ops::{FrameValues, Result};

use crate::names;

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

const NAMES: [(&str, Overlap); 3] =
    [("auto", Overlap::Auto), ("smooth", Overlap::Smooth), ("reference", Overlap::Reference)];

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::name_of(&NAMES, *self))
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Overlap, String> {
        names::named(&NAMES, text).map_err(|known| format!("`{text}` is not {known}"))
    }
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
    /// The values of each frame.
    pub frames: Vec<FrameValues>,
    /// The payload of the batch.
    pub payload: P,
}

/// Cross-fades batches and holds frames until no later batch can change them.
pub struct Joiner<P> {
    weights: Vec<f32>,
    /// Frames at the end of a batch that the next one changes.
    changing: usize,
    frames: VecDeque<FrameValues>,
    slices: VecDeque<(usize, P)>,
}

impl<P> Joiner<P> {
    /// A joiner of batches that share `shared` frames with their predecessor, or none at the start of a shot.
    pub fn new(mode: Overlap, shared: usize) -> Joiner<P> {
        let weights = mode.weights(shared);
        let changing = shared - weights.iter().take_while(|weight| **weight == 1.0).count();
        Joiner { weights, changing, frames: VecDeque::new(), slices: VecDeque::new() }
    }

    /// Adds a batch whose first `shared` frames belong to the previous batch too; returns the slices that are final.
    /// Shared frames that are not here are final already, or belong to an earlier part of the clip, and are dropped.
    pub fn add(&mut self, batch: Vec<FrameValues>, shared: usize, payload: P) -> Result<Vec<JoinedSlice<P>>> {
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
            blend(earlier, later, *weight)?;
        }
        let before = self.frames.len();
        self.frames.extend(batch);
        self.slices.push_back((self.frames.len() - before, payload));
        while self.slices.front().is_some_and(|(count, _)| count + self.changing <= self.frames.len()) {
            done.extend(self.pop());
        }
        Ok(done)
    }

    /// Restores the frames of one batch that [`Joiner::held`] returned.
    pub fn restore(&mut self, frames: Vec<Vec<f32>>, payload: P) {
        self.slices.push_back((frames.len(), payload));
        self.frames.extend(frames.into_iter().map(FrameValues::Host));
    }

    /// The frames of each of the last batches that a later batch can still change.
    pub fn held(&self) -> Result<Vec<Vec<Vec<f32>>>> {
        let mut frames = self.frames.iter().map(FrameValues::copy);
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
fn blend(earlier: &mut FrameValues, later: FrameValues, weight: f32) -> Result<()> {
    if weight == 1.0 {
        return Ok(());
    }
    if let (FrameValues::Device(earlier), FrameValues::Device(later)) = (&mut *earlier, &later) {
        return earlier.blend(&**later, weight);
    }
    let mut values = std::mem::replace(earlier, FrameValues::Host(Vec::new())).fetch()?;
    let pairs = values.par_iter_mut().zip(later.fetch()?).with_min_len(1 << 13);
    pairs.for_each(|(e, l)| *e = *e * weight + l * (1.0 - weight));
    *earlier = FrameValues::Host(values);
    Ok(())
}
