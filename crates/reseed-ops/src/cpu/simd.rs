//! A vector of f32 lanes, for kernels that are written once and compiled for each instruction set.

/// Lanes of one register and how many registers a kernel may plan with.
pub trait Simd {
    /// One register.
    type V: Copy;
    /// Floats in a register.
    const LANES: usize;
    /// Rows of a register tile that is two registers wide.
    const ROWS: usize;

    /// # Safety
    /// The instruction set must be there, as for every function of this trait; `p` is readable.
    unsafe fn splat(p: *const f32) -> Self::V;
    /// # Safety
    /// As above, for `LANES` floats.
    unsafe fn load(p: *const f32) -> Self::V;
    /// # Safety
    /// As above, writable.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// All lanes zero.
    /// # Safety
    /// As above.
    unsafe fn zero() -> Self::V;
    /// a · b + c, rounded once where the instruction set can.
    /// # Safety
    /// As above.
    unsafe fn mul_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
}

/// Eight floats that the compiler maps to whatever the target has.
pub struct Portable;

impl Simd for Portable {
    type V = [f32; 8];
    const LANES: usize = 8;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn splat(p: *const f32) -> [f32; 8] {
        // SAFETY: the caller's promise.
        [unsafe { *p }; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 8] {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 8]) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // A fused multiply-add is a library call where the target has none.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Simd;

    macro_rules! registers {
        ($name:ident, $v:ty, $lanes:expr, $rows:expr, $splat:ident, $load:ident, $store:ident, $zero:ident, $fma:ident) => {
            #[doc = concat!(stringify!($lanes), " floats a register.")]
            pub struct $name;

            impl Simd for $name {
                type V = $v;
                const LANES: usize = $lanes;
                const ROWS: usize = $rows;

                #[inline(always)]
                unsafe fn splat(p: *const f32) -> $v {
                    // SAFETY: the caller's promise, here and below.
                    unsafe { $splat(*p) }
                }
                #[inline(always)]
                unsafe fn load(p: *const f32) -> $v {
                    // SAFETY: see `splat`.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(p: *mut f32, v: $v) {
                    // SAFETY: see `splat`.
                    unsafe { $store(p, v) }
                }
                #[inline(always)]
                unsafe fn zero() -> $v {
                    // SAFETY: see `splat`.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn mul_add(a: $v, b: $v, c: $v) -> $v {
                    // SAFETY: see `splat`.
                    unsafe { $fma(a, b, c) }
                }
            }
        };
    }

    registers!(Avx2, __m256, 8, 6, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_setzero_ps, _mm256_fmadd_ps);
    registers!(Avx512, __m512, 16, 14, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_setzero_ps, _mm512_fmadd_ps);
}
