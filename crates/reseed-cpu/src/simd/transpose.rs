//! Transposes `[pixel][channel]` to `[channel][pixel]` and converts to f32.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::vector::{Avx2, Avx512};
use super::vector::{MOST_LANES, Portable, Simd};
use crate::host::element::Element;
use crate::host::level::Level;
use reseed_ops::DType;

/// Row c of `to` becomes channel c of every pixel. Rows have the stride `pitch`.
pub fn transpose<E: Element>(level: Level, from: &[E], channels: usize, to: &mut [f32], pitch: usize) {
    let pixels = from.len() / channels;
    let side = lanes(level);
    if pixels < side {
        return transpose_elements(&Pixels::all(from, channels), to, pitch);
    }
    // The last square overlaps the previous one.
    for first in (0..pixels).step_by(side).map(|first| first.min(pixels - side)) {
        let square = Pixels { first: first as isize, count: side, ..Pixels::all(from, channels) };
        transpose_pixels(level, square, &mut to[first..], pitch);
    }
}

/// `count` pixels of a row, with the stride `step`. Pixels outside the row are zero.
pub struct Pixels<'a, E> {
    /// The whole row.
    pub row: &'a [E],
    /// Channels of a pixel.
    pub channels: usize,
    /// The channels to transpose.
    pub part: Range<usize>,
    /// Index of the first pixel. It may be outside the row.
    pub first: isize,
    /// Stride between pixels.
    pub step: usize,
    /// Number of pixels.
    pub count: usize,
}

impl<'a, E> Pixels<'a, E> {
    fn all(row: &'a [E], channels: usize) -> Self {
        Pixels { row, channels, part: 0..channels, first: 0, step: 1, count: row.len() / channels }
    }

    /// Pixel `i`, or `None` outside the row.
    pub fn get(&self, i: usize) -> Option<&'a [E]> {
        let x = usize::try_from(self.first + (i * self.step) as isize).ok()?;
        self.row.get(x * self.channels + self.part.start..x * self.channels + self.part.end)
    }
}

impl<'a, E> Pixels<'a, E> {
    /// The pixels inside the row.
    pub fn inside(&self) -> Range<usize> {
        let before = |x: isize| ((x - self.first).max(0) as usize).div_ceil(self.step).min(self.count);
        before(0)..before((self.row.len() / self.channels) as isize)
    }

    /// For each of the pixels `inside`, the row from its channel `c` on.
    pub fn channels_from(&self, inside: &Range<usize>, c: usize) -> impl Iterator<Item = &'a [E]> {
        let x = self.first + (inside.start * self.step) as isize;
        let row = if inside.is_empty() { &[] } else { &self.row[x as usize * self.channels + c..] };
        row.chunks(self.step * self.channels)
    }

    /// The values from channel `c` of pixel `first` to channel `c + side` of the last of `side` pixels, or `None` where
    /// some of these pixels are outside the row.
    #[inline(always)]
    fn square(&self, first: usize, c: usize, side: usize) -> Option<&'a [E]> {
        let x = usize::try_from(self.first + (first * self.step) as isize).ok()?;
        let start = x * self.channels + self.part.start + c;
        self.row.get(start..start + (side - 1) * self.step * self.channels + side)
    }
}

/// Floats of a register.
pub fn lanes(level: Level) -> usize {
    match level {
        Level::Avx512 => MOST_LANES,
        _ => Portable::LANES,
    }
}

/// Transposes some pixels of a row. It is fast where they form whole squares of registers.
pub fn transpose_pixels<E: Element>(level: Level, from: Pixels<E>, to: &mut [f32], pitch: usize) {
    assert!(to.len() >= (from.part.len() - 1) * pitch + from.count, "transposed rows do not fit");
    let side = lanes(level);
    if from.part.len() < side || !from.count.is_multiple_of(side) {
        return transpose_elements(&from, to, pitch);
    }
    // SAFETY: the assert bounds all rows and columns of `to`. There are at least `side` channels, and the number of
    // pixels is a multiple of `side`. `CpuOps::at` has checked that the CPU has `level`.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => squares_avx512(from, to, pitch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => squares_avx2(from, to, pitch),
            _ => squares::<Portable, E>(from, to, pitch),
        }
    }
}

fn transpose_elements<E: Element>(from: &Pixels<E>, to: &mut [f32], pitch: usize) {
    for i in 0..from.count {
        match from.get(i) {
            Some(pixel) => pixel.iter().enumerate().for_each(|(c, value)| to[c * pitch + i] = value.to_f32()),
            None => (0..from.part.len()).for_each(|c| to[c * pitch + i] = 0.0),
        }
    }
}

