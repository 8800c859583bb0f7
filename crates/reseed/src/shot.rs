//! Finds cuts, so that no batch reaches across one.
//!
//! Two frames are compared by their colours at places (means over a coarse grid) and by their colours at all (a
//! histogram): motion changes the first, light the second, a cut both. What counts as a cut follows what the frames
//! before it did. A frame unlike its neighbours on both sides is a flash, not a shot.

use std::collections::VecDeque;

use reseed_media::{Frame, Samples};

/// Cells of the grid a side.
const GRID: usize = 12;
/// Bins of the histogram a channel.
const BINS: usize = 16;
/// Pixels looked at along a side, about.
const SAMPLED: usize = 192;
/// No smaller difference is a cut. Frames of one shot differ by 0.00 to 0.06, two shots by 0.2 to 0.6, dark ones by 0.1.
const LEAST: f32 = 0.08;
/// A cut differs by at least this many times the mean of the frames before it.
const TIMES: f32 = 5.0;
/// What counts as a cut where there are no frames before.
const ALONE: f32 = 0.2;
/// Over how many frames that mean is taken.
const MEMORY: usize = 8;
/// A frame whose neighbours differ by less than this part of what it differs from them is a flash.
const FLASH: f32 = 0.5;

/// What is remembered of a frame.
pub struct Look {
    cells: Vec<[f32; 3]>,
    bins: Vec<f32>,
}

/// What a sample adds: its value, which is shared between two bins, so that a little light moves little.
#[derive(Clone, Copy)]
struct Share {
    value: f32,
    bin: usize,
    /// The next bin's part; this one has the rest.
    next: f32,
}

impl Share {
    fn of(value: f32) -> Share {
        let at = value * (BINS - 1) as f32;
        let bin = (at as usize).min(BINS - 2);
        Share { value, bin, next: at - bin as f32 }
    }
}

impl Look {
    /// Looks at a frame.
    pub fn of(frame: &Frame) -> Look {
        match &frame.samples {
            Samples::U8(samples) => {
                let shares: [Share; 256] = std::array::from_fn(|code| Share::of(code as f32 / 255.0));
                Look::at(frame, |i| shares[usize::from(samples[i])])
            }
            Samples::U16(samples) => Look::at(frame, |i| Share::of(f32::from(samples[i]) / 65535.0)),
        }
    }

    fn at(frame: &Frame, share: impl Fn(usize) -> Share) -> Look {
        let (h, w) = (frame.size.h, frame.size.w);
        let (mut cells, mut counts) = (vec![[0.0; 3]; GRID * GRID], vec![0.0; GRID * GRID]);
        let mut bins = [[0.0; BINS]; 3];
        let columns: Vec<(usize, usize)> = (0..w).step_by(w.div_ceil(SAMPLED)).map(|x| (x, x * GRID / w)).collect();
        for y in (0..h).step_by(h.div_ceil(SAMPLED)) {
            for (x, column) in &columns {
                let cell = y * GRID / h * GRID + column;
                counts[cell] += 1.0;
                for (c, bins) in bins.iter_mut().enumerate() {
                    let Share { value, bin, next } = share(3 * (y * w + x) + c);
                    cells[cell][c] += value;
                    bins[bin] += 1.0 - next;
                    bins[bin + 1] += next;
                }
            }
        }
        let total: f32 = counts.iter().sum();
        cells.iter_mut().zip(&counts).for_each(|(cell, n)| *cell = cell.map(|sum| sum / f32::max(*n, 1.0)));
        let bins = bins.iter().flatten().map(|bin| bin / (3.0 * total)).collect();
        Look { cells, bins }
    }

    /// 0 for equal frames, 1 for black and white.
    pub fn distance(&self, other: &Look) -> f32 {
        let places = self.cells.iter().flatten().zip(other.cells.iter().flatten());
        let places = places.map(|(a, b)| (a - b).abs()).sum::<f32>() / (3 * GRID * GRID) as f32;
        let colours = self.bins.iter().zip(&other.bins).map(|(a, b)| (a - b).abs()).sum::<f32>() / 2.0;
        (places * colours).sqrt()
    }
}

