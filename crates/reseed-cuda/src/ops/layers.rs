//! Layers whose weights are offloaded to host memory and prefetched.

use std::sync::Arc;

use reseed_ops::{Conv, Linear, Result, Shape, Upsample};

use super::CudaOps;
use super::conv::Weights;
use super::upsample::Weights as UpsampleWeights;
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::pinned::Pinned;
use crate::stream::Stream;

/// The matrix of a layer.
pub enum Matrix {
    /// In device memory of its own.
    Resident(Allocation),
    /// In device memory that tensors share.
    Prefetched(ArenaBuffer),
    /// In host memory.
    Offloaded(Pinned),
}

impl Matrix {
    /// Its address, for kernels that are queued from now on.
    pub fn ptr(&self) -> Ptr {
        match self {
            Matrix::Resident(memory) => memory.ptr(),
            Matrix::Prefetched(buffer) => buffer.ptr(),
            Matrix::Offloaded(_) => panic!("an offloaded layer must be prefetched before use"),
        }
    }

    /// A copy of its `bytes` bytes in host memory.
    fn offload(&self, cuda: &CudaOps, bytes: usize) -> Result<Matrix> {
        // SAFETY: the owner passes the size of the matrix, and the wait below keeps it alive during the copy.
        let (pinned, copy) = unsafe { cuda.memory.download(Stream::Offload, self.ptr(), bytes) }?;
        // The caller may drop the source with the layer.
        copy.wait()?;
        Ok(Matrix::Offloaded(pinned))
    }

    /// A copy in device memory, if it is offloaded.
    fn prefetch(&self, cuda: &CudaOps) -> Result<Option<Matrix>> {
        let Matrix::Offloaded(pinned) = self else { return Ok(None) };
        let buffer = cuda.buffer(Stream::Upload, "prefetch", Shape::from([pinned.len()]), pinned.len())?;
        cuda.memory.upload(&buffer, 0, pinned, 0, pinned.len())?;
        Ok(Some(Matrix::Prefetched(buffer)))
    }
}

/// A linear layer.
#[derive(Clone)]
pub struct Layer {
    /// `[d_out, d_in]` of the device's type, or quantised as the layer says.
    pub weight: Arc<Matrix>,
    /// `[d_out]` of f32.
    pub bias: Arc<Allocation>,
    /// The bias in the device's type, for cuBLASLt; absent where it is zero.
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
    let layer: &Weights = cuda.unpack(&conv.packed);
    let weight = layer.weight.offload(cuda, conv.spec.taps.t * layer.per_tap(&conv.spec) * cuda.dtype.bytes())?;
    Ok(Conv { packed: Arc::new(layer.with(weight)), ..conv })
}

pub fn prefetch_conv(cuda: &CudaOps, offloaded: Conv) -> Result<Conv> {
    let layer: &Weights = cuda.unpack(&offloaded.packed);
    Ok(match layer.weight.prefetch(cuda)? {
        Some(weight) => Conv { packed: Arc::new(layer.with(weight)), ..offloaded },
        None => offloaded,
    })
}

pub fn offload_upsample(cuda: &CudaOps, upsample: Upsample) -> Result<Upsample> {
    let layer: &UpsampleWeights = cuda.unpack(&upsample.packed);
    let bytes = layer.set_bytes(&upsample.spec, cuda.dtype);
    let second = layer.second.as_ref().map(|second| second.offload(cuda, bytes)).transpose()?;
    Ok(Upsample { packed: Arc::new(layer.with(layer.later.offload(cuda, bytes)?, second)), ..upsample })
}

pub fn prefetch_upsample(cuda: &CudaOps, offloaded: Upsample) -> Result<Upsample> {
    let layer: &UpsampleWeights = cuda.unpack(&offloaded.packed);
    let Some(later) = layer.later.prefetch(cuda)? else { return Ok(offloaded) };
    let second = layer.second.as_ref().map(|second| second.prefetch(cuda)).transpose()?.flatten();
    Ok(Upsample { packed: Arc::new(layer.with(later, second)), ..offloaded })
}
