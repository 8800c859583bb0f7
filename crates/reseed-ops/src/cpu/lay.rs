//! Pixels for the inner loop: registers of neighbouring channels, those of a row's pixels one behind the other.

use super::level::Level;
use super::leveled::leveled;
use super::memory::Element;
use super::simd::{MOST_LANES, Portable, Simd};
use super::transpose::{Pixels, lanes};
use crate::shape::Hw;

/// Registers that the channels of a pixel fill.
pub fn groups(level: Level, channels: usize) -> usize {
    channels.div_ceil(lanes(level))
}

/// The rows of a frame.
pub struct Lines<'a, E> {
    /// Its pixels.
    pub frame: &'a [E],
    /// Its size.
    pub plane: Hw,
    /// Channels of a pixel.
    pub channels: usize,
}

impl<'a, E> Lines<'a, E> {
    /// A row, if it lies in the frame.
    pub fn at(&self, y: isize) -> Option<&'a [E]> {
        let (y, size) = (usize::try_from(y).ok().filter(|&y| y < self.plane.h)?, self.plane.w * self.channels);
        Some(&self.frame[y * size..][..size])
    }
}

leveled! {
    /// Writes pixels as `[group of lanes][pixel][lane]`.
    pub fn lay<E: Element>(lanes: usize, from: Pixels<E>, to: &mut [f32]) {
        match lanes {
            MOST_LANES => lay_in::<E, MOST_LANES>(&from, to),
            _ => lay_in::<E, { Portable::LANES }>(&from, to),
        }
    }
}

#[inline(always)]
fn lay_in<E: Element, const L: usize>(from: &Pixels<E>, to: &mut [f32]) {
    for i in 0..from.count {
        let pixel = from.get(i);
        for (group, to) in to.chunks_exact_mut(from.count * L).enumerate() {
            to[i * L..][..L].copy_from_slice(&register::<E, L>(pixel, group * L));
        }
    }
}

/// Up to `L` channels of a pixel from one on, and zeros behind them or where there is no pixel. By value, and without
/// closures: only so does the compiler see that nothing overlaps, and make it a register.
#[inline(always)]
pub fn register<E: Element, const L: usize>(pixel: Option<&[E]>, first: usize) -> [f32; L] {
    let mut lanes = [0.0; L];
    let Some(pixel) = pixel else { return lanes };
    match pixel[first..].first_chunk::<L>() {
        Some(channels) => {
            for (lane, value) in lanes.iter_mut().zip(channels) {
                *lane = value.to_f32();
            }
        }
        None => {
            for (lane, value) in lanes.iter_mut().zip(&pixel[first..]) {
                *lane = value.to_f32();
            }
        }
    }
    lanes
}
