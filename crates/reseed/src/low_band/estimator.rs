//! Estimates the share of the low band from one input frame: three convolutions of stride two with ReLU, the mean
//! over the frame, a linear layer and the logistic function. `training/low_band.py` defines and trains it.
//!
//! The sums have a fixed order that depends neither on the CPU nor on the number of threads.

use std::ops::Range;

use rayon::prelude::*;
use reseed_media::{Frame, Size};
use reseed_model::Error;
use reseed_model::dit::{LOW_BAND_WIDTH as WIDTH, low_band_tensors};
use reseed_model::weights::{Network, Source};

/// Rows and columns of a kernel, and its step.
const TAPS: usize = 3;
const STRIDE: usize = 2;
/// Pixels that a feature of the last layer sees along one axis, and the distance between features.
const REACH: usize = 15;
const STEP: usize = 8;
/// Rows of features that are computed together.
const BAND: usize = 8;

/// The estimator of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimator {
    layers: Vec<Layer>,
    /// Weights of the mean features, then the bias.
    out: Vec<f32>,
}

impl Estimator {
    /// The estimator of a transformer file, if it has one.
    pub fn load(dit: &dyn Source) -> reseed_model::Result<Option<Estimator>> {
        let tensors = low_band_tensors();
        if !tensors.iter().any(|(name, _)| dit.shapes().contains_key(name)) {
            return Ok(None);
        }
        let mut values = Vec::new();
        for (name, _) in tensors {
            if !dit.shapes().contains_key(&name) {
                return Err(Error::MissingTensor { path: dit.path().into(), name, network: Network::Dit });
            }
            values.push(dit.read(&name)?);
        }
        let (layers, out) = values.split_at(values.len() - 2);
        let layers = layers.chunks_exact(2).map(|layer| Layer::new(&layer[0], &layer[1])).collect();
        Ok(Some(Estimator { layers, out: out.concat() }))
    }

    /// The share for a frame, from 0 to 1.
    pub fn share(&self, frame: &Frame) -> f32 {
        let rows = features(frame.size.h.max(REACH));
        let bands: Vec<Range<usize>> = (0..rows).step_by(BAND).map(|row| row..(row + BAND).min(rows)).collect();
        let sums: Vec<[f64; WIDTH]> = bands.into_par_iter().map(|band| self.sums(frame, band)).collect();
        let count = (rows * features(frame.size.w.max(REACH))) as f64;
        let mean = |i: usize| (sums.iter().map(|sum| sum[i]).sum::<f64>() / count) as f32;
        let sum: f32 = (0..WIDTH).map(|i| mean(i) * self.out[i]).sum();
        (1.0 / (1.0 + (-f64::from(sum + self.out[WIDTH])).exp())) as f32
    }

    /// Sums of the features in some of their rows.
    fn sums(&self, frame: &Frame, rows: Range<usize>) -> [f64; WIDTH] {
        let pixels = rows.start * STEP..(rows.end - 1) * STEP + REACH;
        let mut plane = Plane { channels: 3, w: frame.size.w.max(REACH), values: unit_rows(frame, pixels) };
        for layer in &self.layers {
            plane = layer.run(&plane);
        }
        let mut sums = [0.0; WIDTH];
        for features in plane.values.chunks_exact(WIDTH) {
            sums.iter_mut().zip(features).for_each(|(sum, feature)| *sum += f64::from(*feature));
        }
        sums
    }
}

/// Features of the last layer along an axis.
fn features(pixels: usize) -> usize {
    (pixels - REACH) / STEP + 1
}

/// Rows of a frame in [0, 1]. Frames smaller than the reach repeat their last row and column.
fn unit_rows(frame: &Frame, rows: Range<usize>) -> Vec<f32> {
    let Size { h, w } = frame.size;
    let line = 3 * w.max(REACH);
    let mut values = vec![0.0; rows.len() * line];
    for (y, row) in rows.zip(values.chunks_exact_mut(line)) {
        let y = y.min(h - 1);
        frame.samples.copy_to_unit(3 * w * y..3 * w * (y + 1), &mut row[..3 * w]);
        // Floats may lie outside, and one NaN must not spoil the frame.
        let inside = |value: f32| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
        row[..3 * w].iter_mut().for_each(|value| *value = inside(*value));
        (3 * w..line).for_each(|i| row[i] = row[i - 3]);
    }
    values
}

