//! Gated addition: x + gate · h.

use reseed_ops::{Result, Tensor, Vector};

use super::CudaOps;
use super::memory::{ptr, rows_grid};
use super::vectors;
use crate::launch::args;
use crate::params::{int, long};

pub fn run(cuda: &CudaOps, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
    assert_eq!((x.shape(), x.dtype(), x.channels()), (h.shape(), h.dtype(), gate.len), "gated_add: {h:?} to {x:?}");
    let x = cuda.writable("gated_add", x)?;
    let (name, gates) = (format!("gated_add_{}", x.dtype()), vectors::ptr_of(cuda, &gate.packed));
    let (rows, channels) = (long(x.rows()), int(gate.len));
    // SAFETY: arguments follow kernels/gated_add.cu in order and type; shapes were checked above.
    unsafe { cuda.driver.launch(&name, rows_grid(x.rows()), args![ptr(&x), ptr(h), gates, rows, channels]) }?;
    Ok(x)
}
