//! Dequantisation of matrices for one product.

use reseed_ops::{LinearSpec, Quant, Result};

use super::CudaOps;
use crate::device_memory::ArenaBuffer;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::long;

/// Threads per block, and values: eight per thread.
const THREADS: usize = 256;
const VALUES: usize = 8 * THREADS;

/// Bytes of the dequantised matrix of a layer.
pub fn workspace(spec: &LinearSpec, float: usize) -> usize {
    spec.quant.map_or(0, |_| spec.d_in * spec.d_out * float)
}

/// Queues the dequantisation of a matrix at `from` to the type that products read.
///
/// # Safety
/// `from` holds `count` values in whole blocks.
pub unsafe fn run(cuda: &CudaOps, quant: Quant, from: Ptr, count: usize) -> Result<ArenaBuffer> {
    let to = cuda.scratch("linear", count, cuda.dtype)?;
    let kind = match quant {
        Quant::Q8_0 => "q8_0",
        Quant::Q4K => "q4_k",
        Quant::E4m3 => "e4m3",
        Quant::ScaledE4m3 => "scaled_e4m3",
        Quant::Mxfp8 => "mxfp8",
        Quant::Nvfp4 => "nvfp4",
        Quant::Int8ConvRot => "int8_convrot",
    };
    let grid = Grid::new([count.div_ceil(VALUES), 1, 1], THREADS);
    let name = format!("dequantize_{kind}_{}", cuda.dtype);
    // SAFETY: arguments follow kernels/dequantize.cu in order and type; the caller's promise; `to` holds `count`
    // values.
    unsafe { cuda.driver.launch(&name, grid, args![to.ptr(), from, long(count)]) }?;
    Ok(to)
}
