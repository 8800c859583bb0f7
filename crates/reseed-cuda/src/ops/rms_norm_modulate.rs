//! RMS norm and modulation: y = x / sqrt(mean(x²) + eps) · gain + shift.

use reseed_ops::{Norm, Result, Tensor};

use super::CudaOps;
use super::group_norm;
use super::memory::{ptr, rows_grid};
use crate::launch::args;
use crate::params::{int, long};

pub fn run(cuda: &CudaOps, x: &Tensor, norm: &Norm) -> Result<Tensor> {
    assert_eq!(x.channels(), norm.channels, "rms_norm_modulate: input {x:?}");
    let y = cuda.empty("rms_norm_modulate", x.shape(), x.dtype())?;
    let (gain, shift) = group_norm::gain_and_shift(cuda, norm);
    let (rows, channels, grid) = (long(x.rows()), int(norm.channels), rows_grid(x.rows()));
    let name = format!("rms_norm_modulate_{}", x.dtype());
    // SAFETY: arguments follow kernels/rms_norm_modulate.cu in order and type; y has the shape of x.
    unsafe { cuda.driver.launch(&name, grid, args![ptr(&y), ptr(x), gain, shift, rows, channels, norm.eps]) }?;
    Ok(y)
}
