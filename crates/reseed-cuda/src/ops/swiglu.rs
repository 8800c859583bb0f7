//! SwiGLU: silu(a) · b of rows `[a b]`.

use reseed_ops::{Result, Shape, Tensor};

use super::CudaOps;
use super::memory::{ptr, rows_grid};
use crate::launch::args;
use crate::params::{int, long};

pub fn run(cuda: &CudaOps, x: &Tensor) -> Result<Tensor> {
    assert!(x.channels().is_multiple_of(2), "swiglu: {x:?} has an odd number of channels");
    let width = x.channels() / 2;
    let y = cuda.empty("swiglu", Shape::from([x.rows(), width]), x.dtype())?;
    let name = format!("swiglu_{}", x.dtype());
    // SAFETY: arguments follow kernels/swiglu.cu in order and type; y has half the columns of x.
    unsafe { cuda.driver.launch(&name, rows_grid(y.rows()), args![ptr(&y), ptr(x), long(y.rows()), int(width)]) }?;
    Ok(y)
}
