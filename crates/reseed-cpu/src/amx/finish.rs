//! From sums to bf16, sixteen values at a time: the conversion is an instruction that the compiler does not find.

use super::SIDE;
use crate::finish::Row;
use crate::memory::Element;
use crate::stats::Measure;
use reseed_ops::DType;

/// Whether channels fill registers.
pub fn fits(channels: usize) -> bool {
    channels.is_multiple_of(SIDE)
}

/// One row of a region; `place` tells of each column where it goes and where its bias stands.
pub fn finish_row<E: Element>(
    row: &Row<E>,
    sums: &[f32],
    place: impl Fn(usize) -> [usize; 2],
    measure: Option<&mut Measure>,
) {
    assert!(E::DTYPE == DType::Bf16 && fits(row.channels), "{} channels of {}", row.channels, E::DTYPE);
    assert!(super::available(), "tiles on a machine without AMX");
    // SAFETY: machines with AMX have AVX-512 with bf16, elements are bf16, and channels a multiple of a register.
    unsafe { registers::finish_row(row, sums, place, measure) }
}

#[cfg(not(target_arch = "x86_64"))]
mod registers {
    use super::{Element, Measure, Row};

    pub unsafe fn finish_row<E: Element>(
        _: &Row<E>,
        _: &[f32],
        _: impl Fn(usize) -> [usize; 2],
        _: Option<&mut Measure>,
    ) {
        unreachable!("tiles on a machine without AMX");
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;
    use std::array::from_fn;

    use super::super::PANEL;
    use super::{Element, Measure, Row, SIDE};

    /// Pixels by which output is prefetched ahead: a store to what is in no cache waits for it.
    const AHEAD: usize = 8;

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")]
    pub unsafe fn finish_row<E: Element>(
        row: &Row<E>,
        sums: &[f32],
        place: impl Fn(usize) -> [usize; 2],
        mut measure: Option<&mut Measure>,
    ) {
        // SAFETY: sixteen of everything are there, since channels are a multiple of them.
        unsafe {
            for first in (0..row.channels).step_by(PANEL) {
                let measure = measure.as_deref_mut();
                match row.channels - first {
                    SIDE => some_channels::<E, 1>(row, sums, &place, measure, first),
                    _ => some_channels::<E, 2>(row, sums, &place, measure, first),
                }
            }
        }
    }

    /// Registers `N` of channels of all pixels: what is measured stays in registers meanwhile.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")]
    unsafe fn some_channels<E: Element, const N: usize>(
        row: &Row<E>,
        sums: &[f32],
        place: impl Fn(usize) -> [usize; 2],
        measure: Option<&mut Measure>,
        first: usize,
    ) {
        // SAFETY: the caller's promise; regions differ in pixels or in channels.
        unsafe {
            let mut measured = measure.map(|measure| measure.running(first..first + N * SIDE));
            let load = |values: &[f32]| -> [__m512; N] { from_fn(|i| _mm512_loadu_ps(&values[i * SIDE])) };
            let none = [_mm512_setzero_ps(); N];
            let [origin, mut sum, mut square] =
                measured.as_ref().map_or([none; 3], |measured| measured.each_ref().map(|values| load(values)));
            for (x, sums) in row.columns.clone().zip(sums.chunks(row.pixel)) {
                let (sums, bias, out) = row.pixel(sums, place(x));
                let ahead = place(x)[0].abs_diff(place(x + 1)[0]) * AHEAD;
                _mm_prefetch::<_MM_HINT_ET0>(out[first..].as_ptr().wrapping_add(ahead).cast());
                let (sums, bias) = (load(&sums[first..]), load(&bias[first..]));
                for i in 0..N {
                    let to: *mut __m256i = (&raw mut out[first + i * SIDE]).cast();
                    let y = _mm512_add_ps(sums[i], bias[i]);
                    let y = if row.add { _mm512_add_ps(y, widen(_mm256_loadu_si256(to))) } else { y };
                    let y: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(y));
                    _mm256_storeu_si256(to, y);
                    let d = _mm512_sub_ps(widen(y), origin[i]);
                    (sum[i], square[i]) = (_mm512_add_ps(sum[i], d), _mm512_fmadd_ps(d, d, square[i]));
                }
            }
            if let Some([_, to_sum, to_square]) = &mut measured {
                for i in 0..N {
                    _mm512_storeu_ps(&mut to_sum[i * SIDE], sum[i]);
                    _mm512_storeu_ps(&mut to_square[i * SIDE], square[i]);
                }
            }
        }
    }

    /// bf16 is the upper half of f32.
    #[target_feature(enable = "avx512f")]
    fn widen(values: __m256i) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(values)))
    }
}
