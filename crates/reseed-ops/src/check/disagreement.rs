//! What is told of an op that disagrees.

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
