//! The type of activations, and the type of the operands of products.

use std::fmt;
use std::str::FromStr;

use crate::shape::DType;

/// The arithmetic of a device. Sums are f32, unless [`crate::MathMode::Fast`] adds products in f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 throughout.
    F32,
    /// Activations and weights are f32; large matrix products round them to 11 significant bits.
    Tf32,
    /// f16 throughout.
    F16,
    /// bf16 throughout.
    Bf16,
}

impl Precision {
    /// Type of activations and weights in memory.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::F16 => DType::F16,
            Precision::Bf16 => DType::Bf16,
        }
    }

    /// The largest relative error of rounding an operand.
    pub fn rounding(self) -> f32 {
        match self {
            Precision::Tf32 => 1.0 / 2048.0,
            _ => self.dtype().rounding(),
        }
    }
}

impl From<DType> for Precision {
    fn from(dtype: DType) -> Precision {
        match dtype {
            DType::F32 => Precision::F32,
            DType::F16 => Precision::F16,
            DType::Bf16 => Precision::Bf16,
        }
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Precision, String> {
        let all = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];
        let found = all.into_iter().find(|precision| precision.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not f32, tf32, f16 or bf16"))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precision::Tf32 => f.write_str("tf32"),
            _ => self.dtype().fmt(f),
        }
    }
}
