//! Group statistics: mean and squared deviations of each channel over a block of pixels, blocks combined in a fixed
//! order, so that the result does not depend on threads.

use std::cell::RefCell;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;

use rayon::prelude::*;

use super::blocked::Region;
use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, elements};
use reseed_ops::Tensor;

/// Pixels of a block when a whole tensor is read.
const PIXELS: usize = 256;

thread_local! {
    /// What a thread measures with.
    pub static MEASURE: RefCell<Measure> = RefCell::default();
}

/// Channels `first ..` of some pixels of a frame.
pub struct Block<'a> {
    /// The frame.
    pub frame: usize,
    /// First channel.
    pub first: usize,
    /// Number of pixels.
    pub pixels: usize,
    /// Mean of each channel and its sum of squared deviations.
    pub channels: &'a [[f64; 2]],
}

/// Takes statistics pixel by pixel, in one pass: deviations are from the first pixel, which is as near to the mean as
/// any, so that nothing cancels. Its memory serves one block after the other.
#[derive(Default)]
pub struct Measure {
    origin: Vec<f32>,
    sum: Vec<f32>,
    square: Vec<f32>,
}

impl Measure {
    /// Begins a block with what its first pixel will be, or nearly.
    pub fn begin(&mut self, pixel: impl Iterator<Item = f32>) {
        self.origin.clear();
        self.origin.extend(pixel);
        for sums in [&mut self.sum, &mut self.square] {
            sums.clear();
            sums.resize(self.origin.len(), 0.0);
        }
    }

    /// Adds a pixel.
    #[inline(always)]
    pub fn add<E: Element>(&mut self, pixel: &[E]) {
        let sums = self.sum.iter_mut().zip(&mut self.square);
        for ((value, origin), (sum, square)) in pixel.iter().zip(&self.origin).zip(sums) {
            let d = value.to_f32() - origin;
            *sum += d;
            *square += d * d;
        }
    }

    /// Origin, sums of deviations and of their squares, of some channels.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn running(&mut self, channels: Range<usize>) -> [&mut [f32]; 3] {
        [&mut self.origin, &mut self.sum, &mut self.square].map(|values| &mut values[channels.clone()])
    }

    /// Mean and squared deviations of each channel of `pixels` pixels.
    pub fn end(&self, pixels: usize, to: &mut [[f64; 2]]) {
        let count = pixels as f64;
        for (((to, origin), sum), square) in to.iter_mut().zip(&self.origin).zip(&self.sum).zip(&self.square) {
            let sum = f64::from(*sum);
            *to = [f64::from(*origin) + sum / count, (f64::from(*square) - sum * sum / count).max(0.0)];
        }
    }
}

leveled! {
    /// Statistics of some pixels.
    fn measure<E: Element>(values: &[E], to: &mut [[f64; 2]]) {
        MEASURE.with_borrow_mut(|measure| {
            let pixels = values.chunks_exact(to.len());
            let count = pixels.len();
            measure.begin(values[..to.len()].iter().map(|v| v.to_f32()));
            pixels.for_each(|pixel| measure.add(pixel));
            measure.end(count, to);
        });
    }
}

/// Mean and variance of each frame and group, `[frames, groups, 2]`.
pub fn combine<'a>(blocks: impl Iterator<Item = Block<'a>>, frames: usize, channels: usize, groups: usize) -> Vec<f32> {
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

/// The same from what was measured of regions, `[block][channel]`; `region` tells a block's frame and region.
pub fn of_regions<'a>(
    measured: &[[f64; 2]],
    width: usize,
    [frames, channels, groups]: [usize; 3],
    region: impl Fn(usize) -> (usize, &'a Region),
) -> Vec<f32> {
    let block = |(i, measured)| {
        let (frame, region) = region(i);
        let (first, pixels) = (region.panels.start * width, region.rows.len() * region.columns.len());
        let measured: &[[f64; 2]] = measured;
        Block { frame, first, pixels, channels: &measured[first..channels.min(region.panels.end * width)] }
    };
    combine(measured.chunks_exact(channels).enumerate().map(block), frames, channels, groups)
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
    let mut measured = vec![[0.0; 2]; thw.t * chunks_per_frame * channels];
    let chunk = |i: usize| {
        let start = i % chunks_per_frame * PIXELS * channels;
        &elements::<E>(x)[i / chunks_per_frame * frame..][..frame][start..(start + PIXELS * channels).min(frame)]
    };
    let blocks = measured.par_chunks_exact_mut(channels).enumerate();
    blocks.for_each(|(i, to)| measure(level, chunk(i), to));
    let block = |(i, channels): (usize, _)| Block {
        frame: i / chunks_per_frame,
        first: 0,
        pixels: chunk(i).len() / x.channels(),
        channels,
    };
    combine(measured.chunks_exact(channels).enumerate().map(block), thw.t, channels, groups)
}
