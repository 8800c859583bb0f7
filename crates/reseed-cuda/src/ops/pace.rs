//! How fast a card is, as far as plans depend on it.

use reseed_ops::{Precision, SpeedModel};

use crate::driver::Driver;

/// What kernels of ours reach on one H200, and about that share of what others are said to reach.
pub fn of(driver: &Driver, precision: Precision) -> SpeedModel {
    let large = matches!(driver.info.capability, (8, 0) | (9, 0) | (10, _));
    // Of a multiprocessor in a nanosecond; the bus is one generation older on most other cards.
    let (flops, bytes, bus) = match (driver.kernels.halo, large) {
        // Convolutions that compute two columns at a time with fewer products.
        (true, _) if precision == Precision::F16 => (5_600, 3_300, 48),
        (true, _) => (5_000, 3_300, 48),
        (false, true) => (2_500, 1_600, 22),
        (false, false) => (900, 700, 20),
    };
    let slower = match precision {
        Precision::F16 | Precision::Bf16 => 1,
        Precision::Tf32 => 2,
        Precision::F32 => 16,
    };
    SpeedModel { flops: (driver.multiprocessors as u64 * flops / slower).max(1), bytes, bus }
}
