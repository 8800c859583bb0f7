//! Weights of 16 bits as f32, and the narrowest type that loses nothing.

use std::ops::Range;

use half::{bf16, f16};
use rayon::prelude::*;

use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, Floats, Values, with_element};
use reseed_ops::DType;

/// Values that are looked at, or widened for a sum, at a time.
const CHUNK: usize = 1024;

/// The narrowest type that holds every value exactly.
pub fn narrowest(values: &[f32]) -> DType {
    let all = |exact: fn(&f32) -> bool| values.par_chunks(CHUNK).all(|values| values.iter().all(exact));
    if all(|v| v.to_bits() & 0xFFFF == 0) {
        DType::Bf16
    } else if all(|v| f16::from_f32(*v).to_f32().to_bits() == v.to_bits()) {
        DType::F16
    } else {
        DType::F32
    }
}

impl Floats {
    /// The same values in the narrowest type.
    pub fn keep(self) -> Values {
        let dtype = narrowest(&self);
        if dtype == DType::F32 {
            return self.into();
        }
        let mut values = Values::zeros(self.len(), dtype);
        with_element!(dtype, E => {
            let to = values.elements_mut::<E>().par_iter_mut();
            to.zip(&self[..]).for_each(|(to, &from)| *to = E::from_f32(from));
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

leveled! {
    /// to += from
    pub fn add(from: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

leveled! {
    /// to = from
    pub fn widen_bf16(from: &[bf16], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Element::to_f32(*from));
    }
}

/// to = from, by the instruction where there is one: the compiler does not find it by itself.
fn widen_f16(level: Level, from: &[f16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "values to widen");
    match level {
        // SAFETY: the level was detected, and as many values are written as there are.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { x86::widen_f16_avx512(from, to) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { x86::widen_f16_avx2(from, to) },
        _ => each_f16(from, to),
    }
}

fn each_f16(from: &[f16], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::each_f16;

    #[target_feature(enable = "avx512f,avx512vl")]
    pub unsafe fn widen_f16_avx512(from: &[f16], to: &mut [f32]) {
        let whole = from.len() / 16 * 16;
        for (from, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
            // SAFETY: both hold 16 values.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()))) };
        }
        each_f16(&from[whole..], &mut to[whole..]);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn widen_f16_avx2(from: &[f16], to: &mut [f32]) {
        let whole = from.len() / 8 * 8;
        for (from, to) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
            // SAFETY: both hold 8 values.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        each_f16(&from[whole..], &mut to[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_to_itself() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).filter(|v| !v.is_nan()).collect();
        for level in Level::available() {
            let mut wide = vec![0.0; halves.len()];
            widen_f16(level, &halves, &mut wide);
            assert!(halves.iter().zip(&wide).all(|(half, wide)| half.to_f32() == *wide), "{level}");
            assert_eq!(narrowest(&wide), DType::F16);
        }
    }
}
