//! Rows of a matrix by index, or means of several rows.

use reseed_ops::{Result, Rows, Shape, Tensor};

use super::CudaOps;
use super::memory::{ptr, rows_grid};
use super::vectors;
use crate::launch::args;
use crate::params::{int, long};

pub fn run(cuda: &CudaOps, x: &Tensor, rows: &Rows) -> Result<Tensor> {
    assert!(rows.end <= x.rows(), "gather_rows: row {} of {x:?}", rows.end);
    let y = cuda.empty("gather_rows", Shape::from([rows.count, x.channels()]), x.dtype())?;
    let (name, indices) = (format!("gather_rows_{}", x.dtype()), vectors::ptr_of(cuda, &rows.packed));
    let (count, per, channels) = (long(rows.count), int(rows.per), int(x.channels()));
    // SAFETY: arguments follow kernels/gather_rows.cu in order and type; no index exceeds the rows of x.
    unsafe { cuda.driver.launch(&name, rows_grid(rows.count), args![ptr(&y), ptr(x), indices, count, per, channels]) }?;
    Ok(y)
}
