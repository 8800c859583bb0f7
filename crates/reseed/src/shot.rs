//! Shot detection. No batch crosses a cut.
//!
//! The distance of two frames is the geometric mean of the distance of their block means and of the distance of their
//! colour histograms: motion changes the former, light the latter, a cut both. The threshold adapts to the distances of
//! the frames before. A frame that differs from both neighbours, which resemble each other, is a flash and no cut.

use std::collections::VecDeque;

use reseed_media::{Frame, Samples};

/// Blocks per side.
const GRID: usize = 12;
/// Histogram bins per channel.
const BINS: usize = 16;
/// Approximate number of sampled pixels per side.
const SAMPLED: usize = 192;
/// Smallest distance of a cut. Frames of one shot differ by 0.00 to 0.06, two shots by 0.2 to 0.6, dark shots by 0.1.
const MIN_CUT: f32 = 0.08;
/// A cut exceeds the mean of the recent distances by this factor.
const CUT_FACTOR: f32 = 5.0;
/// Smallest distance of a cut when there are no recent distances.
const FIRST_CUT: f32 = 0.2;
/// Number of recent distances.
const RECENT: usize = 8;
/// A frame is a flash when its neighbours differ by at most this fraction of its own distance.
const FLASH: f32 = 0.5;

/// Block means and histogram of a frame.
#[derive(Clone)]
pub struct FrameSignature {
    blocks: Vec<[f32; 3]>,
    bins: Vec<f32>,
}

/// The contribution of a sample to the histogram: linear interpolation between two bins, so that a small change in
/// light changes the histogram little.
#[derive(Clone, Copy)]
struct BinWeight {
    value: f32,
    bin: usize,
    /// Weight of `bin + 1`; `bin` has the complement to 1.
    next: f32,
}

impl BinWeight {
    fn of(value: f32) -> BinWeight {
        let at = value * (BINS - 1) as f32;
        let bin = (at as usize).min(BINS - 2);
        BinWeight { value, bin, next: at - bin as f32 }
    }
}

impl FrameSignature {
    /// Computes the signature of a frame.
    pub fn new(frame: &Frame) -> FrameSignature {
        match &frame.samples {
            Samples::U8(samples) => {
                let weights: [BinWeight; 256] = std::array::from_fn(|code| BinWeight::of(code as f32 / 255.0));
                FrameSignature::with_weights(frame, |i| weights[usize::from(samples[i])])
            }
            Samples::U16(samples) => {
                FrameSignature::with_weights(frame, |i| BinWeight::of(f32::from(samples[i]) / 65535.0))
            }
            Samples::F32(samples) => FrameSignature::with_weights(frame, |i| BinWeight::of(samples[i].clamp(0.0, 1.0))),
        }
    }

    fn with_weights(frame: &Frame, weight: impl Fn(usize) -> BinWeight) -> FrameSignature {
        let (h, w) = (frame.size.h, frame.size.w);
        let (mut blocks, mut counts) = (vec![[0.0; 3]; GRID * GRID], vec![0.0; GRID * GRID]);
        let mut bins = [[0.0; BINS]; 3];
        let columns: Vec<(usize, usize)> = (0..w).step_by(w.div_ceil(SAMPLED)).map(|x| (x, x * GRID / w)).collect();
        for y in (0..h).step_by(h.div_ceil(SAMPLED)) {
            for (x, column) in &columns {
                let block = y * GRID / h * GRID + column;
                counts[block] += 1.0;
                for (c, bins) in bins.iter_mut().enumerate() {
                    let BinWeight { value, bin, next } = weight(3 * (y * w + x) + c);
                    blocks[block][c] += value;
                    bins[bin] += 1.0 - next;
                    bins[bin + 1] += next;
                }
            }
        }
        let total: f32 = counts.iter().sum();
        blocks.iter_mut().zip(&counts).for_each(|(block, n)| *block = block.map(|sum| sum / f32::max(*n, 1.0)));
        let bins = bins.iter().flatten().map(|bin| bin / (3.0 * total)).collect();
        FrameSignature { blocks, bins }
    }

    /// sqrt(mean |block difference| · ½ sum |bin difference|): 0 for equal frames, 1 for black against white.
    pub fn distance(&self, other: &FrameSignature) -> f32 {
        let blocks = self.blocks.iter().flatten().zip(other.blocks.iter().flatten());
        let blocks = blocks.map(|(a, b)| (a - b).abs()).sum::<f32>() / (3 * GRID * GRID) as f32;
        let colours = self.bins.iter().zip(&other.bins).map(|(a, b)| (a - b).abs()).sum::<f32>() / 2.0;
        (blocks * colours).sqrt()
    }
}

