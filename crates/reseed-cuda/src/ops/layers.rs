//! Linear layers that wait in the host's memory and come when they are wanted.

use std::sync::Arc;

use reseed_ops::{Linear, Result};

use super::CudaOps;
use super::conv::Weights;
use crate::driver::Ptr;
use crate::pinned::Pinned;
use crate::store::{Lent, Memory};

/// Where a layer's matrix is.
pub enum Matrix {
    /// On the card, to stay.
    Kept(Memory),
    /// On the card, for a while.
    Lent(Lent),
    /// In the host's memory.
    Parked(Pinned),
}

impl Matrix {
    /// Where kernels that are queued from now on find it.
    pub fn ptr(&self) -> Ptr {
        match self {
            Matrix::Kept(memory) => memory.ptr(),
            Matrix::Lent(lent) => lent.ptr(),
            Matrix::Parked(_) => panic!("a parked layer must be fetched before it is used"),
        }
    }
}

pub fn park_linear(cuda: &CudaOps, linear: &Linear) -> Result<Linear> {
    let Weights { weight, bias, c_in } = cuda.unpack(&linear.packed);
    let bytes = linear.d_out * c_in * cuda.dtype.bytes();
    // SAFETY: the matrix has as many bytes.
    let (pinned, copy) = unsafe { cuda.store.leave(weight.ptr(), bytes) }?;
    // What it is copied from goes with the layer.
    copy.wait()?;
    let weights = Weights { weight: Matrix::Parked(pinned), bias: bias.clone(), c_in: *c_in };
    Ok(Linear { packed: Arc::new(weights), ..linear.clone() })
}

pub fn fetch_linear(cuda: &CudaOps, parked: &Linear) -> Result<Linear> {
    let Weights { weight, bias, c_in } = cuda.unpack(&parked.packed);
    let Matrix::Parked(pinned) = weight else { return Ok(parked.clone()) };
    let lent = cuda.scratch("fetch_linear", parked.d_out * c_in, cuda.dtype)?;
    cuda.store.bring(&lent, 0, pinned, 0, pinned.len())?;
    let weights = Weights { weight: Matrix::Lent(lent), bias: bias.clone(), c_in: *c_in };
    Ok(Linear { packed: Arc::new(weights), ..parked.clone() })
}