/// Values `[H, W, C]`.
struct Plane {
    channels: usize,
    w: usize,
    values: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
struct Layer {
    /// For each row, column and input channel of the kernel: the weights of the output channels.
    kernel: Vec<[f32; WIDTH]>,
    bias: [f32; WIDTH],
}

impl Layer {
    /// From a kernel `[out, in, row, column]`.
    fn new(weight: &[f32], bias: &[f32]) -> Layer {
        let channels = weight.len() / (WIDTH * TAPS * TAPS);
        let at = |tap: usize, from: usize, to: usize| weight[(to * channels + from) * TAPS * TAPS + tap];
        let taps = (0..TAPS * TAPS).flat_map(|tap| (0..channels).map(move |from| (tap, from)));
        let kernel = taps.map(|(tap, from)| std::array::from_fn(|to| at(tap, from, to))).collect();
        Layer { kernel, bias: std::array::from_fn(|to| bias[to]) }
    }

    fn run(&self, from: &Plane) -> Plane {
        let line = from.channels * from.w;
        let outputs = |pixels: usize| (pixels - TAPS) / STRIDE + 1;
        let (h, w) = (outputs(from.values.len() / line), outputs(from.w));
        let mut values = vec![0.0; h * w * WIDTH];
        for (i, result) in values.chunks_exact_mut(WIDTH).enumerate() {
            let start = (i / w * line + i % w * from.channels) * STRIDE;
            let mut sums = self.bias;
            for (row, kernel) in self.kernel.chunks_exact(TAPS * from.channels).enumerate() {
                let inputs = &from.values[start + row * line..][..TAPS * from.channels];
                for (value, weights) in inputs.iter().zip(kernel) {
                    sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
                }
            }
            result.iter_mut().zip(sums).for_each(|(result, sum)| *result = sum.max(0.0));
        }
        Plane { channels: WIDTH, w, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_media::{Depth, Samples};
    use reseed_model::weights::formula::Formula;

    #[test]
    fn a_file_with_a_part_of_an_estimator_is_refused() {
        let mut tensors = low_band_tensors();
        assert!(Estimator::load(&Formula::plain(Vec::new(), 1)).unwrap().is_none());
        assert!(Estimator::load(&Formula::plain(tensors.clone(), 1)).unwrap().is_some());
        tensors.retain(|(name, _)| name != "low_band.1.bias");
        let message = Estimator::load(&Formula::plain(tensors, 1)).unwrap_err().to_string();
        assert!(message.contains("low_band.1.bias"), "{message}");
    }

    #[test]
    fn every_frame_has_a_share() {
        let estimator = Estimator::load(&Formula::plain(low_band_tensors(), 1)).unwrap().unwrap();
        for size in [Size { h: 1, w: 1 }, Size { h: 15, w: 200 }, Size { h: 300, w: 17 }] {
            let values = (0..3 * size.pixels()).map(|i| [0.5, f32::NAN, -7.0, 1e9][i % 4]).collect();
            let share = estimator.share(&Frame { size, samples: Samples::F32(values), alpha: None });
            assert!((0.0..=1.0).contains(&share), "{size}: {share}");
        }
    }

    #[test]
    fn a_share_is_the_same_on_any_number_of_threads() {
        let (estimator, size) =
            (Estimator::load(&Formula::plain(low_band_tensors(), 1)).unwrap().unwrap(), Size { h: 333, w: 77 });
        let unit: Vec<f32> = (0..3 * size.pixels()).map(|i| (i * i % 255) as f32 / 255.0).collect();
        let frame = Frame::from_unit(size, &unit, Depth::Eight);
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let [one, three] = [1, 3].map(|threads| pool(threads).install(|| estimator.share(&frame)));
        assert_eq!(one.to_bits(), three.to_bits());
    }
}
