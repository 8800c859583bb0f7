//! Group norm and activation of bf16, sixteen values at a time. What is rounded to eight bits in the end needs neither a
//! division nor the last bits of an exponential.

use half::bf16;

use reseed_ops::Activation;

/// A few pixels that are in cache; `affine` is each channel's mean, slope and shift.
pub fn in_place(values: &mut [bf16], affine: [&[f32]; 3], act: Activation) {
    let channels = affine[0].len();
    assert!(fits(channels) && values.len().is_multiple_of(channels), "{} values of {channels}", values.len());
    assert!(affine.iter().all(|numbers| numbers.len() == channels), "numbers of {channels} channels");
    assert!(super::available(), "tiles on a machine without AMX");
    // SAFETY: machines with AMX have AVX-512 with bf16, and the sizes are multiples of a register.
    unsafe { registers::in_place(values, affine, act) }
}

/// Whether channels fill registers.
pub fn fits(channels: usize) -> bool {
    channels.is_multiple_of(super::SIDE)
}

#[cfg(not(target_arch = "x86_64"))]
mod registers {
    pub unsafe fn in_place(_: &mut [half::bf16], _: [&[f32]; 3], _: reseed_ops::Activation) {}
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;

    use half::bf16;

    use reseed_ops::Activation;

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")]
    pub unsafe fn in_place(values: &mut [bf16], [mean, slope, shift]: [&[f32]; 3], act: Activation) {
        for pixel in values.chunks_exact_mut(mean.len()) {
            for (i, values) in pixel.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                // SAFETY: sixteen values and numbers are there.
                unsafe {
                    let number = |numbers: &[f32]| _mm512_loadu_ps(numbers.as_ptr().add(16 * i));
                    let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(values.as_ptr().cast()));
                    let x = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits));
                    let y = _mm512_fmadd_ps(_mm512_sub_ps(x, number(mean)), number(slope), number(shift));
                    let y = if act == Activation::Silu { _mm512_mul_ps(y, logistic(y)) } else { y };
                    let y: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(y));
                    _mm256_storeu_si256(values.as_mut_ptr().cast(), y);
                }
            }
        }
    }

    /// 1 / (1 + e⁻ʸ) to 2⁻¹³.
    #[target_feature(enable = "avx512f")]
    fn logistic(y: __m512) -> __m512 {
        // e⁻ʸ = 2ⁿ 2ʳ, r within a half: a polynomial of degree four is within 2⁻¹⁵. `scalef` saturates by itself.
        let z = _mm512_mul_ps(y, _mm512_set1_ps(-std::f32::consts::LOG2_E));
        let n = _mm512_roundscale_ps::<0>(z);
        let r = _mm512_sub_ps(z, n);
        let p = _mm512_set1_ps(9.618_129e-3);
        let p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550_411e-2));
        let p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402_265e-1));
        let p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(std::f32::consts::LN_2));
        let p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0));
        _mm512_rcp14_ps(_mm512_add_ps(_mm512_scalef_ps(p, n), _mm512_set1_ps(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_ops::DType;

    #[test]
    fn silu_is_rounded_once() {
        if crate::amx::skipped() {
            return;
        }
        let inputs: Vec<bf16> = (-4000..4000).map(|i| bf16::from_f32(i as f32 / 40.0)).collect();
        let mut values = inputs.clone();
        in_place(&mut values, [&[0.0; 16], &[1.0; 16], &[0.0; 16]], Activation::Silu);
        for (x, y) in inputs.iter().zip(&values) {
            let x = f64::from(x.to_f32());
            let want = x / (1.0 + (-x).exp());
            // One rounding to bf16, the exponential's and the reciprocal's; below -88 the exponential is infinite.
            let allowed = want.abs() * (f64::from(DType::Bf16.rounding()) + 1.0 / 4096.0) + 100.0 * (-88f64).exp();
            assert!((f64::from(y.to_f32()) - want).abs() <= allowed, "{x}: {y}, {want}");
        }
    }
}
