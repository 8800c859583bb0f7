//! Blends the low frequencies of the input back into the result: result ← result + s · up(input - down(result)).
//!
//! `down` and `up` are antialiased bicubic resamplings between the output and the input size. At s = 1 the frequencies
//! that the input size can represent come from the input, and the networks contribute only the higher ones. The noise
//! of the input comes back too, so a model file names the share that suits its training, or holds an estimator that
//! finds it for every frame.

mod estimator;

use std::borrow::Borrow;
use std::sync::Arc;

use rayon::prelude::*;
use reseed_media::{Frame, Size};
use reseed_model::weights::Source;

use crate::input_frame::InputFrame;
use crate::resize::Resizer;
use crate::size::Geometry;
use crate::view::signed;

pub use estimator::Estimator;

/// Values per parallel work item.
const RUN: usize = 1 << 14;

/// The low band that a model asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelLowBand {
    /// One share for all frames.
    Fixed(f32),
    /// A share for every frame.
    Estimated(Estimator),
}

impl ModelLowBand {
    /// Nothing is blended.
    pub const NONE: ModelLowBand = ModelLowBand::Fixed(0.0);

    /// Of a transformer file: its estimator, or the metadata `low_band`. Public files have neither, and no low band.
    pub fn load(dit: &dyn Source) -> reseed_model::Result<ModelLowBand> {
        Ok(match Estimator::load(dit)? {
            Some(estimator) => ModelLowBand::Estimated(estimator),
            None => ModelLowBand::Fixed(fixed_share(dit)?),
        })
    }

    /// Whether anything is blended.
    pub fn is_some(&self) -> bool {
        *self != ModelLowBand::NONE
    }

    /// The share of a chosen strength, or else that of the model.
    pub fn share(&self, strength: Option<f32>) -> Share<'_> {
        match (strength, self) {
            (Some(strength), _) => Share::Fixed(1.0 - strength),
            (None, ModelLowBand::Fixed(share)) => Share::Fixed(*share),
            (None, ModelLowBand::Estimated(estimator)) => Share::Estimated(estimator),
        }
    }
}

/// Share of the low band in a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share<'a> {
    /// The same for all frames, 0 to 1.
    Fixed(f32),
    /// Estimated from every input frame.
    Estimated(&'a Estimator),
}

impl Share<'_> {
    /// For one input frame.
    pub fn of(&self, input: &Frame) -> f32 {
        match self {
            Share::Fixed(share) => *share,
            Share::Estimated(estimator) => estimator.share(input),
        }
    }
}

fn fixed_share(dit: &dyn Source) -> reseed_model::Result<f32> {
    let Some(text) = dit.metadata("low_band") else { return Ok(0.0) };
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| reseed_model::Error::Metadata {
        path: dit.path().into(),
        key: "low_band",
        value: text.into(),
        expected: "it must lie between 0 and 1".into(),
    })
}

/// Blends the low frequencies of `inputs` into `frames`, which have the output size and values in about [-1, 1].
///
/// Does nothing unless both sides of the output are larger than those of the input: otherwise the result would be the
/// resampled input.
pub fn apply<F: Borrow<Frame>>(share: Share, frames: &mut [Vec<f32>], inputs: &[F], geometry: &Geometry) {
    let Some(low_band) = LowBand::new(share, geometry) else { return };
    for (frame, input) in frames.iter_mut().zip(inputs) {
        low_band.blend(frame, input.borrow(), share.of(input.borrow()));
    }
}

/// The share of each frame; zero where nothing is blended.
pub fn shares(share: Share, inputs: &[Arc<InputFrame>], geometry: &Geometry) -> reseed_ops::Result<Vec<f32>> {
    let of = |input: &Arc<InputFrame>| match share {
        _ if !enlarges(geometry) => Ok(0.0),
        Share::Fixed(share) => Ok(share),
        Share::Estimated(estimator) => Ok(estimator.share(input.host()?)),
    };
    inputs.par_iter().map(of).collect()
}

/// Whether both sides grow.
fn enlarges(geometry: &Geometry) -> bool {
    let (input, resized) = (geometry.input, geometry.resized());
    resized.h > input.h && resized.w > input.w
}

