//! A vector of f32 lanes, for kernels that are written once and compiled for each instruction set.

/// Most lanes of any level.
pub const MOST_LANES: usize = 16;

/// The rows of a square.
pub type Rows = [*const f32; MOST_LANES];

/// One instruction set.
pub trait Simd {
    /// One register.
    type V: Copy;
    /// Floats in a register.
    const LANES: usize;
    /// Rows of a register tile that is two registers wide, so that all sums fit into the registers.
    const ROWS: usize;

    /// All lanes `*p`.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type. `p` must be readable.
    unsafe fn splat(p: *const f32) -> Self::V;
    /// `LANES` floats from `p`.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type. `LANES` floats at `p` must be readable.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Writes all lanes to `p`.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type. `LANES` floats at `p` must be writable.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// All lanes zero.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type.
    unsafe fn zero() -> Self::V;
    /// a · b + c, rounded once where the instruction set has a fused multiply-add.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type.
    unsafe fn mul_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Prefetches the cache line at `p`, which may be any address.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type.
    unsafe fn prefetch(p: *const f32);
    /// Transposes a square of `LANES` rows and columns: the floats at `rows[i]` become column i of `to`.
    ///
    /// # Safety
    /// The CPU must have the instruction set of this type. `LANES` floats must be readable at each of the first `LANES`
    /// rows. `LANES` floats must be writable at each of the `LANES` rows of `to`, which have the stride `to_row`.
    unsafe fn transpose(rows: &Rows, to: *mut f32, to_row: usize);
}

/// Eight floats in plain Rust, for any target.
pub struct Portable;

