//! Blends the low frequencies of the input back into the result: result ← result + s · up(input - down(result)). Then
//! keeps the result within the range of the input.
//!
//! `down` and `up` are antialiased bicubic resamplings between the output and the input size. At s = 1 the frequencies
//! that the input size can represent come from the input, and the networks contribute only the higher ones. The noise
//! of the input comes back too, so a model file names the share that suits its training, or holds an estimator that
//! finds it for every frame.

mod estimator;
mod range_limit;

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
use range_limit::RangeLimit;

/// Values per parallel work item.
const RUN: usize = 1 << 14;

/// The low band that a model asks for, and its range limit.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLowBand {
    share: ModelShare,
    limit: Option<f32>,
}

/// The share of the low band that a model asks for.
#[derive(Clone, Debug, PartialEq)]
enum ModelShare {
    /// One for all frames.
    Fixed(f32),
    /// One for every frame.
    Estimated(Estimator),
}

impl ModelLowBand {
    /// Nothing is blended or limited.
    pub const NONE: ModelLowBand = ModelLowBand { share: ModelShare::Fixed(0.0), limit: None };

    /// Of a transformer file: its estimator, or else the metadata `low_band`; and the metadata `limit`. Public files
    /// have none of them.
    pub fn load(dit: &dyn Source) -> reseed_model::Result<ModelLowBand> {
        let share = match Estimator::load(dit)? {
            Some(estimator) => ModelShare::Estimated(estimator),
            None => ModelShare::Fixed(fraction(dit, "low_band")?.unwrap_or(0.0)),
        };
        Ok(ModelLowBand { share, limit: fraction(dit, "limit")? })
    }

    /// Whether anything is blended.
    pub fn is_some(&self) -> bool {
        self.share != ModelShare::Fixed(0.0)
    }

    /// Whether results are kept within the range of the input.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// The low band of a job: with the share of a chosen strength, or else that of the model.
    pub fn of_job(&self, strength: Option<f32>) -> LowBand<'_> {
        let share = match (strength, &self.share) {
            (Some(strength), _) => Share::Fixed(1.0 - strength),
            (None, ModelShare::Fixed(share)) => Share::Fixed(*share),
            (None, ModelShare::Estimated(estimator)) => Share::Estimated(estimator),
        };
        LowBand { share, limit: self.limit }
    }
}

/// The low band in a job, and its range limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowBand<'a> {
    /// Share of the low band.
    pub share: Share<'a>,
    /// How far the result may leave the range of the input where the input is plain, 0 to 1 of the distance from black
    /// to white; `None` for no limit.
    pub limit: Option<f32>,
}

impl LowBand<'_> {
    /// The same share for all frames and no range limit.
    pub const fn fixed(share: f32) -> LowBand<'static> {
        LowBand { share: Share::Fixed(share), limit: None }
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

/// A number from 0 to 1 in the metadata of a transformer file.
fn fraction(dit: &dyn Source, key: &'static str) -> reseed_model::Result<Option<f32>> {
    let Some(text) = dit.metadata(key) else { return Ok(None) };
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.map(Some).ok_or_else(|| reseed_model::Error::Metadata {
        path: dit.path().into(),
        key,
        value: text.into(),
        expected: "it must lie between 0 and 1".into(),
    })
}

/// Blends the low frequencies of `inputs` into `frames`, which have the output size and values in about [-1, 1], and
/// limits the result to the range of `inputs`.
///
/// Does nothing unless both sides of the output are larger than those of the input: otherwise the result would be the
/// resampled input.
pub fn apply<F: Borrow<Frame>>(low_band: LowBand, frames: &mut [Vec<f32>], inputs: &[F], geometry: &Geometry) {
    let (blend, limit) = (Blend::new(low_band.share, geometry), RangeLimit::new(low_band.limit, geometry));
    if blend.is_none() && limit.is_none() {
        return;
    }
    let line = 3 * geometry.output.w;
    for (frame, input) in frames.iter_mut().zip(inputs) {
        let input = input.borrow();
        let correction = blend.as_ref().map(|blend| blend.correction(frame, input, low_band.share.of(input)));
        let bounds = limit.as_ref().map(|limit| limit.bounds(input));
        frame.par_chunks_mut(line).enumerate().for_each(|(y, row)| {
            if let Some(correction) = &correction {
                let added = &correction[y * line..][..line];
                row.iter_mut().zip(added).for_each(|(value, added)| *value += added);
            }
            match &bounds {
                Some(bounds) => bounds.clamp(y, row),
                None => clamp(row),
            }
        });
    }
}

