//! From sums to bf16 with AVX-512, sixteen values at a time. The compiler does not select the conversion instruction
//! for a plain loop.

use super::shape::SIDE;
use crate::host::element::Element;
use crate::host::tile_support::available;
use crate::simd::output::{OutputRow, PixelOffsets};
use crate::simd::stats::Accumulator;
use reseed_ops::DType;

/// Whether `channels` channels fill whole registers of a CPU that has them.
pub fn supports(channels: usize) -> bool {
    cfg!(target_arch = "x86_64") && channels.is_multiple_of(SIDE)
}

/// Writes one row of a region. `offsets` maps a column to its offsets in the output and in the bias.
pub fn finish_row<E: Element>(
    row: &OutputRow<E>,
    sums: &[f32],
    offsets: impl Fn(usize) -> PixelOffsets,
    stats: Option<&mut Accumulator>,
) {
    assert!(E::DTYPE == DType::Bf16 && supports(row.channels), "{} channels of {}", row.channels, E::DTYPE);
    assert!(available(), "AVX-512 bf16 on a machine without AMX");
    // SAFETY: a CPU with AMX has AVX-512 with bf16. The asserts above are what `finish_row` requires.
    unsafe { registers::finish_row(row, sums, offsets, stats) }
}

#[cfg(not(target_arch = "x86_64"))]
mod registers {
    use super::{Accumulator, Element, OutputRow, PixelOffsets};

    /// # Safety
    /// None: this target has no AVX-512, and a call panics.
    pub unsafe fn finish_row<E: Element>(
        _: &OutputRow<E>,
        _: &[f32],
        _: impl Fn(usize) -> PixelOffsets,
        _: Option<&mut Accumulator>,
    ) {
        unreachable!("AVX-512 on a target without it");
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;
    use std::array::from_fn;

    use super::{Accumulator, Element, OutputRow, PixelOffsets, SIDE};
    use crate::tiles::shape::PANEL;

    /// Pixels by which the output is prefetched, because a store to a line outside the cache waits for it.
    const AHEAD: usize = 8;

    /// # Safety
    /// The CPU must have the features below. `E` must be bf16, and the number of channels a multiple of 16. No other
    /// slice of the row's channels of these pixels may exist.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")]
    pub unsafe fn finish_row<E: Element>(
        row: &OutputRow<E>,
        sums: &[f32],
        offsets: impl Fn(usize) -> PixelOffsets,
        mut stats: Option<&mut Accumulator>,
    ) {
        // SAFETY: the caller gives the same guarantees. A multiple of 16 channels leaves 16 or at least 32 from `first`
        // on.
        unsafe {
            for first in (0..row.channels).step_by(PANEL) {
                let stats = stats.as_deref_mut();
                match row.channels - first {
                    SIDE => some_channels::<E, 1>(row, sums, &offsets, stats, first),
                    _ => some_channels::<E, 2>(row, sums, &offsets, stats, first),
                }
            }
        }
    }

    /// N registers of channels of all pixels. The statistics stay in registers.
    ///
    /// # Safety
    /// As for [`finish_row`]. The row must have at least `first + 16 N` channels.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")]
    unsafe fn some_channels<E: Element, const N: usize>(
        row: &OutputRow<E>,
        sums: &[f32],
        offsets: impl Fn(usize) -> PixelOffsets,
        stats: Option<&mut Accumulator>,
        first: usize,
    ) {
        // SAFETY: the caller guarantees the features, bf16 elements and `N` registers of channels from `first` on, so
        // every load and store below is inside a slice of that length. This thread uses one pixel of its region at a
        // time.
        unsafe {
            let mut stats = stats.map(|stats| stats.channels_mut(first..first + N * SIDE));
            let load =
                |values: &[f32]| -> [__m512; N] { from_fn(|i| _mm512_loadu_ps(values[i * SIDE..][..SIDE].as_ptr())) };
            let zero = [_mm512_setzero_ps(); N];
            let [origin, mut sum, mut square] =
                stats.as_ref().map_or([zero; 3], |stats| stats.each_ref().map(|values| load(values)));
            for (x, sums) in row.columns.clone().zip(sums.chunks(row.pixel)) {
                let (sums, bias, out) = row.pixel(sums, offsets(x));
                let ahead = offsets(x).output.abs_diff(offsets(x + 1).output) * AHEAD;
                _mm_prefetch::<_MM_HINT_ET0>(out[first..].as_ptr().wrapping_add(ahead).cast());
                let (sums, bias) = (load(&sums[first..]), load(&bias[first..]));
                for i in 0..N {
                    let to: *mut __m256i = out[first + i * SIDE..][..SIDE].as_mut_ptr().cast();
                    let y = _mm512_add_ps(sums[i], bias[i]);
                    let y = if row.add { _mm512_add_ps(y, widen(_mm256_loadu_si256(to))) } else { y };
                    let y: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(y));
                    _mm256_storeu_si256(to, y);
                    let d = _mm512_sub_ps(widen(y), origin[i]);
                    (sum[i], square[i]) = (_mm512_add_ps(sum[i], d), _mm512_fmadd_ps(d, d, square[i]));
                }
            }
            if let Some([_, to_sum, to_square]) = &mut stats {
                for i in 0..N {
                    _mm512_storeu_ps(to_sum[i * SIDE..][..SIDE].as_mut_ptr(), sum[i]);
                    _mm512_storeu_ps(to_square[i * SIDE..][..SIDE].as_mut_ptr(), square[i]);
                }
            }
        }
    }

    /// bf16 to f32: bf16 is the upper half of f32.
    #[target_feature(enable = "avx512f")]
    fn widen(values: __m256i) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(values)))
    }
}
