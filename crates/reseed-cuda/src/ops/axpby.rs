//! Linear combination: a · x + b · y.

use reseed_ops::{Result, Tensor};

use super::CudaOps;
use super::memory::{ptr, rows_grid};
use crate::launch::args;
use crate::params::{int, long};

pub fn run(cuda: &CudaOps, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
    assert_eq!((x.shape(), x.dtype()), (y.shape(), y.dtype()), "axpby");
    let y = cuda.writable("axpby", y)?;
    let (name, rows, channels) = (format!("axpby_{}", y.dtype()), long(y.rows()), int(y.channels()));
    // SAFETY: arguments follow kernels/axpby.cu in order and type; shapes were checked above.
    unsafe { cuda.driver.launch(&name, rows_grid(y.rows()), args![ptr(&y), ptr(x), a, b, rows, channels]) }?;
    Ok(y)
}
