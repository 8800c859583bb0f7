//! Which kernels compute the convolutions of f16, by GPU and mode.

use reseed_ops::{DType, MathMode, Result};

use super::CudaOps;
use crate::driver::DeviceInfo;
use crate::kernels::Kernels;

/// The choice for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvKernels {
    /// Winograd of 3x3 kernels with stride 1, where channels fill tiles.
    pub winograd: Winograd,
    /// Whether products are added in f16 before they are added in f32.
    pub half_sums: bool,
    /// Whether convolutions that follow a norm multiply bytes, where `conv_int8` can.
    pub int8: bool,
}

/// Kinds of Winograd convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Winograd {
    /// The direct algorithm.
    None,
    /// F(3,3) of `conv_winograd`, on Hopper.
    Columns,
    /// F(2x2,3x3) of `conv_winograd_2d`.
    Plane,
}

impl ConvKernels {
    /// The direct algorithm with sums of f32.
    const DIRECT: ConvKernels = ConvKernels { winograd: Winograd::None, half_sums: false, int8: false };

    /// The table. On Hopper it is measured. Data-centre GPUs multiply as fast with sums of f32, and their portable
    /// kernels wait for memory, measured on an H200 too: F(2x2,3x3) gains nothing. GeForce GPUs wait for products;
    /// their row is from an emulation, not from a measurement (docs/benchmarks.md). Bytes would gain less there than
    /// F(2x2,3x3) with sums of f16 does.
    pub fn of(kernels: &Kernels, dtype: DType, mode: MathMode) -> ConvKernels {
        match (dtype, mode) {
            (DType::F32 | DType::Bf16, _) | (_, MathMode::Reference) => ConvKernels::DIRECT,
            (_, mode) if kernels.hopper => {
                ConvKernels { winograd: Winograd::Columns, half_sums: false, int8: mode == MathMode::Int8 }
            }
            (_, mode) if kernels.geforce => {
                ConvKernels { winograd: Winograd::Plane, half_sums: mode.is_fast(), int8: false }
            }
            _ => ConvKernels::DIRECT,
        }
    }

    /// In words, for reports.
    pub fn describe(self) -> &'static str {
        match (self.winograd, self.half_sums) {
            _ if self.int8 => "8-bit products after norms, else Winograd F(3,3)",
            (Winograd::None, false) => "direct, f32 sums",
            (Winograd::None, true) => "direct, f16 sums",
            (Winograd::Columns, _) => "Winograd F(3,3), f32 sums",
            (Winograd::Plane, false) => "Winograd F(2x2,3x3), f32 sums",
            (Winograd::Plane, true) => "Winograd F(2x2,3x3), f16 sums",
        }
    }
}

impl CudaOps {
    /// The same GPU with another accuracy of products. Weights that were packed before are not for it.
    pub fn with_math(self, math: MathMode) -> CudaOps {
        let conv = ConvKernels::of(&self.driver.kernels, self.dtype, math);
        CudaOps { math, conv, ..self }
    }

    /// The algorithm of 3x3 convolutions, in words.
    pub fn convolutions(&self) -> &'static str {
        self.conv.describe()
    }

    /// The kernels in use, such as `sm_80`, `sm_90a portable` or `sm_90a geforce`.
    pub fn kernels(&self) -> String {
        match self.driver.kernels {
            Kernels { name: "sm_90a", geforce: true, .. } => "sm_90a geforce".into(),
            Kernels { name: "sm_90a", hopper: false, .. } => "sm_90a portable".into(),
            Kernels { name, .. } => name.into(),
        }
    }
}

impl DeviceInfo {
    /// How this GPU computes 3x3 convolutions of f16 in a mode.
    pub fn convolutions(&self, math: MathMode) -> Result<&'static str> {
        Ok(ConvKernels::of(&Kernels::of(&self.name, self.capability)?, DType::F16, math).describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(capability: (usize, usize), dtype: DType, mode: MathMode) -> &'static str {
        ConvKernels::of(&Kernels::of("a GPU", capability).unwrap(), dtype, mode).describe()
    }

    #[test]
    fn modes_choose_by_gpu() {
        let modes = |capability| MathMode::ALL.map(|mode| choice(capability, DType::F16, mode));
        let direct = "direct, f32 sums";
        let (columns, bytes) = ("Winograd F(3,3), f32 sums", "8-bit products after norms, else Winograd F(3,3)");
        assert_eq!(modes((9, 0)), [columns, columns, bytes, direct]);
        for geforce in [(8, 6), (8, 9), (12, 0)] {
            let (exact, fast) = ("Winograd F(2x2,3x3), f32 sums", "Winograd F(2x2,3x3), f16 sums");
            assert_eq!(modes(geforce), [exact, fast, fast, direct]);
            assert_eq!(choice(geforce, DType::Bf16, MathMode::Fast), direct);
        }
        for other in [(7, 5), (8, 0), (10, 0)] {
            assert_eq!(modes(other), [direct; 4]);
        }
        assert_eq!(choice((9, 0), DType::F32, MathMode::Fast), direct);
    }
}
