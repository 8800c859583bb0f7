//! The largest error of a correct device, element by element.
//!
//! Symbols: u is the unit roundoff of the result's type, v that of the operands of products, ε that of f32 (2⁻²⁴), n
//! the number of terms of a sum, A the same sum of absolute values, which the reference computes from |x| and |w|.
//!
//! Both devices may be off by these bounds, so that two results may differ by twice as much.

use crate::precision::Precision;
use crate::shape::DType;

/// Unit roundoff of f32.
pub const EPS: f64 = f32::EPSILON as f64 / 2.0;

/// 2⁻ⁿ, which the powers of the standard library need not give exactly.
fn inverse_power(n: u32) -> f64 {
    1.0 / (1u64 << n) as f64
}

/// Largest error of a correct kernel: one rounding to the output type, plus f32 summation of `terms` values in any
/// order.
///
/// Every addition is off by at most ε of its result, and every partial sum is at most A. Tensor cores truncate, which
/// is off by up to 2ε, but add at least four products at once.
pub fn allowed(y: f64, terms: usize, abs_sum: f64, mantissa_bits: u32) -> f64 {
    let rounding = y.abs() * inverse_power(mantissa_bits + 1);
    let summation = terms as f64 * abs_sum * EPS;
    rounding + summation
}

/// Roundings of a device of some precision.
#[derive(Clone, Copy)]
pub struct Rounding {
    /// Bits of the result's type after the leading one.
    mantissa_bits: u32,
    /// Half of the smallest positive number of the result's type, or what devices flush to zero.
    tiny: f64,
    /// Unit roundoff of the operands of products.
    pub operand: f64,
    /// Whether products round operands that are stored with more bits.
    pub rounds_operands: bool,
    /// Absolute error of a SiLU for each unit of its argument: 2⁻¹² where values have at most 11 bits, since tangents
    /// with 11 bits (½ z (1 + tanh ½ z)) suffice for it.
    silu: f64,
}

impl Rounding {
    /// For results of `dtype` on a device that multiplies in `precision`.
    pub fn new(dtype: DType, precision: Precision) -> Rounding {
        let (mantissa_bits, tiny) = match dtype {
            DType::F32 => (23, f64::from(f32::MIN_POSITIVE)),
            DType::F16 => (10, inverse_power(25)),
            DType::Bf16 => (7, f64::from(f32::MIN_POSITIVE)),
        };
        // Tensor cores read tf32 operands that nobody has rounded by dropping their last bits.
        let operand = match precision {
            Precision::F32 => EPS,
            Precision::Tf32 => inverse_power(10),
            Precision::F16 => inverse_power(11),
            Precision::Bf16 => inverse_power(8),
        };
        let silu = if dtype == DType::F32 { 0.0 } else { inverse_power(12) };
        Rounding { mantissa_bits, tiny, operand, rounds_operands: precision == Precision::Tf32, silu }
    }

    /// u |y|, and no less than half of the smallest number.
    pub fn result(self, y: f64) -> f64 {
        allowed(y, 0, 0.0, self.mantissa_bits) + self.tiny
    }

    /// [`allowed`] of a sum whose operands have been rounded `operands` times beside those roundings that all devices
    /// share: each moves a term by v of itself, and so the sum by v A.
    pub fn sum(self, y: f64, terms: usize, abs_sum: f64, operands: usize) -> f64 {
        // Operands in f32 are not rounded again on their way into a product. The abs_sum itself is rounded once.
        let operands = operands + if self.rounds_operands { 2 } else { 0 };
        let abs_sum = 1.01 * abs_sum;
        allowed(y, terms, abs_sum, self.mantissa_bits) + operands as f64 * self.operand * abs_sum + self.tiny
    }

    /// Error of silu(z) for a z that is off by `dz`. The slope of SiLU is at most 1.1. An exponential of z is off by
    /// (2 + 1.2 |z|) units in the last place, of 2ε each, and the quotient by two more.
    pub fn silu(self, z: f64, dz: f64) -> f64 {
        1.1 * dz + self.silu * z.abs() + silu(z).abs() * exponential(z)
    }
}

/// z · sigmoid(z).
pub fn silu(z: f64) -> f64 {
    z / (1.0 + (-z).exp())
}

/// Relative error of a function that divides by 1 + exp(z).
pub fn exponential(z: f64) -> f64 {
    (8.0 + 3.0 * z.abs()) * EPS
}

/// Roundings that count in a sum of n values of f32 on ordinary arithmetic units, which round to nearest: by
/// Hoeffding's inequality n independent errors of at most ε each exceed 8 √n ε once in 4·10¹³ sums. A few more for what
/// follows the sum.
pub fn independent(n: usize) -> f64 {
    (n as f64).min(8.0 * (n as f64).sqrt()) + 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_one_rounding_and_the_summation() {
        assert_eq!(allowed(2.0, 0, 0.0, 10), 2.0 / 2048.0);
        assert_eq!(allowed(0.0, 3, 5.0, 7), 15.0 * EPS);
    }

    #[test]
    fn operands_of_tf32_are_rounded_and_those_of_f32_are_not() {
        let error = |precision| Rounding::new(DType::F32, precision).sum(0.0, 0, 1.0, 0);
        assert!(error(Precision::F32) < 1e-30);
        assert!((error(Precision::Tf32) - 1.01 * 2.0 / 1024.0).abs() < 1e-12);
    }
}