/// Says of each frame whether a shot starts with it, one frame late.
pub struct Shots<F> {
    held: Option<(F, Look)>,
    /// The frame before the one held, or before a flash.
    before: Option<Look>,
    recent: VecDeque<f32>,
}

impl<F> Default for Shots<F> {
    fn default() -> Shots<F> {
        Shots { held: None, before: None, recent: VecDeque::new() }
    }
}

impl<F> Shots<F> {
    /// Takes a frame; gives the one before it, and whether a shot starts with that. A clip's first frame starts none.
    pub fn push(&mut self, frame: F, look: Look) -> Option<(F, bool)> {
        let held = self.held.replace((frame, look))?;
        Some(self.judge(held))
    }

    /// The last frame.
    pub fn finish(&mut self) -> Option<(F, bool)> {
        let held = self.held.take()?;
        Some(self.judge(held))
    }

    fn judge(&mut self, (frame, look): (F, Look)) -> (F, bool) {
        let Some(before) = &self.before else {
            self.before = Some(look);
            return (frame, false);
        };
        let distance = before.distance(&look);
        let usual = self.recent.iter().sum::<f32>() / self.recent.len() as f32;
        let least = if self.recent.is_empty() { ALONE } else { LEAST.max(TIMES * usual) };
        if distance < least {
            self.recent.push_back(distance);
            if self.recent.len() > MEMORY {
                self.recent.pop_front();
            }
            self.before = Some(look);
            return (frame, false);
        }
        let next = self.held.as_ref().map(|(_, next)| before.distance(next));
        let cut = next.is_none_or(|next| next > FLASH * distance);
        if cut {
            self.recent.clear();
            self.before = Some(look);
        }
        (frame, cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_media::{Depth, Size};

    const SIZE: Size = Size { h: 40, w: 64 };

    /// A texture of one shot, moved by `shift` pixels, its light multiplied.
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
        let mut shots = Shots::default();
        let mut judged: Vec<(usize, bool)> =
            frames.iter().enumerate().filter_map(|(i, frame)| shots.push(i, Look::of(frame))).collect();
        judged.extend(shots.finish());
        assert!(judged.iter().map(|(i, _)| *i).eq(0..frames.len()), "every frame once, in order");
        judged.into_iter().filter(|(_, cut)| *cut).map(|(i, _)| i).collect()
    }

    #[test]
    fn cuts_are_found_and_motion_is_not_one() {
        let shot = |shot: usize, frames: usize, speed: usize| (0..frames).map(move |i| frame(shot, speed * i, 1.0));
        let film: Vec<Frame> = shot(0, 7, 0).chain(shot(1, 5, 6)).chain(shot(2, 1, 0)).chain(shot(0, 4, 3)).collect();
        assert_eq!(cuts(&film), [7, 12, 13]);
    }

    #[test]
    fn a_flash_is_no_shot() {
        let mut film: Vec<Frame> = (0..9).map(|i| frame(1, i, 0.5)).collect();
        film[4] = frame(1, 4, 1.6);
        assert_eq!(cuts(&film), [0; 0]);
    }

    #[test]
    fn a_fade_is_no_cut() {
        let film: Vec<Frame> = (0..20).map(|i| frame(0, 0, 1.0 - 0.05 * i as f32)).collect();
        assert_eq!(cuts(&film), [0; 0]);
    }

    #[test]
    fn tiny_frames_and_deep_ones_are_looked_at() {
        let dot = |value| Frame::from_unit(Size { h: 1, w: 2 }, &[value; 6], Depth::Sixteen);
        assert!((Look::of(&dot(0.0)).distance(&Look::of(&dot(1.0))) - (2.0f32 / 144.0).sqrt()).abs() < 1e-3);
        assert_eq!(cuts(&[]), [0; 0]);
        assert_eq!(cuts(&[dot(0.3)]), [0; 0]);
    }
}
