//! Matrices that stay in few bits, and their floats for as long as one product needs them.

use reseed_ops::{LinearSpec, Quant, Result};

use super::CudaOps;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::long;
use crate::store::ArenaBuffer;

/// Values that a block of `widen` makes: eight a thread.
const THREADS: usize = 256;
const VALUES: usize = 8 * THREADS;

/// Bytes of the floats of a layer's matrix that a product takes beside its operands.
pub fn workspace(spec: &LinearSpec, float: usize) -> usize {
    spec.quant.map_or(0, |_| spec.d_in * spec.d_out * float)
}

/// Queues the floats of a matrix that is stored at `from`, in the type that products read.
///
/// # Safety
/// `from` holds `count` values in whole blocks.
pub unsafe fn widen(cuda: &CudaOps, quant: Quant, from: Ptr, count: usize) -> Result<ArenaBuffer> {
    let to = cuda.scratch("linear", count, cuda.dtype)?;
    let kind = match quant {
        Quant::Q8_0 => "q8_0",
        Quant::Q4K => "q4_k",
        Quant::E4m3 => "e4m3",
    };
    let grid = Grid::new([count.div_ceil(VALUES), 1, 1], THREADS);
    let name = format!("widen_{kind}_{}", cuda.dtype);
    // SAFETY: arguments follow kernels/quant.cu in order and type; the caller's promise, and room for as many floats.
    unsafe { cuda.driver.launch(&name, grid, args![to.ptr(), from, long(count)]) }?;
    Ok(to)
}
