//! Sizes with names. Axes have one order: time, rows, columns, channels.

use std::fmt;

/// Element type of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float with 11 significant bits and a range of ±65504.
    F16,
    /// 16-bit float with the exponent of f32 and 8 significant bits.
    Bf16,
}

impl DType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }

    /// Unit roundoff, half of the distance from 1 to the next larger number: the largest relative error of one
    /// rounding.
    pub fn rounding(self) -> f32 {
        match self {
            DType::F32 => f32::EPSILON / 2.0,
            DType::F16 => 1.0 / 2048.0,
            DType::Bf16 => 1.0 / 256.0,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
        })
    }
}

/// Frames, rows and columns: a kernel, a stride or an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thw {
    /// Frames.
    pub t: usize,
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl Thw {
    /// Frames, rows, columns.
    pub const fn new(t: usize, h: usize, w: usize) -> Self {
        Thw { t, h, w }
    }

    /// t · h · w.
    pub const fn count(self) -> usize {
        self.t * self.h * self.w
    }
}

impl fmt::Display for Thw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.t, self.h, self.w)
    }
}

/// Rows and columns of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hw {
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl Hw {
    /// Rows, columns.
    pub const fn new(h: usize, w: usize) -> Self {
        Hw { h, w }
    }

    /// h · w.
    pub const fn count(self) -> usize {
        self.h * self.w
    }
}

impl fmt::Display for Hw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.h, self.w)
    }
}

/// Dimensions of a dense tensor, outermost first; at most five (a convolution's weight).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; 5],
    rank: usize,
}

impl Shape {
    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Product of the dimensions.
    pub fn count(&self) -> usize {
        self.dims().iter().product()
    }

    /// A clip: frames, rows, columns, channels.
    pub fn clip(thw: Thw, channels: usize) -> Shape {
        [thw.t, thw.h, thw.w, channels].into()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape::from(&dims[..])
    }
}

impl From<&[usize]> for Shape {
    fn from(from: &[usize]) -> Shape {
        assert!(from.len() <= 5, "a shape has at most five dimensions, not {}", from.len());
        let mut dims = [1; 5];
        dims[..from.len()].copy_from_slice(from);
        Shape { dims, rank: from.len() }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
