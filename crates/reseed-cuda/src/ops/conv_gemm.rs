//! Launch of `kernels/conv_gemm.cu`, which computes any convolution on any GPU.

use reseed_ops::{DType, Result};

use super::CudaOps;
use super::convolution::Convolution;
use crate::launch::{Grid, args};

/// Pixels and channels of a block for 16-bit types, and for f32.
const TILE: (usize, usize) = (128, 64);
const TILE_F32: (usize, usize) = (64, 64);
/// Bytes of a row in shared memory.
const PITCH: usize = 80;

impl Convolution {
    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_gemm(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { dtype, out, x, cache, w, bias, y, residual, args, .. } = *self;
        let (pixels, channels) = if dtype == DType::F32 { TILE_F32 } else { TILE };
        let name = match out == dtype {
            true => format!("conv_gemm_{dtype}"),
            false => format!("conv_gemm_{dtype}_{out}"),
        };
        let stages = if dtype == DType::F32 { 0 } else { cuda.driver.kernels.gemm_stages() };
        let shared = stages * (pixels + channels) * PITCH;
        let blocks = [
            (args.out_h as usize * args.out_w as usize).div_ceil(pixels),
            (args.c_out as usize).div_ceil(channels),
            (args.out_frames * args.phases) as usize,
        ];
        let grid = Grid { blocks, threads: [256, 1], shared };
        // SAFETY: arguments follow kernels/conv_gemm.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![y, x, cache, w, bias, residual, args]) }
    }
}