impl Simd for Portable {
    type V = [f32; 8];
    const LANES: usize = 8;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn splat(p: *const f32) -> [f32; 8] {
        // SAFETY: the caller guarantees that `p` is readable.
        [unsafe { *p }; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 8] {
        // SAFETY: the caller guarantees 8 readable floats, and the read needs no alignment.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 8]) {
        // SAFETY: the caller guarantees 8 writable floats, and the write needs no alignment.
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
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
    #[inline(always)]
    unsafe fn transpose(rows: &Rows, to: *mut f32, to_row: usize) {
        for i in 0..64 {
            // SAFETY: the caller guarantees 8 readable floats a row and 8 writable floats in each row of `to`.
            unsafe { *to.add(i % 8 * to_row + i / 8) = *rows[i / 8].add(i % 8) };
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub use arm::Neon;
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{Portable, Rows, Simd};

    /// Eight floats in two registers. The sums of six rows, a row of B and a value of A occupy 29 of the 32 registers.
    pub struct Neon;

    impl Simd for Neon {
        type V = [float32x4_t; 2];
        const LANES: usize = 8;
        const ROWS: usize = 6;

        #[inline(always)]
        unsafe fn splat(p: *const f32) -> Self::V {
            // SAFETY: the caller guarantees the instruction set and the address.
            unsafe { [vld1q_dup_f32(p); 2] }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self::V {
            // SAFETY: the caller guarantees the instruction set and the addresses.
            unsafe { [vld1q_f32(p), vld1q_f32(p.add(4))] }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, [low, high]: Self::V) {
            // SAFETY: the caller guarantees the instruction set and the addresses.
            unsafe {
                vst1q_f32(p, low);
                vst1q_f32(p.add(4), high);
            }
        }
        #[inline(always)]
        unsafe fn zero() -> Self::V {
            // SAFETY: the caller guarantees the instruction set and the addresses.
            unsafe { [vdupq_n_f32(0.0); 2] }
        }
        #[inline(always)]
        unsafe fn mul_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: the caller guarantees the instruction set and the addresses.
            unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn prefetch(_: *const f32) {}
        #[inline(always)]
        unsafe fn transpose(rows: &Rows, to: *mut f32, to_row: usize) {
            // SAFETY: the caller gives the same guarantees, and the squares have the same size.
            unsafe { Portable::transpose(rows, to, to_row) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Rows, Simd};

    macro_rules! registers {
        (
            $name:ident, $v:ty, $lanes:expr, $rows:expr,
            $splat:ident, $load:ident, $store:ident, $zero:ident, $fma:ident, $transpose:ident
        ) => {
            #[doc = concat!(stringify!($lanes), " floats a register.")]
            pub struct $name;

            impl Simd for $name {
                type V = $v;
                const LANES: usize = $lanes;
                const ROWS: usize = $rows;

                #[inline(always)]
                unsafe fn splat(p: *const f32) -> $v {
                    // SAFETY: the caller guarantees the instruction set and the address.
                    unsafe { $splat(*p) }
                }
                #[inline(always)]
                unsafe fn load(p: *const f32) -> $v {
                    // SAFETY: the caller guarantees the instruction set and the addresses.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(p: *mut f32, v: $v) {
                    // SAFETY: the caller guarantees the instruction set and the addresses.
                    unsafe { $store(p, v) }
                }
                #[inline(always)]
                unsafe fn zero() -> $v {
                    // SAFETY: the caller guarantees the instruction set and the addresses.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn mul_add(a: $v, b: $v, c: $v) -> $v {
                    // SAFETY: the caller guarantees the instruction set and the addresses.
                    unsafe { $fma(a, b, c) }
                }
                #[inline(always)]
                unsafe fn prefetch(p: *const f32) {
                    // SAFETY: a prefetch may name any address, and every x86-64 CPU has it.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
                }
                #[inline(always)]
                unsafe fn transpose(rows: &Rows, to: *mut f32, to_row: usize) {
                    // SAFETY: the caller guarantees the instruction set and the addresses.
                    unsafe { $transpose(rows, to, to_row) }
                }
            }
        };
    }

    registers!(
        Avx2,
        __m256,
        8,
        6,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_setzero_ps,
        _mm256_fmadd_ps,
        transpose8
    );
    registers!(
        Avx512,
        __m512,
        16,
        14,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_setzero_ps,
        _mm512_fmadd_ps,
        transpose16
    );

    /// Transposes squares of four in each 128-bit part, then permutes the parts.
    ///
    /// # Safety
    /// As for [`Simd::transpose`] of [`Avx2`].
    #[target_feature(enable = "avx2")]
    unsafe fn transpose8(rows: &Rows, to: *mut f32, to_row: usize) {
        let mut parts = [[_mm256_setzero_ps(); 4]; 2];
        for (g, part) in parts.iter_mut().enumerate() {
            // SAFETY: the caller guarantees that the rows are readable.
            let row = |i: usize| unsafe { _mm256_loadu_ps(rows[4 * g + i]) };
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            part[0] = _mm256_shuffle_ps::<0x44>(ab, cd);
            part[1] = _mm256_shuffle_ps::<0xEE>(ab, cd);
            let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            part[2] = _mm256_shuffle_ps::<0x44>(ab, cd);
            part[3] = _mm256_shuffle_ps::<0xEE>(ab, cd);
        }
        for (j, (&a, &b)) in parts[0].iter().zip(&parts[1]).enumerate() {
            // SAFETY: the caller guarantees that the rows of `to` are writable.
            unsafe {
                _mm256_storeu_ps(to.add(j * to_row), _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add((4 + j) * to_row), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
    }

    /// The same with four parts.
    ///
    /// # Safety
    /// As for [`Simd::transpose`] of [`Avx512`].
    #[target_feature(enable = "avx512f")]
    unsafe fn transpose16(rows: &Rows, to: *mut f32, to_row: usize) {
        let mut parts = [[_mm512_setzero_ps(); 4]; 4];
        for (g, part) in parts.iter_mut().enumerate() {
            // SAFETY: the caller guarantees that the rows are readable.
            let row = |i: usize| unsafe { _mm512_loadu_ps(rows[4 * g + i]) };
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            part[0] = _mm512_shuffle_ps::<0x44>(ab, cd);
            part[1] = _mm512_shuffle_ps::<0xEE>(ab, cd);
            let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            part[2] = _mm512_shuffle_ps::<0x44>(ab, cd);
            part[3] = _mm512_shuffle_ps::<0xEE>(ab, cd);
        }
        let [first, second, third, fourth] = parts;
        for (j, (((a, b), c), d)) in first.into_iter().zip(second).zip(third).zip(fourth).enumerate() {
            let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
            let (even2, odd2) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xDD>(c, d));
            // SAFETY: the caller guarantees that the rows of `to` are writable.
            unsafe {
                _mm512_storeu_ps(to.add(j * to_row), _mm512_shuffle_f32x4::<0x88>(even, even2));
                _mm512_storeu_ps(to.add((4 + j) * to_row), _mm512_shuffle_f32x4::<0x88>(odd, odd2));
                _mm512_storeu_ps(to.add((8 + j) * to_row), _mm512_shuffle_f32x4::<0xDD>(even, even2));
                _mm512_storeu_ps(to.add((12 + j) * to_row), _mm512_shuffle_f32x4::<0xDD>(odd, odd2));
            }
        }
    }
}
