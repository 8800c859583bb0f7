//! What a core's multiply-adds reach when nothing comes from memory: the measure of every kernel.

use std::hint::black_box;
use std::time::Instant;

use super::amx;
use super::level::Level;
#[cfg(target_arch = "aarch64")]
use super::simd::Neon;
#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{MOST_LANES, Portable, Simd};

/// Rounds of a timing, long enough for a clock and short enough for a quiet moment.
const ROUNDS: usize = 1 << 18;
/// Timings; neighbours only ever make one slower.
const TIMINGS: usize = 20;
/// Sums that do not wait for each other.
const SUMS: usize = 12;

/// Floating-point operations a second of one core at `level`.
pub fn peak(level: Level) -> f64 {
    let time = |_| {
        let start = Instant::now();
        let flops = match level {
            Level::Amx => amx::spin(ROUNDS / 4),
            level => spin(level, ROUNDS),
        };
        flops as f64 / start.elapsed().as_secs_f64()
    };
    (0..TIMINGS).map(time).fold(0.0, f64::max)
}

/// Multiplies and adds that many times and says how many operations that were.
fn spin(level: Level, rounds: usize) -> usize {
    // SAFETY: the level was detected.
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn spin_avx512(rounds: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { spin_lanes::<Avx512>(rounds) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn spin_avx2(rounds: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { spin_lanes::<Avx2>(rounds) }
}

#[inline(always)]
unsafe fn spin_lanes<S: Simd>(rounds: usize) -> usize {
    let factors = black_box([0.5; MOST_LANES]);
    let mut out = [0.0; MOST_LANES];
    // SAFETY: the caller's promise; both arrays hold a register.
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
