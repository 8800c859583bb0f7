//! Weights of layers in device memory or offloaded to pinned host memory.

use std::sync::Arc;

use reseed_ops::{Conv, Linear, Result, Shape, Upsample};

use super::CudaOps;
use super::conv::Weights;
use super::upsample::Weights as Kernels;
use crate::driver::Ptr;
use crate::event::Lane;
use crate::pinned::Pinned;
use crate::store::{ArenaBuffer, Memory};

/// The memory of a layer's matrix.
pub enum Matrix {
    /// Device memory, resident.
    Kept(Memory),
    /// Device memory of the arena, prefetched.
    ArenaBuffer(ArenaBuffer),
    /// Pinned host memory.
    Offloaded(Pinned),
}

impl Matrix {
    /// Its address for kernels that are queued from now on.
    pub fn ptr(&self) -> Ptr {
        match self {
            Matrix::Kept(memory) => memory.ptr(),
            Matrix::ArenaBuffer(lent) => lent.ptr(),
            Matrix::Offloaded(_) => panic!("an offloaded layer must be prefetched before it is used"),
        }
    }

    /// A copy of `bytes` bytes in pinned host memory.
    fn offload(&self, cuda: &CudaOps, bytes: usize) -> Result<Matrix> {
        // SAFETY: the callers pass the size of the matrix.
        let (pinned, copy) = unsafe { cuda.store.leave(Lane::Out, self.ptr(), bytes) }?;
        // The caller drops the source.
        copy.wait()?;
        Ok(Matrix::Offloaded(pinned))
    }

    /// A copy in device memory, if the matrix is offloaded.
    fn prefetch(&self, cuda: &CudaOps) -> Result<Option<Matrix>> {
        let Matrix::Offloaded(pinned) = self else { return Ok(None) };
        let lent = cuda.lend(Lane::In, "prefetch", Shape::from([pinned.len()]), pinned.len())?;
        cuda.store.bring(&lent, 0, pinned, 0, pinned.len())?;
        Ok(Some(Matrix::ArenaBuffer(lent)))
    }
}

/// A linear layer.
#[derive(Clone)]
pub struct Layer {
    /// `[d_out, d_in]` of the device's type, or quantized.
    pub weight: Arc<Matrix>,
    /// `[d_out]` of f32.
    pub bias: Arc<Memory>,
    /// The bias in the device's type, for libraries; absent if it is zero.
    pub rounded: Option<Arc<Memory>>,
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
