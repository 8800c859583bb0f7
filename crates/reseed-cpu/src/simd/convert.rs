//! Conversion of packed weights between f32 and the narrowest type that is exact.

use std::ops::Range;

use half::{bf16, f16};
use rayon::prelude::*;

use super::dispatch::dispatch;
use crate::host::buffer::{Floats, Values};
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use reseed_ops::DType;

/// Values that are tested, or widened for a sum, at a time.
const CHUNK: usize = 1024;

/// The narrowest type that holds every value exactly.
pub fn narrowest_exact(values: &[f32]) -> DType {
    if values.par_chunks(CHUNK).all(|values| values.iter().all(|v| v.to_bits() & 0xFFFF == 0)) {
        DType::Bf16
    } else if values.par_chunks(CHUNK).all(|values| values.iter().fold(true, |all, v| all & is_f16(*v))) {
        DType::F16
    } else {
        DType::F32
    }
}

/// Whether f16 holds a value exactly. Without branches, so that loops over it vectorise.
#[inline(always)]
fn is_f16(value: f32) -> bool {
    const LEAST_NORMAL: f32 = 1.0 / 16384.0;
    let size = value.abs();
    let normal =
        (size >= LEAST_NORMAL) & ((size < 65536.0) | (size == f32::INFINITY)) & (value.to_bits() & 0x1FFF == 0);
    // Smaller values have the step 2^-24 in f16. f32 has it from 0.5 to 1.
    normal | ((size < LEAST_NORMAL) & (size + 0.5 - 0.5 == size))
}

impl Floats {
    /// The same values in the narrowest exact type.
    pub fn narrow(self) -> Values {
        let dtype = narrowest_exact(&self);
        if dtype == DType::F32 {
            return self.into();
        }
        let mut values = Values::zeros(self.len(), dtype);
        with_element!(dtype, E => {
            let to = values.elements_mut::<E>().par_chunks_mut(CHUNK);
            to.zip(self.par_chunks(CHUNK)).for_each(|(to, from)| E::round_all(from, to));
        });
        values
    }
}

/// to = values
pub fn widen(level: Level, values: &Values, span: Range<usize>, to: &mut [f32]) {
    match values.dtype() {
        DType::F32 => to.copy_from_slice(&values.elements::<f32>()[span]),
        DType::F16 => widen_f16(level, &values.elements::<f16>()[span], to),
        DType::Bf16 => widen_bf16(level, &values.elements::<bf16>()[span], to),
    }
}

/// to += values
pub fn add_widened(level: Level, values: &Values, span: Range<usize>, to: &mut [f32]) {
    if let Some(floats) = values.floats() {
        return add(level, &floats[span], to);
    }
    let mut wide = [0.0; CHUNK];
    for (i, to) in to.chunks_mut(CHUNK).enumerate() {
        let (start, wide) = (span.start + i * CHUNK, &mut wide[..to.len()]);
        widen(level, values, start..start + to.len(), wide);
        add(level, wide, to);
    }
}

dispatch! {
    /// to += from
    pub fn add(from: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

dispatch! {
    /// to = from
    pub fn widen_bf16(from: &[bf16], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Element::to_f32(*from));
    }
}

/// to = from, with the conversion instruction where the level has one. The compiler does not select it for a plain
/// loop.
fn widen_f16(level: Level, from: &[f16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "values to widen");
    match level {
        // SAFETY: `CpuOps::at` has checked that the CPU has the level, which includes AVX-512 F and VL.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { x86::widen_f16_avx512(from, to) },
        // SAFETY: `CpuOps::at` has checked that the CPU has the level, which includes AVX2 and F16C.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { x86::widen_f16_avx2(from, to) },
        _ => widen_f16_portable(from, to),
    }
}

fn widen_f16_portable(from: &[f16], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::widen_f16_portable;

    /// # Safety
    /// The CPU must have AVX-512 F and VL.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub unsafe fn widen_f16_avx512(from: &[f16], to: &mut [f32]) {
        let whole = from.len() / 16 * 16;
        for (from, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
            // SAFETY: both chunks hold 16 values, and the loads and stores need no alignment.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()))) };
        }
        widen_f16_portable(&from[whole..], &mut to[whole..]);
    }

    /// # Safety
    /// The CPU must have AVX2 and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn widen_f16_avx2(from: &[f16], to: &mut [f32]) {
        let whole = from.len() / 8 * 8;
        for (from, to) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
            // SAFETY: both chunks hold 8 values, and the loads and stores need no alignment.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        widen_f16_portable(&from[whole..], &mut to[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_widens_exactly() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).filter(|v| !v.is_nan()).collect();
        for level in Level::available() {
            let mut wide = vec![0.0; halves.len()];
            widen_f16(level, &halves, &mut wide);
            assert!(halves.iter().zip(&wide).all(|(half, wide)| half.to_f32() == *wide), "{level}");
            assert_eq!(narrowest_exact(&wide), DType::F16);
        }
    }

    #[test]
    fn f16_holds_the_values_that_it_rounds_to_themselves() {
        let exponents =
            (0..=255).flat_map(|exponent| (0..24).map(move |bit| exponent << 23 | ((1 << bit) & 0x7F_FFFF)));
        for value in exponents.flat_map(|bits: u32| [bits, bits | 0x8000_0000, bits | 0x40_0000]).map(f32::from_bits) {
            let same = f16::from_f32(value).to_f32() == value;
            assert_eq!(is_f16(value), same, "{value:e}");
        }
    }
}
