//! Group statistics: the mean and the sum of squared deviations of each channel over a block of pixels. Blocks are
//! combined in a fixed order, so that the result does not depend on the number of threads.

use std::cell::RefCell;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;

use rayon::prelude::*;

use super::dispatch::dispatch;
use super::region::Region;
use crate::host::element::Element;
use crate::host::level::Level;
use crate::host::memory::elements;
use reseed_ops::Tensor;

/// Pixels of a block of a whole tensor.
const PIXELS: usize = 256;
/// Channels whose sums stay in registers: as many as the widest register has lanes.
pub const WIDE: usize = 16;

thread_local! {
    /// The accumulator of a thread, so that its memory is reused.
    pub static ACCUMULATOR: RefCell<Accumulator> = RefCell::default();
}

/// Statistics of one block: channels `first ..` of some pixels of a frame.
pub struct BlockStats<'a> {
    /// The frame.
    pub frame: usize,
    /// First channel.
    pub first: usize,
    /// Number of pixels.
    pub pixels: usize,
    /// Mean and sum of squared deviations of each channel.
    pub channels: &'a [[f64; 2]],
}

/// Statistics of a block in one pass: with the first pixel as the origin o,
/// mean = o + Σ(x - o) / n and Σ(x - mean)² = Σ(x - o)² - (Σ(x - o))² / n.
/// A pixel of the block is near the mean, so the difference loses few bits.
#[derive(Default)]
pub struct Accumulator {
    origin: Vec<f32>,
    sum: Vec<f32>,
    square: Vec<f32>,
}

impl Accumulator {
    /// Begins a block with (approximately) its first pixel as the origin.
    pub fn begin(&mut self, pixel: impl Iterator<Item = f32>) {
        self.origin.clear();
        self.origin.extend(pixel);
        for sums in [&mut self.sum, &mut self.square] {
            sums.clear();
            sums.resize(self.origin.len(), 0.0);
        }
    }

    /// Adds `count` pixels in order. The sums of [`WIDE`] channels stay in registers meanwhile.
    #[inline(always)]
    pub fn add_pixels<'p, E: Element>(&mut self, count: usize, pixel: impl Fn(usize) -> &'p [E]) {
        let wide = self.origin.len() / WIDE;
        for chunk in 0..wide {
            let mut stats = self.wide(chunk);
            for i in 0..count {
                stats.add(pixel(i)[chunk * WIDE..].first_chunk().expect("a chunk of channels"));
            }
            self.set_wide(chunk, &stats);
        }
        if !self.origin.len().is_multiple_of(WIDE) {
            (0..count).for_each(|i| self.add_last(&pixel(i)[wide * WIDE..]));
        }
    }

    /// The sums of chunk `chunk` of [`WIDE`] channels, to be added to in registers.
    #[inline(always)]
    pub fn wide(&self, chunk: usize) -> WideStats {
        let at = |values: &[f32]| values.as_chunks().0[chunk];
        WideStats { origin: at(&self.origin), sum: at(&self.sum), square: at(&self.square) }
    }

    /// Writes back the sums of [`Accumulator::wide`].
    #[inline(always)]
    pub fn set_wide(&mut self, chunk: usize, stats: &WideStats) {
        self.sum.as_chunks_mut().0[chunk] = stats.sum;
        self.square.as_chunks_mut().0[chunk] = stats.square;
    }

    /// Adds the channels of a pixel that follow the last whole chunk.
    #[inline(always)]
    pub fn add_last<E: Element>(&mut self, pixel: &[E]) {
        let first = self.origin.len() / WIDE * WIDE;
        let sums = self.sum[first..].iter_mut().zip(&mut self.square[first..]);
        for ((value, origin), (sum, square)) in pixel.iter().zip(&self.origin[first..]).zip(sums) {
            let d = value.to_f32() - origin;
            *sum += d;
            *square += d * d;
        }
    }

    /// Origin, sum of deviations and sum of their squares of some channels.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn channels_mut(&mut self, channels: Range<usize>) -> [&mut [f32]; 3] {
        [&mut self.origin, &mut self.sum, &mut self.square].map(|values| &mut values[channels.clone()])
    }

    /// Writes the mean and the sum of squared deviations of each channel of `pixels` pixels.
    pub fn finish(&self, pixels: usize, to: &mut [[f64; 2]]) {
        let count = pixels as f64;
        for (((to, origin), sum), square) in to.iter_mut().zip(&self.origin).zip(&self.sum).zip(&self.square) {
            let sum = f64::from(*sum);
            *to = [f64::from(*origin) + sum / count, (f64::from(*square) - sum * sum / count).max(0.0)];
        }
    }
}

