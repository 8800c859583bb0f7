//! What is reported of an op that disagrees.

use std::fmt;

use crate::shape::Shape;

/// An op whose results differ by more than a correct device may.
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
    /// The element that is furthest outside the bound; none where all elements are inside and the norm is not.
    pub element: Option<Element>,
    /// |a - b| of the element, or ‖a - b‖ / ‖a‖.
    pub error: f64,
    /// The bound of that.
    pub allowed: f64,
}

/// One element of a result on two devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// Its place in the result, row-major.
    pub index: usize,
    /// Its value on the reference.
    pub reference: f32,
    /// Its value on the device.
    pub device: f32,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disagreement { stage, op, call, shape, element, error, allowed } = self;
        write!(f, "{stage}: {op} (call {call}, {shape}) ")?;
        match element {
            Some(Element { index, reference, device }) => {
                write!(
                    f,
                    "element {index} is {device:e}, not {reference:e}: differs by {error:.2e}, allowed {allowed:.2e}"
                )
            }
            None => write!(f, "differs by {error:.2e} of its norm, allowed {allowed:.2e}"),
        }
    }
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
