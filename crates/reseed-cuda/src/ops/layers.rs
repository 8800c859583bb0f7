//! Layers that wait in the host's memory and come when they are wanted.

use std::sync::Arc;

use reseed_ops::{Conv, Linear, Result, Shape, Upsample};

use super::CudaOps;
use super::conv::Weights;
use super::upsample::Weights as Kernels;
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::pinned::Pinned;
use crate::stream::Stream;

/// Where a layer's matrix is.
pub enum Matrix {
    /// On the card, to stay.
    Kept(Allocation),
    /// On the card, for a while.
    ArenaBuffer(ArenaBuffer),
    /// In the host's memory.
    Offloaded(Pinned),
}

impl Matrix {
    /// Where kernels that are queued from now on find it.
    pub fn ptr(&self) -> Ptr {
        match self {
            Matrix::Kept(memory) => memory.ptr(),
            Matrix::ArenaBuffer(lent) => lent.ptr(),
            Matrix::Offloaded(_) => panic!("a offloaded layer must be prefetched before it is used"),
        }
    }

    /// The same `bytes` bytes in the host's memory.
    fn offload(&self, cuda: &CudaOps, bytes: usize) -> Result<Matrix> {
        // SAFETY: the matrix has as many bytes, as its owner says.
        let (pinned, copy) = unsafe { cuda.memory.download(Stream::Offload, self.ptr(), bytes) }?;
        // What it is copied from goes with the layer.
        copy.wait()?;
        Ok(Matrix::Offloaded(pinned))
    }

    /// The same on its way back, if it is offloaded.
    fn prefetch(&self, cuda: &CudaOps) -> Result<Option<Matrix>> {
        let Matrix::Offloaded(pinned) = self else { return Ok(None) };
        let lent = cuda.buffer(Stream::Upload, "prefetch", Shape::from([pinned.len()]), pinned.len())?;
        cuda.memory.upload(&lent, 0, pinned, 0, pinned.len())?;
        Ok(Some(Matrix::ArenaBuffer(lent)))
    }
}

/// A linear layer.
#[derive(Clone)]
pub struct Layer {
    /// `[d_out, d_in]` of the device's type, or in the few bits that the layer says.
    pub weight: Arc<Matrix>,
    /// `[d_out]` of f32.
    pub bias: Arc<Allocation>,
    /// The same in the device's type, which is what libraries add; absent where it is zero.
    pub rounded: Option<Arc<Allocation>>,
}

impl Layer {
    fn with(&self, weight: Matrix) -> Layer {
        Layer { weight: Arc::new(weight), ..self.clone() }
    }
}

pub fn offload_linear(cuda: &CudaOps, linear: Linear) -> Result<Linear> {
    let layer: &Layer = cuda.unpack(&linear.packed);
    let weight = layer.weight.offload(cuda, linear.spec.bytes(cuda.dtype.bytes()))?;
    Ok(Linear { packed: Arc::new(layer.with(weight)), ..linear })
}

pub fn prefetch_linear(cuda: &CudaOps, offloaded: Linear) -> Result<Linear> {
    let layer: &Layer = cuda.unpack(&offloaded.packed);
    Ok(match layer.weight.prefetch(cuda)? {
        Some(weight) => Linear { packed: Arc::new(layer.with(weight)), ..offloaded },
        None => offloaded,
    })
}

pub fn offload_conv(cuda: &CudaOps, conv: Conv) -> Result<Conv> {
    let Weights { weight, bias, c_in } = cuda.unpack(&conv.packed);
    let rows = conv.spec.c_out * conv.spec.taps.count();
    let weight = weight.offload(cuda, rows * c_in * cuda.dtype.bytes())?;
    Ok(Conv { packed: Arc::new(Weights { weight, bias: bias.clone(), c_in: *c_in }), ..conv })
}

pub fn prefetch_conv(cuda: &CudaOps, offloaded: Conv) -> Result<Conv> {
    let Weights { weight, bias, c_in } = cuda.unpack(&offloaded.packed);
    Ok(match weight.prefetch(cuda)? {
        Some(weight) => Conv { packed: Arc::new(Weights { weight, bias: bias.clone(), c_in: *c_in }), ..offloaded },
        None => offloaded,
    })
}

pub fn offload_upsample(cuda: &CudaOps, upsample: Upsample) -> Result<Upsample> {
    let Kernels { later, second, bias } = cuda.unpack(&upsample.packed);
    let spec = &upsample.spec;
    let bytes = spec.weights() / (1 + usize::from(spec.time)) * cuda.dtype.bytes();
    let second = second.as_ref().map(|second| second.offload(cuda, bytes)).transpose()?;
    let kernels = Kernels { later: later.offload(cuda, bytes)?, second, bias: bias.clone() };
    Ok(Upsample { packed: Arc::new(kernels), ..upsample })
}

pub fn prefetch_upsample(cuda: &CudaOps, offloaded: Upsample) -> Result<Upsample> {
    let Kernels { later, second, bias } = cuda.unpack(&offloaded.packed);
    let Some(later) = later.prefetch(cuda)? else { return Ok(offloaded) };
    let second = second.as_ref().map(|second| second.prefetch(cuda)).transpose()?.flatten();
    Ok(Upsample { packed: Arc::new(Kernels { later, second, bias: bias.clone() }), ..offloaded })
}