fn clamp(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = value.clamp(-1.0, 1.0));
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

/// The resamplings for a device, which is given the share of every frame.
pub fn resizes(low_band: LowBand, geometry: &Geometry) -> Option<reseed_ops::LowBand> {
    let Blend { down, up, .. } = Blend::new(low_band.share, geometry)?;
    Some(reseed_ops::LowBand { down: down.weights(), up: up.weights() })
}

/// The range limit for a device.
pub fn range_limit(low_band: LowBand, geometry: &Geometry) -> Option<reseed_ops::RangeLimit> {
    RangeLimit::new(low_band.limit, geometry).map(|limit| limit.on_device(geometry))
}

/// The two resamplings between input and output size.
struct Blend {
    output: Size,
    down: Resizer<3>,
    up: Resizer<3>,
}

impl Blend {
    /// `None` where nothing is blended.
    fn new(share: Share, geometry: &Geometry) -> Option<Blend> {
        let (input, resized) = (geometry.input, geometry.resized());
        if share == Share::Fixed(0.0) || !enlarges(geometry) {
            return None;
        }
        let [down, up] = [(resized, input), (input, resized)].map(|(from, to)| Resizer::new(from, to));
        Some(Blend { output: geometry.output, down, up })
    }

    /// share · up(residual) of the frame, which is clamped first.
    fn correction(&self, frame: &mut [f32], input: &Frame, share: f32) -> Vec<f32> {
        frame.par_chunks_mut(RUN).for_each(clamp);
        let residual = self.residual(frame, input);
        let line = 3 * input.size.w;
        let mut correction = vec![0.0; frame.len()];
        let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&residual[y * line..(y + 1) * line]);
        self.up.run(row, &mut correction, self.output.w, |value| share * value);
        correction
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
        residual.par_chunks_mut(3 * input.size.w).enumerate().for_each(|(y, residual)| {
            let mut samples = vec![0.0; residual.len()];
            read_row(input, y, &mut samples);
            residual.iter_mut().zip(&samples).for_each(|(value, sample)| *value = *sample - *value);
        });
        residual
    }
}

/// Row `y` of an input frame, from -1 for black to 1 for white.
fn read_row(input: &Frame, y: usize, row: &mut [f32]) {
    input.samples.copy_to_unit(y * row.len()..(y + 1) * row.len(), row);
    row.iter_mut().for_each(|value| *value = signed(*value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_media::Samples;
    use reseed_model::dit::{B3, Config};
    use reseed_model::weights::formula::Formula;

    #[test]
    fn numbers_outside_0_to_1_in_the_metadata_are_rejected() {
        let source = || Formula::plain(Config::tiny(B3, 3).tensors(), 1);
        assert_eq!(ModelLowBand::load(&source()).unwrap(), ModelLowBand::NONE);
        let fixed = ModelLowBand::load(&source().with_metadata("low_band", "0.75")).unwrap();
        assert_eq!((fixed.is_some(), fixed.of_job(None)), (true, LowBand::fixed(0.75)));
        let limited = ModelLowBand::load(&source().with_metadata("limit", "0.25")).unwrap();
        let (share, limit) = (Share::Fixed(0.5), Some(0.25));
        assert_eq!((limited.is_some(), limited.of_job(Some(0.5))), (false, LowBand { share, limit }));
        for (key, value) in
            ["low_band", "limit"].into_iter().flat_map(|k| ["1.5", "-0.1", "NaN", "much"].map(|v| (k, v)))
        {
            let error = ModelLowBand::load(&source().with_metadata(key, value)).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}` is \"{value}\"; it must lie between 0 and 1")), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
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
            apply(LowBand { limit: Some(0.0), ..LowBand::fixed(1.0) }, &mut after, &[input], &geometry);
            assert_eq!(before, after, "{target}");
        }
    }
}
