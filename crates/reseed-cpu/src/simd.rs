//! A vector of f32 lanes, for kernels that are written once and compiled for each instruction set.

/// Most lanes of any level.
pub const MOST_LANES: usize = 16;

/// Where the rows of a square start.
pub type Rows = [*const f32; MOST_LANES];

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
    /// Asks for the cache line at `p`, which need not exist.
    /// # Safety
    /// The instruction set must be there.
    unsafe fn prefetch(p: *const f32);
    /// Writes a square of `LANES` rows and columns turned: what row i points at becomes column i of `to`.
    /// # Safety
    /// As above, for `LANES` rows, those of `to` the given distance apart.
    unsafe fn turn(rows: &Rows, to: *mut f32, to_row: usize);
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
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
    #[inline(always)]
    unsafe fn turn(rows: &Rows, to: *mut f32, to_row: usize) {
        for i in 0..64 {
            // SAFETY: the caller's promise.
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

    /// Eight floats in two registers: sums of six rows, a row of B and a value of A fill 29 of the 32.
    pub struct Neon;

    impl Simd for Neon {
        type V = [float32x4_t; 2];
        const LANES: usize = 8;
        const ROWS: usize = 6;

        #[inline(always)]
        unsafe fn splat(p: *const f32) -> Self::V {
            // SAFETY: the caller's promise, here and below.
            unsafe { [vld1q_dup_f32(p); 2] }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self::V {
            // SAFETY: see `splat`.
            unsafe { [vld1q_f32(p), vld1q_f32(p.add(4))] }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, [low, high]: Self::V) {
            // SAFETY: see `splat`.
            unsafe {
                vst1q_f32(p, low);
                vst1q_f32(p.add(4), high);
            }
        }
        #[inline(always)]
        unsafe fn zero() -> Self::V {
            // SAFETY: see `splat`.
            unsafe { [vdupq_n_f32(0.0); 2] }
        }
        #[inline(always)]
        unsafe fn mul_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            // SAFETY: see `splat`.
            unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn prefetch(_: *const f32) {}
        #[inline(always)]
        unsafe fn turn(rows: &Rows, to: *mut f32, to_row: usize) {
            // SAFETY: the caller's promise; squares are of the same size.
            unsafe { Portable::turn(rows, to, to_row) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Rows, Simd};

    macro_rules! registers {
        ($name:ident, $v:ty, $lanes:expr, $rows:expr, $splat:ident, $load:ident, $store:ident, $zero:ident, $fma:ident, $turn:ident) => {
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
                #[inline(always)]
                unsafe fn prefetch(p: *const f32) {
                    // SAFETY: a prefetch touches nothing.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
                }
                #[inline(always)]
                unsafe fn turn(rows: &Rows, to: *mut f32, to_row: usize) {
                    // SAFETY: see `splat`.
                    unsafe { $turn(rows, to, to_row) }
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
        turn8
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
        turn16
    );

    /// Squares of four within each 128-bit part first, then the parts change places.
    #[target_feature(enable = "avx2")]
    unsafe fn turn8(rows: &Rows, to: *mut f32, to_row: usize) {
        let mut parts = [[_mm256_setzero_ps(); 4]; 2];
        for (g, part) in parts.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            unsafe {
                _mm256_storeu_ps(to.add(j * to_row), _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add((4 + j) * to_row), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
    }

    /// As `turn8`, with four parts.
    #[target_feature(enable = "avx512f")]
    unsafe fn turn16(rows: &Rows, to: *mut f32, to_row: usize) {
        let mut parts = [[_mm512_setzero_ps(); 4]; 4];
        for (g, part) in parts.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            unsafe {
                _mm512_storeu_ps(to.add(j * to_row), _mm512_shuffle_f32x4::<0x88>(even, even2));
                _mm512_storeu_ps(to.add((4 + j) * to_row), _mm512_shuffle_f32x4::<0x88>(odd, odd2));
                _mm512_storeu_ps(to.add((8 + j) * to_row), _mm512_shuffle_f32x4::<0xDD>(even, even2));
                _mm512_storeu_ps(to.add((12 + j) * to_row), _mm512_shuffle_f32x4::<0xDD>(odd, odd2));
            }
        }
    }
}
