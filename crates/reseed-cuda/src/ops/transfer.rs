//! Copies of tensors between host and device. The host computes in f32. Values are rounded here, in parts and on
//! several threads, since one thread is slower than the bus; a part is copied while others are rounded.

use std::sync::mpsc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::{DType, Error, PendingDownload, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::ptr;
use super::offloaded::{self, Offloaded};
use super::weights::Element;
use crate::driver::Ptr;
use crate::event::Lane;
use crate::pinned::Pinned;
use crate::store::ArenaBuffer;

/// Values of a part.
const PART: usize = 1 << 18;

/// Fills a buffer in parts: `fill` converts each value to `size` bytes, and a part is copied while others are
/// converted. The calling thread converts the first part, since waking a thread takes as long.
pub fn bring<T: Sync>(
    cuda: &CudaOps,
    to: &ArenaBuffer,
    values: &[T],
    part: usize,
    size: usize,
    fill: impl Fn(&mut [u8], &[T]) + Sync,
) -> Result<()> {
    let (fill, mut parts) = (&fill, values.chunks(part).enumerate());
    let copy = |i: usize, pinned: &Pinned| cuda.store.bring(to, i * part * size, pinned, 0, pinned.len());
    let Some((_, first)) = parts.next() else { return Ok(()) };
    rayon::in_place_scope(|scope| {
        let (sender, filled) = mpsc::channel();
        for (i, values) in parts {
            let (mut pinned, sender) = (Pinned::new(&cuda.store, values.len() * size)?, sender.clone());
            pinned.bytes_mut()?; // shared threads must not wait for a copy
            scope.spawn(move |_| {
                let done = pinned.bytes_mut().map(|bytes| fill(bytes, values));
                // The receiver is gone if another part has failed.
                let _ = sender.send(done.map(|()| (i, pinned)));
            });
        }
        drop(sender);
        let mut pinned = Pinned::new(&cuda.store, first.len() * size)?;
        fill(pinned.bytes_mut()?, first);
        copy(0, &pinned)?;
        filled.into_iter().try_for_each(|filled| filled.and_then(|(i, pinned)| copy(i, &pinned)))
    })
}

/// Queues the copy of `bytes` bytes of a buffer from `at` to the host, in parts.
pub fn leave(cuda: &CudaOps, buffer: &ArenaBuffer, at: Ptr, bytes: usize, part: usize) -> Result<Vec<Pinned>> {
    let parts = (0..bytes).step_by(part).map(|start| {
        // SAFETY: a part of the caller's bytes.
        let (pinned, copy) = unsafe { cuda.store.leave(Lane::Results, at.plus(start), part.min(bytes - start)) }?;
        buffer.read_by(copy);
        Ok(pinned)
    });
    parts.collect()
}

/// Converts copied parts of `part` values each, while later parts are still being copied. The calling thread converts
/// the last.
pub fn arrive<T: Send>(
    parts: &[Pinned],
    into: &mut [T],
    part: usize,
    convert: impl Fn(&mut [T], &[u8]) + Sync,
) -> Result<()> {
    let convert = &convert;
    rayon::in_place_scope(|scope| {
        for (i, (to, from)) in into.chunks_mut(part).zip(parts).enumerate() {
            let bytes = from.bytes()?;
            match i + 1 < parts.len() {
                true => scope.spawn(move |_| convert(to, bytes)),
                false => convert(to, bytes),
            }
        }
        Ok(())
    })
}

/// For f16: whether statistics have overflowed, as one integer that is copied to the host.
pub struct Guard {
    overflow: Option<Pinned>,
    dtype: DType,
}

impl Guard {
    /// Queues the copy of the flag that group statistics set when they are not finite.
    pub fn new(cuda: &CudaOps, dtype: DType) -> Result<Guard> {
        let flag = || {
            let flag = cuda.driver.global("not_finite")?;
            // SAFETY: the flag is one integer.
            Ok(unsafe { cuda.store.leave(Lane::Results, flag, size_of::<i32>()) }?.0)
        };
        Ok(Guard { overflow: (dtype == DType::F16).then(flag).transpose()?, dtype })
    }

    /// An error if they have.
    pub fn check(&self) -> Result<()> {
        match &self.overflow {
            Some(flag) if flag.bytes()?.iter().any(|&byte| byte != 0) => Err(Error::OutOfRange { dtype: self.dtype }),
            _ => Ok(()),
        }
    }
}

pub fn upload(cuda: &CudaOps, shape: Shape, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let (x, dtype) = (cuda.room("upload", shape, cuda.dtype)?, cuda.dtype);
    bring(cuda, x.storage(), values, PART, dtype.bytes(), |to, part| narrow(to, part, dtype))?;
    Ok(x)
}

/// A tensor that is being copied to the host.
struct PendingTensor {
    parts: Vec<Pinned>,
    dtype: DType,
    count: usize,
    guard: Guard,
}

impl PendingDownload for PendingTensor {
    fn wait(self: Box<Self>, into: &mut Vec<f32>) -> Result<()> {
        into.resize(self.count, 0.0);
        arrive(&self.parts, into, PART, |to, part| widen(to, part, self.dtype))?;
        self.guard.check()
    }
}

/// The tensor in device memory, prefetched if it is offloaded.
pub fn on_device(cuda: &CudaOps, x: &Tensor) -> Result<Tensor> {
    if x.is_on::<Offloaded>() { offloaded::prefetch(cuda, x) } else { Ok(x.clone()) }
}

pub fn start_download(cuda: &CudaOps, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
    let (x, dtype) = (on_device(cuda, x)?, x.dtype());
    let (guard, part) = (Guard::new(cuda, dtype)?, PART * dtype.bytes());
    let parts = leave(cuda, x.storage(), ptr(&x), x.bytes(), part)?;
    Ok(Box::new(PendingTensor { parts, dtype, count: x.count(), guard }))
}

/// Rounds host values to the device's type.
fn narrow(to: &mut [u8], values: &[f32], dtype: DType) {
    match dtype {
        DType::F32 => <f32 as Element>::round(bytemuck::cast_slice_mut(to), values),
        DType::F16 => f16::round(bytemuck::cast_slice_mut(to), values),
        DType::Bf16 => bf16::round(bytemuck::cast_slice_mut(to), values),
    }
}

/// Converts values of the device's type to f32.
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
    fn rounded_values_survive_a_round_trip() {
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