/// Decides for each frame whether a shot starts with it, with a delay of one frame.
#[derive(Clone)]
pub struct ShotDetector<F> {
    held: Option<(F, FrameSignature)>,
    /// Signature of the frame before `held`, or before a flash.
    before: Option<FrameSignature>,
    /// Distances of consecutive frames in the current shot.
    recent: VecDeque<f32>,
}

impl<F> Default for ShotDetector<F> {
    fn default() -> ShotDetector<F> {
        ShotDetector { held: None, before: None, recent: VecDeque::new() }
    }
}

impl<F> ShotDetector<F> {
    /// Adds a frame; returns the previous frame and whether it is the first of a new shot. The first frame of a clip
    /// does not count as a cut.
    pub fn push(&mut self, frame: F, signature: FrameSignature) -> Option<(F, bool)> {
        let held = self.held.replace((frame, signature))?;
        Some(self.decide(held))
    }

    /// Ends the clip; returns its last frame.
    pub fn finish(&mut self) -> Option<(F, bool)> {
        let held = self.held.take()?;
        Some(self.decide(held))
    }

    fn decide(&mut self, (frame, signature): (F, FrameSignature)) -> (F, bool) {
        let Some(before) = &self.before else {
            self.before = Some(signature);
            return (frame, false);
        };
        let distance = before.distance(&signature);
        let mean = self.recent.iter().sum::<f32>() / self.recent.len() as f32;
        let threshold = if self.recent.is_empty() { FIRST_CUT } else { MIN_CUT.max(CUT_FACTOR * mean) };
        if distance < threshold {
            self.recent.push_back(distance);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
            self.before = Some(signature);
            return (frame, false);
        }
        let next = self.held.as_ref().map(|(_, next)| before.distance(next));
        let cut = next.is_none_or(|next| next > FLASH * distance);
        if cut {
            self.recent.clear();
            self.before = Some(signature);
        }
        (frame, cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_media::{Depth, Size};

    const SIZE: Size = Size { h: 40, w: 64 };

    /// The texture of a shot, shifted by `shift` pixels and multiplied by `light`.
    fn frame(shot: usize, shift: usize, light: f32) -> Frame {
        let value = |i: usize| {
            let (x, y, c) = ((i / 3 % SIZE.w + shift) as f32, (i / 3 / SIZE.w) as f32, (i % 3) as f32);
            let (a, b) = (0.05 + 0.03 * shot as f32, 0.11 - 0.02 * shot as f32);
            let base = [0.25, 0.6, 0.45][(shot + i % 3) % 3];
            light * (base + 0.2 * (a * x + b * y + c).sin() + 0.1 * (0.7 * x).cos())
        };
        let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
        Frame::from_unit(SIZE, &unit, Depth::Eight)
    }

    fn cuts(frames: &[Frame]) -> Vec<usize> {
        let mut shots = ShotDetector::default();
        let mut decided: Vec<(usize, bool)> =
            frames.iter().enumerate().filter_map(|(i, frame)| shots.push(i, FrameSignature::new(frame))).collect();
        decided.extend(shots.finish());
        assert!(decided.iter().map(|(i, _)| *i).eq(0..frames.len()), "every frame once, in order");
        decided.into_iter().filter(|(_, cut)| *cut).map(|(i, _)| i).collect()
    }

    #[test]
    fn cuts_are_detected_and_motion_is_not() {
        let shot = |shot: usize, frames: usize, speed: usize| (0..frames).map(move |i| frame(shot, speed * i, 1.0));
        let clip: Vec<Frame> = shot(0, 7, 0).chain(shot(1, 5, 6)).chain(shot(2, 1, 0)).chain(shot(0, 4, 3)).collect();
        assert_eq!(cuts(&clip), [7, 12, 13]);
    }

    #[test]
    fn a_flash_is_not_a_cut() {
        let mut clip: Vec<Frame> = (0..9).map(|i| frame(1, i, 0.5)).collect();
        clip[4] = frame(1, 4, 1.6);
        assert_eq!(cuts(&clip), [0; 0]);
    }

    #[test]
    fn a_fade_is_not_a_cut() {
        let clip: Vec<Frame> = (0..20).map(|i| frame(0, 0, 1.0 - 0.05 * i as f32)).collect();
        assert_eq!(cuts(&clip), [0; 0]);
    }

    #[test]
    fn signatures_support_two_pixels_and_16_bits() {
        let dot = |value| Frame::from_unit(Size { h: 1, w: 2 }, &[value; 6], Depth::Sixteen);
        let [black, white] = [0.0, 1.0].map(|value| FrameSignature::new(&dot(value)));
        assert!((black.distance(&white) - (2.0f32 / 144.0).sqrt()).abs() < 1e-3);
        assert_eq!(cuts(&[]), [0; 0]);
        assert_eq!(cuts(&[dot(0.3)]), [0; 0]);
    }
}
