//! Group norm and activation of bf16 with AVX-512, sixteen values at a time. The result has 8 significant bits, so an
//! approximate reciprocal and a short polynomial are exact enough.

use half::bf16;

use super::shape::SIDE;
use crate::host::tile_support::available;
use reseed_ops::Activation;

/// Normalises some pixels in place. `affine` holds the mean, slope and shift of each channel.
pub fn in_place(values: &mut [bf16], affine: [&[f32]; 3], act: Activation) {
    let channels = affine[0].len();
    assert!(
        supports(channels) && values.len().is_multiple_of(channels),
        "group_norm: {} values in pixels of {channels} channels",
        values.len()
    );
    assert!(
        affine.iter().all(|operand| operand.len() == channels),
        "group_norm: mean, slope and shift of {channels} channels"
    );
    assert!(available(), "AVX-512 bf16 on a machine without AMX");
    // SAFETY: a CPU with AMX has AVX-512 with bf16. The asserts above are what `in_place` requires.
    unsafe { registers::in_place(values, affine, act) }
}

/// Whether pixels of `channels` channels fill whole registers of a CPU that has them.
pub fn supports(channels: usize) -> bool {
    cfg!(target_arch = "x86_64") && channels.is_multiple_of(SIDE)
}

#[cfg(not(target_arch = "x86_64"))]
mod registers {
    /// # Safety
    /// None: this target has no AVX-512, and a call panics.
    pub unsafe fn in_place(_: &mut [half::bf16], _: [&[f32]; 3], _: reseed_ops::Activation) {
        unreachable!("AVX-512 on a target without it");
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;

    use half::bf16;

    use reseed_ops::Activation;

    /// # Safety
    /// The CPU must have the features below. The mean, the slope and the shift must have the same length, a multiple of
    /// 16.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")]
    pub unsafe fn in_place(values: &mut [bf16], [mean, slope, shift]: [&[f32]; 3], act: Activation) {
        for pixel in values.chunks_exact_mut(mean.len()) {
            for (i, values) in pixel.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                // SAFETY: `values` has 16 elements, and the caller guarantees 16 channels of each operand from `16 * i`
                // on.
                unsafe {
                    let load = |operand: &[f32]| _mm512_loadu_ps(operand.as_ptr().add(16 * i));
                    let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(values.as_ptr().cast()));
                    let x = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits));
                    let y = _mm512_fmadd_ps(_mm512_sub_ps(x, load(mean)), load(slope), load(shift));
                    let y = if act == Activation::Silu { _mm512_mul_ps(y, logistic(y)) } else { y };
                    let y: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(y));
                    _mm256_storeu_si256(values.as_mut_ptr().cast(), y);
                }
            }
        }
    }

    /// 1 / (1 + e⁻ʸ) with a relative error of 2⁻¹³.
    #[target_feature(enable = "avx512f")]
    fn logistic(y: __m512) -> __m512 {
        // e⁻ʸ = 2ⁿ · 2ʳ with |r| <= 1/2: a polynomial of degree 4 has an error of 2⁻¹⁵. `scalef` saturates.
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use reseed_ops::DType;

    #[test]
    fn silu_is_within_one_rounding() {
        if crate::host::tile_support::skip_test() {
            return;
        }
        let inputs: Vec<bf16> = (-4000..4000).map(|i| bf16::from_f32(i as f32 / 40.0)).collect();
        let mut values = inputs.clone();
        in_place(&mut values, [&[0.0; 16], &[1.0; 16], &[0.0; 16]], Activation::Silu);
        for (x, y) in inputs.iter().zip(&values) {
            let x = f64::from(x.to_f32());
            let want = x / (1.0 + (-x).exp());
            // One rounding to bf16, and the errors of the exponential and the reciprocal. Below -88 the exponential is
            // infinite.
            let allowed = want.abs() * (f64::from(DType::Bf16.rounding()) + 1.0 / 4096.0) + 100.0 * (-88f64).exp();
            assert!((f64::from(y.to_f32()) - want).abs() <= allowed, "{x}: {y}, {want}");
        }
    }
}