/// Sums of [`WIDE`] channels of an [`Accumulator`].
pub struct WideStats {
    origin: [f32; WIDE],
    sum: [f32; WIDE],
    square: [f32; WIDE],
}

impl WideStats {
    /// Adds some channels of a pixel.
    #[inline(always)]
    pub fn add<E: Element>(&mut self, pixel: &[E; WIDE]) {
        for (i, value) in pixel.iter().enumerate() {
            let d = value.to_f32() - self.origin[i];
            self.sum[i] += d;
            self.square[i] += d * d;
        }
    }
}

dispatch! {
    /// Statistics of one block.
    fn block_stats<E: Element>(values: &[E], to: &mut [[f64; 2]]) {
        ACCUMULATOR.with_borrow_mut(|stats| {
            let (channels, count) = (to.len(), values.len() / to.len());
            stats.begin(values[..channels].iter().map(|v| v.to_f32()));
            stats.add_pixels(count, |i| &values[i * channels..][..channels]);
            stats.finish(count, to);
        });
    }
}

/// Mean and variance of each frame and group: `[frames, groups, 2]`.
fn combine<'a>(
    blocks: impl Iterator<Item = BlockStats<'a>>,
    frames: usize,
    channels: usize,
    groups: usize,
) -> Vec<f32> {
    assert!(groups > 0 && channels.is_multiple_of(groups), "{channels} channels in {groups} groups");
    let mut sums = vec![GroupStats::default(); frames * groups];
    for block in blocks {
        for (c, &[mean, square]) in block.channels.iter().enumerate() {
            let group = (block.first + c) / (channels / groups);
            sums[block.frame * groups + group].add(block.pixels as f64, mean, square);
        }
    }
    sums.iter().flat_map(|s| [s.mean as f32, (s.square / s.count) as f32]).collect()
}

/// Mean and variance of each frame and group from the statistics of regions, `[block][channel]`. `region` returns the
/// frame and the region of a block.
pub fn of_regions<'a>(
    block_stats: &[[f64; 2]],
    width: usize,
    [frames, channels, groups]: [usize; 3],
    region: impl Fn(usize) -> (usize, &'a Region),
) -> Vec<f32> {
    let block = |(i, stats)| {
        let (frame, region) = region(i);
        let (first, pixels) = (region.panels.start * width, region.rows.len() * region.columns.len());
        let stats: &[[f64; 2]] = stats;
        BlockStats { frame, first, pixels, channels: &stats[first..channels.min(region.panels.end * width)] }
    };
    let blocks = block_stats.chunks_exact(channels).enumerate().map(block).filter(|block| block.pixels > 0);
    combine(blocks, frames, channels, groups)
}

/// Count, mean and sum of squared deviations of the values added so far.
#[derive(Clone, Copy, Default)]
struct GroupStats {
    count: f64,
    mean: f64,
    square: f64,
}

impl GroupStats {
    /// Adds `count` values of the given mean and sum of squared deviations.
    fn add(&mut self, count: f64, mean: f64, square: f64) {
        let total = self.count + count;
        let delta = mean - self.mean;
        self.mean += delta * count / total;
        self.square += square + delta * delta * self.count * count / total;
        self.count = total;
    }
}

/// Mean and variance of each frame and group of a whole tensor.
pub fn of_tensor<E: Element>(level: Level, x: &Tensor, groups: usize) -> Vec<f32> {
    let (channels, thw) = (x.channels(), x.thw());
    let frame = thw.h * thw.w * channels;
    let chunks_per_frame = (thw.h * thw.w).div_ceil(PIXELS);
    let mut stats = vec![[0.0; 2]; thw.t * chunks_per_frame * channels];
    let chunk = |i: usize| {
        let start = i % chunks_per_frame * PIXELS * channels;
        &elements::<E>(x)[i / chunks_per_frame * frame..][..frame][start..(start + PIXELS * channels).min(frame)]
    };
    let blocks = stats.par_chunks_exact_mut(channels).enumerate();
    blocks.for_each(|(i, to)| block_stats(level, chunk(i), to));
    let block = |(i, channels): (usize, _)| BlockStats {
        frame: i / chunks_per_frame,
        first: 0,
        pixels: chunk(i).len() / x.channels(),
        channels,
    };
    combine(stats.chunks_exact(channels).enumerate().map(block), thw.t, channels, groups)
}
