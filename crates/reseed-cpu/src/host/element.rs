//! The element types of activations and packed weights.

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use reseed_ops::DType;

/// An element type of activations.
pub trait Element: Pod + Send + Sync {
    /// The same type as a value.
    const DTYPE: DType;
    /// Converts exactly.
    fn to_f32(self) -> f32;
    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
    /// Rounds values as [`Element::from_f32`] does, several at a time.
    fn round_all(values: &[f32], to: &mut [Self]) {
        to.iter_mut().zip(values).for_each(|(to, &value)| *to = Self::from_f32(value));
    }
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
    /// With the conversion instruction where the CPU has one. The compiler does not select it for a loop.
    fn round_all(values: &[f32], to: &mut [f16]) {
        to.convert_from_f32_slice(values);
    }
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> bf16 {
        // Branch-free except for NaN, so that loops over it vectorise.
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        bf16::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

/// Runs the body with `$e` as the element type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $e:ident => $body:expr) => {
        match $dtype {
            reseed_ops::DType::F32 => {
                type $e = f32;
                $body
            }
            reseed_ops::DType::F16 => {
                type $e = half::f16;
                $body
            }
            reseed_ops::DType::Bf16 => {
                type $e = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_element;
