//! The peak FLOP/s of one core: multiply-adds on registers, without memory accesses.

use std::hint::black_box;
use std::time::Instant;

use crate::host::level::Level;
#[cfg(target_arch = "aarch64")]
use crate::simd::vector::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::vector::{Avx2, Avx512};
use crate::simd::vector::{MOST_LANES, Portable, Simd};
use crate::tiles::tile;

/// Rounds of a measurement: long enough for the clock, short enough to run without interruption.
const ROUNDS: usize = 1 << 18;
/// Measurements. The best one counts, because other processes only slow a measurement down.
const TIMINGS: usize = 20;
/// Independent sums, to hide the latency of a multiply-add.
const SUMS: usize = 12;

/// Peak FLOP/s of one core at `level`.
pub fn peak(level: Level) -> f64 {
    let time = |_| {
        let start = Instant::now();
        let flops = match level {
            Level::TILES => tile::spin(ROUNDS / 4),
            level => spin(level, ROUNDS),
        };
        flops as f64 / start.elapsed().as_secs_f64()
    };
    (0..TIMINGS).map(time).fold(0.0, f64::max)
}

/// Runs `rounds` rounds of multiply-adds and returns the number of floating-point operations.
fn spin(level: Level, rounds: usize) -> usize {
    // SAFETY: `CpuOps::at` has checked that the CPU has the level.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => spin_avx512(rounds),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => spin_avx2(rounds),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => spin_lanes::<Neon>(rounds),
            _ => spin_lanes::<Portable>(rounds),
        }
    }
}

/// # Safety
/// The CPU must have AVX-512 F and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn spin_avx512(rounds: usize) -> usize {
    // SAFETY: the caller guarantees the instruction set.
    unsafe { spin_lanes::<Avx512>(rounds) }
}

/// # Safety
/// The CPU must have AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn spin_avx2(rounds: usize) -> usize {
    // SAFETY: the caller guarantees the instruction set.
    unsafe { spin_lanes::<Avx2>(rounds) }
}

/// # Safety
/// The CPU must have the instruction set of `S`.
#[inline(always)]
unsafe fn spin_lanes<S: Simd>(rounds: usize) -> usize {
    let factors = black_box([0.5; MOST_LANES]);
    let mut out = [0.0; MOST_LANES];
    // SAFETY: the caller guarantees the instruction set. Both arrays hold at least `S::LANES` floats.
    unsafe {
        let factor = S::load(factors.as_ptr());
        let mut sums = [factor; SUMS];
        for _ in 0..rounds {
            sums.iter_mut().for_each(|sum| *sum = S::mul_add(*sum, factor, factor));
        }
        for sum in sums {
            S::store(out.as_mut_ptr(), sum);
            black_box(&mut out);
        }
    }
    2 * rounds * SUMS * S::LANES
}
