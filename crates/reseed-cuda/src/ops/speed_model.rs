//! The speed of a GPU as the planner models it.

use reseed_ops::{Precision, SpeedModel};

use super::conv_kernels::{ConvKernels, Winograd};
use crate::driver::Driver;

/// Measured rates of one H200, and estimates for other GPUs from their published figures and an emulation.
pub fn of(driver: &Driver, precision: Precision, conv: ConvKernels) -> SpeedModel {
    let large = matches!(driver.info.capability, (8, 0) | (9, 0) | (10, _));
    // Effective FLOP per multiprocessor and nanosecond; bytes of device memory and of the bus per nanosecond. Most GPUs
    // other than Hopper have a bus of the previous generation.
    let (flops, bytes, bus) = match (driver.kernels.hopper, large) {
        (true, _) if conv.int8 => (8_000, 3_300, 48),
        // Winograd F(3,3) executes fewer products than it counts.
        (true, _) if precision == Precision::F16 => (6_300, 3_300, 48),
        (true, _) => (5_000, 3_300, 48),
        (false, true) => (2_500, 1_600, 22),
        // Factors of whole layers, emulated.
        (false, false) => match (conv.winograd, conv.half_sums) {
            (Winograd::Plane, true) => (2_200, 700, 20),
            (Winograd::Plane, false) => (1_500, 700, 20),
            _ => (900, 700, 20),
        },
    };
    let slower = match precision {
        Precision::F16 | Precision::Bf16 => 1,
        Precision::Tf32 => 2,
        Precision::F32 => 16,
    };
    SpeedModel { flops: (driver.multiprocessors as u64 * flops / slower).max(1), bytes, bus }
}
