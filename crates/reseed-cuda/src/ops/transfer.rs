//! Tensors on their way between host and card. The host computes in f32; values are rounded here, part by part and on several
//! threads, since one cannot keep up with the bus, and a part travels while others are rounded.

use std::sync::mpsc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::{DType, Error, Incoming, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::ptr;
use super::parked::{self, Parked};
use super::weights::Element;
use crate::pinned::Pinned;
use crate::store::Lent;

/// Values of a part.
const PART: usize = 1 << 18;

pub fn upload(cuda: &CudaOps, shape: Shape, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let (x, size) = (cuda.room("upload", shape, cuda.dtype)?, cuda.dtype.bytes());
    rayon::in_place_scope(|scope| {
        let (sender, rounded) = mpsc::channel();
        for (i, part) in values.chunks(PART).enumerate() {
            let (mut pinned, sender) = (Pinned::new(&cuda.store, part.len() * size)?, sender.clone());
            pinned.bytes_mut()?; // threads that are shared wait for no copy
            scope.spawn(move |_| {
                let done = pinned.bytes_mut().map(|bytes| narrow(bytes, part, cuda.dtype));
                // Nobody listens any more where another part has failed.
                let _ = sender.send(done.map(|()| (i, pinned)));
            });
        }
        drop(sender);
        rounded.into_iter().try_for_each(|part| {
            let (i, pinned) = part?;
            cuda.store.bring(x.storage(), i * PART * size, &pinned, 0, pinned.len())
        })
    })?;
    Ok(x)
}

/// Queues the copy of a tensor to the host.
fn leave(cuda: &CudaOps, x: &Tensor) -> Result<Vec<Pinned>> {
    let (bytes, part) = (x.bytes(), PART * x.dtype().bytes());
    let parts = (0..bytes).step_by(part).map(|start| {
        // SAFETY: a part of the tensor's own bytes.
        let (pinned, copy) = unsafe { cuda.store.leave(ptr(x).plus(start), part.min(bytes - start)) }?;
        x.storage::<Lent>().read_by(copy);
        Ok(pinned)
    });
    parts.collect()
}

/// A tensor on its way to the host.
struct Sent {
    parts: Vec<Pinned>,
    dtype: DType,
    count: usize,
    /// Where the type has a narrow range: whether statistics have left it before, as one integer.
    overflow: Option<Pinned>,
}

impl Incoming for Sent {
    fn wait(self: Box<Self>, into: &mut Vec<f32>) -> Result<()> {
        into.resize(self.count, 0.0);
        let (dtype, parts) = (self.dtype, &self.parts);
        rayon::in_place_scope(|scope| -> Result<()> {
            for (to, part) in into.chunks_mut(PART).zip(parts) {
                let bytes = part.bytes()?;
                scope.spawn(move |_| widen(to, bytes, dtype));
            }
            Ok(())
        })?;
        if let Some(overflow) = &self.overflow
            && overflow.bytes()?.iter().any(|&byte| byte != 0)
        {
            return Err(Error::OutOfRange { dtype: self.dtype });
        }
        Ok(())
    }
}

/// Queues the copy of the mark that group statistics leave when they are not finite.
fn overflow(cuda: &CudaOps) -> Result<Pinned> {
    let mark = cuda.driver.global("not_finite")?;
    // SAFETY: the mark is one integer.
    Ok(unsafe { cuda.store.leave(mark, size_of::<i32>()) }?.0)
}

pub fn send(cuda: &CudaOps, x: &Tensor) -> Result<Box<dyn Incoming>> {
    let x = if x.is_on::<Parked>() { parked::fetch(cuda, x)? } else { x.clone() };
    let overflow = (x.dtype() == DType::F16).then(|| overflow(cuda)).transpose()?;
    Ok(Box::new(Sent { parts: leave(cuda, &x)?, dtype: x.dtype(), count: x.count(), overflow }))
}

/// Host values as the device stores them.
fn narrow(to: &mut [u8], values: &[f32], dtype: DType) {
    match dtype {
        DType::F32 => <f32 as Element>::round(bytemuck::cast_slice_mut(to), values),
        DType::F16 => f16::round(bytemuck::cast_slice_mut(to), values),
        DType::Bf16 => bf16::round(bytemuck::cast_slice_mut(to), values),
    }
}

/// The other way.
fn widen(to: &mut [f32], bytes: &[u8], dtype: DType) {
    match dtype {
        DType::F32 => to.copy_from_slice(bytemuck::cast_slice(bytes)),
        DType::F16 => bytemuck::cast_slice::<u8, f16>(bytes).convert_to_f32_slice(to),
        DType::Bf16 => bytemuck::cast_slice::<u8, bf16>(bytes).convert_to_f32_slice(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rounded_comes_back() {
        let values: Vec<f32> = (0..2048).map(|i| i as f32 - 1024.0).collect();
        for dtype in [DType::F32, DType::F16] {
            let mut aligned = vec![0u64; values.len()];
            let stored = &mut bytemuck::cast_slice_mut(&mut aligned)[..values.len() * dtype.bytes()];
            narrow(stored, &values, dtype);
            let mut back = vec![0.0; values.len()];
            widen(&mut back, stored, dtype);
            assert!(back == values, "{dtype}");
        }
    }
}
