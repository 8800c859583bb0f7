//! Group statistics: mean and sum of squared deviations of each channel over a block of pixels, blocks combined in a
//! fixed order, so that the result depends neither on threads nor on cancellation.

use rayon::prelude::*;

use super::leveled::leveled;
use super::level::Level;
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
    /// Mean of each channel, then its sum of squared deviations.
    pub channels: Vec<[f32; 2]>,
}

impl Block {
    /// Statistics of `pixels` pixels, `pitch` apart, of which the first `channels` values count.
    pub fn of(level: Level, frame: usize, first: usize, values: &[f32], pitch: usize, channels: usize) -> Block {
        let mut out = vec![[0.0; 2]; channels];
        deviations(level, values, pitch, &mut out);
        Block { frame, first, pixels: values.len() / pitch, channels: out }
    }
}

leveled! {
    /// Two passes over values that are in cache.
    pub fn deviations(values: &[f32], pitch: usize, out: &mut [[f32; 2]]) {
        const LANES: usize = 16;
        let scale = 1.0 / (values.len() / pitch) as f32;
        for (block, out) in out.chunks_mut(LANES).enumerate() {
            let at = |pixel: usize, lane: usize| values[pixel * pitch + block * LANES + lane];
            let lanes = out.len();
            let pixels = values.len() / pitch;
            let (mut mean, mut square) = ([0.0f32; LANES], [0.0f32; LANES]);
            for pixel in 0..pixels {
                for lane in 0..lanes {
                    mean[lane] += at(pixel, lane);
                }
            }
            mean.iter_mut().for_each(|m| *m *= scale);
            for pixel in 0..pixels {
                for lane in 0..lanes {
                    let d = at(pixel, lane) - mean[lane];
                    square[lane] += d * d;
                }
            }
            for lane in 0..lanes {
                out[lane] = [mean[lane], square[lane]];
            }
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
            sums[block.frame * groups + group].add(block.pixels as f64, f64::from(mean), f64::from(square));
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
        let values: Vec<f32> = values.iter().map(|v| v.to_f32()).collect();
        Block::of(level, i / chunks_per_frame, 0, &values, channels, channels)
    };
    let blocks: Vec<Block> = (0..thw.t * chunks_per_frame).into_par_iter().map(block).collect();
    combine(&blocks, thw.t, channels, groups)
}
