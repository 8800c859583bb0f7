//! How far results are apart, and what is told of an op that disagrees.

use std::fmt;

use crate::shape::Shape;

/// An op whose results differ by more than rounding explains.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// Part of the network.
    pub stage: String,
    /// The op.
    pub op: &'static str,
    /// Which call of the run it was, counted from 0.
    pub call: usize,
    /// Shape of its result.
    pub shape: Shape,
    /// ‖a - b‖ / ‖a‖, infinite where one of them is not a number.
    pub error: f64,
    /// What rounding explains.
    pub allowed: f64,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disagreement { stage, op, call, shape, error, allowed } = self;
        write!(f, "{stage}: {op} (call {call}, {shape}) differs by {error:.2e}, allowed {allowed:.2e}")
    }
}

/// Relative error of a sum of n terms in f32. It grows like √n; four standard deviations are never reached by chance.
pub fn summation(terms: usize) -> f64 {
    4.0 * (terms as f64).sqrt() * f64::from(f32::EPSILON)
}

/// ‖a - b‖ / ‖a‖, infinite where one of them is not finite and the other is.
pub fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let size = norm(&mut a.iter().map(|a| f64::from(*a)));
    match difference / size {
        _ if difference == 0.0 => 0.0,
        error if error.is_finite() => error,
        _ => f64::INFINITY,
    }
}
