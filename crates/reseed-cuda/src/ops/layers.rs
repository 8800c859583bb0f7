//! Layers that wait in the host's memory and come when they are wanted.

use std::sync::Arc;

use reseed_ops::{Conv, Linear, Result, Shape, Upsample};

use super::CudaOps;
use super::conv::Weights;
use super::upsample::Weights as Kernels;
use crate::driver::Ptr;
use crate::event::Lane;
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

    /// The same `bytes` bytes in the host's memory.
    fn park(&self, cuda: &CudaOps, bytes: usize) -> Result<Matrix> {
        // SAFETY: the matrix has as many bytes, as its owner says.
        let (pinned, copy) = unsafe { cuda.store.leave(Lane::Out, self.ptr(), bytes) }?;
        // What it is copied from goes with the layer.
        copy.wait()?;
        Ok(Matrix::Parked(pinned))
    }

    /// The same on its way back, if it is parked.
    fn fetch(&self, cuda: &CudaOps, op: &'static str) -> Result<Option<Matrix>> {
        let Matrix::Parked(pinned) = self else { return Ok(None) };
        let lent = cuda.lend(Lane::In, op, Shape::from([pinned.len()]), pinned.len())?;
        cuda.store.bring(&lent, 0, pinned, 0, pinned.len())?;
        Ok(Some(Matrix::Lent(lent)))
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
    let weight = layer.weight.park(cuda, linear.spec.bytes(cuda.dtype.bytes()))?;
    Ok(Linear { packed: Arc::new(layer.with(weight)), ..linear.clone() })
}

pub fn fetch_linear(cuda: &CudaOps, parked: &Linear) -> Result<Linear> {
    let layer: &Layer = cuda.unpack(&parked.packed);
    Ok(match layer.weight.fetch(cuda, "fetch_linear")? {
        Some(weight) => Linear { packed: Arc::new(layer.with(weight)), ..parked.clone() },
        None => parked.clone(),
    })
}

pub fn park_conv(cuda: &CudaOps, conv: &Conv) -> Result<Conv> {
    let Weights { weight, bias, c_in } = cuda.unpack(&conv.packed);
    let rows = conv.spec.c_out * conv.spec.taps.count();
    let weight = weight.park(cuda, rows * c_in * cuda.dtype.bytes())?;
    Ok(Conv { packed: Arc::new(Weights { weight, bias: bias.clone(), c_in: *c_in }), ..conv.clone() })
}

pub fn fetch_conv(cuda: &CudaOps, parked: &Conv) -> Result<Conv> {
    let Weights { weight, bias, c_in } = cuda.unpack(&parked.packed);
    let Some(weight) = weight.fetch(cuda, "fetch_conv")? else { return Ok(parked.clone()) };
    Ok(Conv { packed: Arc::new(Weights { weight, bias: bias.clone(), c_in: *c_in }), ..parked.clone() })
}

pub fn park_upsample(cuda: &CudaOps, upsample: &Upsample) -> Result<Upsample> {
    let Kernels { later, second, bias } = cuda.unpack(&upsample.packed);
    let spec = &upsample.spec;
    let bytes = spec.weights() / (1 + usize::from(spec.time)) * cuda.dtype.bytes();
    let second = second.as_ref().map(|second| second.park(cuda, bytes)).transpose()?;
    let kernels = Kernels { later: later.park(cuda, bytes)?, second, bias: bias.clone() };
    Ok(Upsample { packed: Arc::new(kernels), ..upsample.clone() })
}

pub fn fetch_upsample(cuda: &CudaOps, parked: &Upsample) -> Result<Upsample> {
    let Kernels { later, second, bias } = cuda.unpack(&parked.packed);
    let fetch = |matrix: &Matrix| matrix.fetch(cuda, "fetch_upsample");
    let Some(later) = fetch(later)? else { return Ok(parked.clone()) };
    let second = second.as_ref().map(fetch).transpose()?.flatten();
    Ok(Upsample { packed: Arc::new(Kernels { later, second, bias: bias.clone() }), ..parked.clone() })
}
