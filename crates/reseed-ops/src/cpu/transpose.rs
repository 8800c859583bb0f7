//! `[pixel][channel]` to `[channel][pixel]`.

use super::level::Level;
use super::memory::Element;
#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Portable, Simd};

/// Widest square of any level.
const SIDE: usize = 16;

/// Row c of `to`, `pitch` apart from the next, becomes channel c of every pixel.
pub fn transpose<E: Element>(level: Level, from: &[E], channels: usize, to: &mut [f32], pitch: usize) {
    transpose_every(1, level, from, channels, to, pitch);
}

/// The same for the first pixel and every `step`th behind it.
pub fn transpose_every<E: Element>(
    step: usize,
    level: Level,
    from: &[E],
    channels: usize,
    to: &mut [f32],
    pitch: usize,
) {
    let pixels = (from.len() / channels).div_ceil(step);
    assert!(to.len() >= (channels - 1) * pitch + pixels, "transposed rows do not fit");
    if pixels < SIDE || channels < SIDE {
        for (x, pixel) in from.chunks_exact(channels).step_by(step).enumerate() {
            pixel.iter().enumerate().for_each(|(c, value)| to[c * pitch + x] = value.to_f32());
        }
        return;
    }
    let source = Pixels { values: from, channels, step, count: pixels };
    // SAFETY: `source` and `to` hold the rows and columns asserted above, and the level was detected.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => squares_avx512(source, to, pitch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => squares_avx2(source, to, pitch),
            _ => squares::<Portable, E>(source, to, pitch),
        }
    }
}

/// `count` pixels, `step` apart.
struct Pixels<'a, E> {
    values: &'a [E],
    channels: usize,
    step: usize,
    count: usize,
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
unsafe fn squares_avx512<E: Element>(from: Pixels<E>, to: &mut [f32], pitch: usize) {
    // SAFETY: the caller's promise.
    unsafe { squares::<Avx512, E>(from, to, pitch) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn squares_avx2<E: Element>(from: Pixels<E>, to: &mut [f32], pitch: usize) {
    // SAFETY: the caller's promise.
    unsafe { squares::<Avx2, E>(from, to, pitch) }
}

/// Squares that stay in registers; the last one overlaps the one before it where the sides are no multiples.
#[inline(always)]
unsafe fn squares<S: Simd, E: Element>(from: Pixels<E>, to: &mut [f32], pitch: usize) {
    let side = S::LANES;
    let steps = |n: usize| (0..n).step_by(side).map(move |i| i.min(n - side));
    let mut wide = [0.0; SIDE * SIDE];
    for c in steps(from.channels) {
        for x in steps(from.count) {
            for (i, row) in wide.chunks_exact_mut(SIDE).enumerate().take(side) {
                let pixel = &from.values[(x + i) * from.step * from.channels + c..][..side];
                row.iter_mut().zip(pixel).for_each(|(value, from)| *value = from.to_f32());
            }
            // SAFETY: `wide` is large enough for any level, and the caller's promise.
            unsafe { S::turn(wide.as_ptr(), SIDE, to.as_mut_ptr().add(c * pitch + x), pitch) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_turns_every_size() {
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
