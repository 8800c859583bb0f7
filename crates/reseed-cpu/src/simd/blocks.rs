//! Pixels in f32, cut into blocks of channels: `[block][pixel][BLOCK]`.

use super::dispatch::dispatch;
use super::gemm::BLOCK;
use super::transpose::Pixels;
use crate::host::element::Element;

/// Floats of `pixels` pixels of `channels` channels.
pub fn floats(pixels: usize, channels: usize) -> usize {
    pixels * channels.next_multiple_of(BLOCK)
}

/// Prefetches the cache line at `p`, which may be any address.
#[inline(always)]
pub fn prefetch<E>(p: *const E) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch may name any address, and every x86-64 CPU has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

dispatch! {
    /// Copies some pixels of a row. What follows the last channel in its block is unspecified.
    pub fn copy_blocks<E: Element>(from: Pixels<E>, ahead: usize, to: &mut [f32]) {
        let inside = from.inside();
        for (c, to) in (0..from.part.len()).step_by(BLOCK).zip(to.chunks_exact_mut(from.count * BLOCK)) {
            to[..inside.start * BLOCK].fill(0.0);
            to[inside.end * BLOCK..].fill(0.0);
            let to = to[inside.start * BLOCK..inside.end * BLOCK].as_chunks_mut::<BLOCK>().0;
            let pixels = to.iter_mut().zip(from.channels_from(&inside, from.part.start + c));
            match from.part.len() - c {
                BLOCK.. => pixels.for_each(|(to, pixel)| {
                    prefetch(pixel.as_ptr().wrapping_add(ahead));
                    let pixel: &[E; BLOCK] = pixel.first_chunk().expect("a block of channels");
                    *to = pixel.map(E::to_f32);
                }),
                rest => pixels.for_each(|(to, pixel)| {
                    to.iter_mut().zip(&pixel[..rest]).for_each(|(to, value)| *to = value.to_f32());
                }),
            }
        }
    }
}

/// Copies neighbouring pixels of a row with all their channels.
pub fn copy_pixels<E: Element>(from: &Pixels<E>, to: &mut [f32]) {
    let inside = from.inside();
    let [start, end] = [inside.start, inside.end].map(|pixel| pixel * from.channels);
    to[..start].fill(0.0);
    to[end..].fill(0.0);
    let x = (from.first + inside.start as isize).max(0) as usize * from.channels;
    let row = from.row.get(x..).unwrap_or(&[]);
    to[start..end].iter_mut().zip(row).for_each(|(to, value)| *to = value.to_f32());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::level::Level;

    #[test]
    fn pixels_outside_a_row_are_zero() {
        for level in Level::available() {
            for (channels, part) in [(3, 0..3), (16, 0..16), (40, 5..39)] {
                let row: Vec<f32> = (0..9 * channels).map(|i| 1.0 + i as f32).collect();
                for (first, step, count) in [(-2, 2, 8), (-1, 1, 11), (3, 1, 4), (-9, 1, 4), (9, 2, 2)] {
                    let mut to = vec![-1.0; floats(count, part.len())];
                    let pixels = Pixels { row: &row, channels, part: part.clone(), first, step, count };
                    copy_blocks(level, pixels, 0, &mut to);
                    for (i, c) in (0..count).flat_map(|i| (0..part.len()).map(move |c| (i, c))) {
                        let x = first + (i * step) as isize;
                        let inside = (0..9).contains(&x);
                        let want = if inside { row[x as usize * channels + part.start + c] } else { 0.0 };
                        let at = (c / BLOCK * count + i) * BLOCK + c % BLOCK;
                        assert_eq!(to[at], want, "{level}, {channels} channels from {first}: {i}, {c}");
                    }
                }
            }
        }
    }

    #[test]
    fn neighbouring_pixels_outside_a_row_are_zero() {
        let row: Vec<f32> = (0..9 * 3).map(|i| 1.0 + i as f32).collect();
        for (first, count) in [(-2, 8), (-1, 11), (3, 4), (-9, 4), (10, 2)] {
            let mut to = vec![-1.0; 3 * count];
            copy_pixels(&Pixels { row: &row, channels: 3, part: 0..3, first, step: 1, count }, &mut to);
            let at = |i: usize| usize::try_from(3 * first + i as isize).ok().and_then(|i| row.get(i));
            let want: Vec<f32> = (0..3 * count).map(|i| at(i).copied().unwrap_or(0.0)).collect();
            assert_eq!(to, want, "from {first}");
        }
    }
}
