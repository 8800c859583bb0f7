//! Group statistics: mean and squared deviations of each channel over a block of pixels, blocks combined in a fixed
//! order, so that the result does not depend on threads.

use rayon::prelude::*;

use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, elements};
use crate::tensor::Tensor;

/// Pixels of a block when a whole tensor is read.
const PIXELS: usize = 256;

/// Channels `first ..` of some pixels of a frame.
pub struct Block {
    /// The frame.
    pub frame: usize,
    /// First channel.
    pub first: usize,
    /// Number of pixels.
    pub pixels: usize,
    /// Mean of each channel and its sum of squared deviations.
    pub channels: Vec<[f64; 2]>,
}

/// Takes statistics pixel by pixel, in one pass: deviations are from the first pixel, which is as near to the mean as
/// any, so that nothing cancels.
#[derive(Default)]
pub struct Measure {
    origin: Vec<f32>,
    sum: Vec<f32>,
    square: Vec<f32>,
    pixels: usize,
}

impl Measure {
    /// Adds a pixel.
    pub fn add(&mut self, level: Level, pixel: &[f32]) {
        if self.pixels == 0 {
            self.origin = pixel.to_vec();
            self.sum = vec![0.0; pixel.len()];
            self.square = vec![0.0; pixel.len()];
        }
        self.pixels += 1;
        deviate(level, pixel, &self.origin, &mut self.sum, &mut self.square);
    }

    /// What has been added, as channels `first ..` of a frame.
    pub fn block(&self, frame: usize, first: usize) -> Block {
        let count = self.pixels as f64;
        let channel = |((origin, sum), square): ((&f32, &f32), &f32)| {
            let sum = f64::from(*sum);
            [f64::from(*origin) + sum / count, (f64::from(*square) - sum * sum / count).max(0.0)]
        };
        let channels = self.origin.iter().zip(&self.sum).zip(&self.square).map(channel).collect();
        Block { frame, first, pixels: self.pixels, channels }
    }
}

leveled! {
    /// One pixel's deviations from the origin and their squares.
    pub fn deviate(pixel: &[f32], origin: &[f32], sum: &mut [f32], square: &mut [f32]) {
        for (((value, origin), sum), square) in pixel.iter().zip(origin).zip(sum).zip(square) {
            let d = value - origin;
            *sum += d;
            *square += d * d;
        }
    }
}

/// Mean and variance of each frame and group, `[frames, groups, 2]`.
pub fn combine(blocks: &[Block], frames: usize, channels: usize, groups: usize) -> Vec<f32> {
    assert!(groups > 0 && channels.is_multiple_of(groups), "{channels} channels in {groups} groups");
    let mut sums = vec![Running::default(); frames * groups];
    for block in blocks {
        for (c, &[mean, square]) in block.channels.iter().enumerate() {
            let group = (block.first + c) / (channels / groups);
            sums[block.frame * groups + group].add(block.pixels as f64, mean, square);
        }
    }
    sums.iter().flat_map(|s| [s.mean as f32, (s.square / s.count) as f32]).collect()
}

/// Count, mean and squared deviations of what has been added so far.
#[derive(Clone, Copy, Default)]
struct Running {
    count: f64,
    mean: f64,
    square: f64,
}

impl Running {
    fn add(&mut self, count: f64, mean: f64, square: f64) {
        let total = self.count + count;
        let delta = mean - self.mean;
        self.mean += delta * count / total;
        self.square += square + delta * delta * self.count * count / total;
        self.count = total;
    }
}

/// Statistics of a whole tensor.
pub fn of_tensor<E: Element>(level: Level, x: &Tensor, groups: usize) -> Vec<f32> {
    let (channels, thw) = (x.channels(), x.thw());
    let frame = thw.h * thw.w * channels;
    let chunks_per_frame = (thw.h * thw.w).div_ceil(PIXELS);
    let block = |i: usize| {
        let frame_values = &elements::<E>(x)[i / chunks_per_frame * frame..][..frame];
        let start = i % chunks_per_frame * PIXELS * channels;
        let values = &frame_values[start..(start + PIXELS * channels).min(frame)];
        let mut measure = Measure::default();
        let mut wide = vec![0.0; channels];
        for pixel in values.chunks_exact(channels) {
            wide.iter_mut().zip(pixel).for_each(|(wide, value)| *wide = value.to_f32());
            measure.add(level, &wide);
        }
        measure.block(i / chunks_per_frame, 0)
    };
    let blocks: Vec<Block> = (0..thw.t * chunks_per_frame).into_par_iter().map(block).collect();
    combine(&blocks, thw.t, channels, groups)
}
