//! GELU with the tanh approximation.

use reseed_ops::{Result, Tensor};

use super::CudaOps;
use super::memory::{ptr, rows_grid};
use crate::launch::args;
use crate::params::{int, long};

pub fn run(cuda: &CudaOps, x: Tensor) -> Result<Tensor> {
    let x = cuda.writable("gelu", x)?;
    let (name, rows, channels) = (format!("gelu_{}", x.dtype()), long(x.rows()), int(x.channels()));
    // SAFETY: arguments follow kernels/gelu.cu in order and type.
    unsafe { cuda.driver.launch(&name, rows_grid(x.rows()), args![ptr(&x), rows, channels]) }?;
    Ok(x)
}
