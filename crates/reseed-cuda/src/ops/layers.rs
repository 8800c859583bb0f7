//! Linear layers that wait in the host's memory and come when they are wanted.

use std::sync::Arc;

use reseed_ops::{Linear, Result, Shape};

use super::CudaOps;
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

/// A linear layer.
#[derive(Clone)]
pub struct Layer {
    /// `[d_out, d_in]` of the device's type, or in the few bits that the layer says.
    pub weight: Arc<Matrix>,
    /// `[d_out]` of f32.
    pub bias: Arc<Memory>,
    /// The same in the device's type, which is what libraries add; absent where it is zero.
    pub rounded: Option<Arc<Memory>>,
}

impl Layer {
    fn with(&self, weight: Matrix) -> Layer {
        Layer { weight: Arc::new(weight), ..self.clone() }
    }
}

pub fn park_linear(cuda: &CudaOps, linear: &Linear) -> Result<Linear> {
    let layer: &Layer = cuda.unpack(&linear.packed);
    // SAFETY: the matrix has as many bytes.
    let (pinned, copy) = unsafe { cuda.store.leave(layer.weight.ptr(), linear.spec.bytes(cuda.dtype.bytes())) }?;
    // What it is copied from goes with the layer.
    copy.wait()?;
    Ok(Linear { packed: Arc::new(layer.with(Matrix::Parked(pinned))), ..linear.clone() })
}

pub fn fetch_linear(cuda: &CudaOps, parked: &Linear) -> Result<Linear> {
    let layer: &Layer = cuda.unpack(&parked.packed);
    let Matrix::Parked(pinned) = &*layer.weight else { return Ok(parked.clone()) };
    let lent = cuda.lend("fetch_linear", Shape::from([pinned.len()]), pinned.len())?;
    cuda.store.bring(&lent, 0, pinned, 0, pinned.len())?;
    Ok(Linear { packed: Arc::new(layer.with(Matrix::Lent(lent))), ..parked.clone() })
}