/// The same work for a device, which is given the share of every frame.
pub fn resizes(share: Share, geometry: &Geometry) -> Option<reseed_ops::LowBand> {
    let LowBand { down, up, .. } = LowBand::new(share, geometry)?;
    Some(reseed_ops::LowBand { down: down.weights(), up: up.weights() })
}

/// The two resamplings between input and output size.
struct LowBand {
    output: Size,
    down: Resizer<3>,
    up: Resizer<3>,
}

impl LowBand {
    /// `None` where nothing is blended.
    fn new(share: Share, geometry: &Geometry) -> Option<LowBand> {
        let (input, resized) = (geometry.input, geometry.resized());
        if share == Share::Fixed(0.0) || !enlarges(geometry) {
            return None;
        }
        let [down, up] = [(resized, input), (input, resized)].map(|(from, to)| Resizer::new(from, to));
        Some(LowBand { output: geometry.output, down, up })
    }

    /// frame ← clamp(frame + share · up(residual)).
    fn blend(&self, frame: &mut [f32], input: &Frame, share: f32) {
        frame.par_chunks_mut(RUN).for_each(|run| run.iter_mut().for_each(|value| *value = value.clamp(-1.0, 1.0)));
        let residual = self.residual(frame, input);
        let line = 3 * input.size.w;
        let mut correction = vec![0.0; frame.len()];
        let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&residual[y * line..(y + 1) * line]);
        self.up.run(row, &mut correction, self.output.w, |value| share * value);
        frame.par_chunks_mut(RUN).zip(correction.par_chunks(RUN)).for_each(|(frame, correction)| {
            frame.iter_mut().zip(correction).for_each(|(value, added)| *value = (*value + added).clamp(-1.0, 1.0));
        });
    }

    /// input - down(frame).
    fn residual(&self, frame: &[f32], input: &Frame) -> Vec<f32> {
        let Size { h, w } = self.output;
        // Where the output is one pixel smaller than the resized input, the last row or column is replicated.
        let row = |y: usize, row: &mut [f32]| {
            let from = &frame[3 * w * y.min(h - 1)..][..3 * w];
            row[..from.len()].copy_from_slice(from);
            (from.len()..row.len()).for_each(|i| row[i] = row[i - 3]);
        };
        let mut residual = vec![0.0; 3 * input.size.pixels()];
        self.down.run(row, &mut residual, input.size.w, |value| value);
        let line = 3 * input.size.w;
        residual.par_chunks_mut(line).enumerate().for_each(|(y, residual)| {
            let mut samples = vec![0.0; line];
            input.samples.copy_to_unit(y * line..(y + 1) * line, &mut samples);
            residual.iter_mut().zip(&samples).for_each(|(value, sample)| *value = signed(*sample) - *value);
        });
        residual
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_media::Samples;
    use reseed_model::dit::{B3, Config};
    use reseed_model::weights::formula::Formula;

    #[test]
    fn a_share_outside_0_to_1_in_the_metadata_is_rejected() {
        let source = || Formula::plain(Config::tiny(B3, 3).tensors(), 1);
        assert_eq!(ModelLowBand::load(&source()).unwrap(), ModelLowBand::Fixed(0.0));
        let fixed = ModelLowBand::load(&source().with_metadata("low_band", "0.75")).unwrap();
        assert_eq!((fixed.is_some(), fixed.share(None)), (true, Share::Fixed(0.75)));
        for value in ["1.5", "-0.1", "NaN", "much"] {
            let error = ModelLowBand::load(&source().with_metadata("low_band", value)).unwrap_err().to_string();
            assert!(error.contains(&format!("`low_band` is \"{value}\"; it must lie between 0 and 1")), "{error}");
        }
    }

    #[test]
    fn the_result_is_unchanged_unless_both_sides_grow() {
        let size = Size { h: 6, w: 10 };
        for target in [Size { h: 6, w: 10 }, Size { h: 12, w: 10 }, Size { h: 3, w: 5 }] {
            let geometry = Geometry::new(size, crate::Target::Exact(target), None).unwrap();
            let before = vec![vec![0.25; 3 * target.pixels()]];
            let mut after = before.clone();
            let input = Frame { size, samples: Samples::U8(vec![200; 3 * size.pixels()]), alpha: None };
            apply(Share::Fixed(1.0), &mut after, &[input], &geometry);
            assert_eq!(before, after, "{target}");
        }
    }
}