/// # Safety
/// The CPU must have AVX-512 F, VL, BW and DQ; otherwise as for [`squares`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn squares_avx512<E: Element>(from: Pixels<E>, to: &mut [f32], pitch: usize) {
    // SAFETY: the caller gives the same guarantees.
    unsafe { squares::<Avx512, E>(from, to, pitch) }
}

/// # Safety
/// The CPU must have AVX2 and FMA; otherwise as for [`squares`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn squares_avx2<E: Element>(from: Pixels<E>, to: &mut [f32], pitch: usize) {
    // SAFETY: the caller gives the same guarantees.
    unsafe { squares::<Avx2, E>(from, to, pitch) }
}

/// Transposes squares in registers. The last square of channels overlaps the previous one where the number of channels
/// is not a multiple of the side.
///
/// # Safety
/// The CPU must have the instruction set of `S`. `from` must have at least `S::LANES` channels and a multiple of
/// `S::LANES` pixels. `to` must hold a row for each channel with the stride `pitch`, each of `from.count` values.
#[inline(always)]
unsafe fn squares<S: Simd, E: Element>(from: Pixels<E>, to: &mut [f32], pitch: usize) {
    let side = S::LANES;
    let zeros = [0.0; MOST_LANES];
    let mut wide = [[0.0; MOST_LANES]; MOST_LANES];
    for first in (0..from.count).step_by(side) {
        for c in (0..from.part.len()).step_by(side).map(|c| c.min(from.part.len() - side)) {
            let mut rows = [zeros.as_ptr(); MOST_LANES];
            if E::DTYPE == DType::F32
                && let Some(square) = from.square(first, c, side)
            {
                let (start, step) = (square.as_ptr().cast::<f32>(), from.step * from.channels);
                rows.iter_mut().enumerate().take(side).for_each(|(i, row)| *row = start.wrapping_add(i * step));
                // SAFETY: `square` holds `side` floats from each row on, and the caller guarantees the square of `to`.
                unsafe { S::transpose(&rows, to.as_mut_ptr().add(c * pitch + first), pitch) };
                continue;
            }
            for (i, (row, wide)) in rows.iter_mut().zip(&mut wide).enumerate().take(side) {
                let Some(pixel) = from.get(first + i) else { continue };
                let pixel = &pixel[c..][..side];
                *row = if E::DTYPE == DType::F32 {
                    pixel.as_ptr().cast()
                } else {
                    wide.iter_mut().zip(pixel).for_each(|(wide, value)| *wide = value.to_f32());
                    wide.as_ptr()
                };
            }
            // SAFETY: every row points at `side` readable floats, and the caller guarantees the square of `to`.
            unsafe { S::transpose(&rows, to.as_mut_ptr().add(c * pitch + first), pitch) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_outside_a_row_are_zero() {
        for level in Level::available() {
            for channels in [3, 16, 21] {
                let row: Vec<f32> = (0..9 * channels).map(|i| 1.0 + i as f32).collect();
                let mut to = vec![-1.0; channels * 16];
                let pixels = Pixels { row: &row, channels, part: 0..channels, first: -2, step: 2, count: 16 };
                transpose_pixels(level, pixels, &mut to, 16);
                for (i, value) in to.iter().enumerate() {
                    let (c, x) = (i / 16, 2 * (i % 16) as isize - 2);
                    let want = if (0..9).contains(&x) { row[x as usize * channels + c] } else { 0.0 };
                    assert_eq!(*value, want, "{level}, {channels} channels: {c}, {x}");
                }
            }
        }
    }

    #[test]
    fn every_level_transposes_every_size() {
        for level in Level::available() {
            for (pixels, channels) in [(1, 1), (16, 16), (17, 33), (58, 24), (3, 40)] {
                let pitch = pixels + 3;
                let from: Vec<f32> = (0..pixels * channels).map(|i| i as f32).collect();
                let mut to = vec![-1.0; channels * pitch];
                transpose(level, &from, channels, &mut to, pitch);
                for (i, value) in to.iter().enumerate() {
                    let (c, x) = (i / pitch, i % pitch);
                    let want = if x < pixels { from[x * channels + c] } else { -1.0 };
                    assert_eq!(*value, want, "{level} {pixels}x{channels} at {c}, {x}");
                }
            }
        }
    }
}
