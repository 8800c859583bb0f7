//! Tensors on their way between host and card. The host computes in f32; values are rounded here, part by part and on several
//! threads, since one cannot keep up with the bus, and a part travels while others are rounded.

use std::sync::mpsc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::{DType, Error, PendingDownload, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::ptr;
use super::offloaded::{self, Offloaded};
use super::weights::Element;
use crate::device_memory::ArenaBuffer;
use crate::driver::Ptr;
use crate::pinned::Pinned;
use crate::stream::Stream;

/// Values of a part.
const PART: usize = 1 << 18;

/// Fills lent memory part by part: `fill` makes `size` bytes of each value, and a part travels while others are made. The first
/// is made here, since threads that sleep take as long to wake.
pub fn bring<T: Sync>(
    cuda: &CudaOps,
    to: &ArenaBuffer,
    values: &[T],
    part: usize,
    size: usize,
    fill: impl Fn(&mut [u8], &[T]) + Sync,
) -> Result<()> {
    let (fill, mut parts) = (&fill, values.chunks(part).enumerate());
    let send = |i: usize, pinned: &Pinned| cuda.memory.upload(to, i * part * size, pinned, 0, pinned.len());
    let Some((_, first)) = parts.next() else { return Ok(()) };
    rayon::in_place_scope(|scope| {
        let (sender, filled) = mpsc::channel();
        for (i, values) in parts {
            let (mut pinned, sender) = (Pinned::new(&cuda.memory, values.len() * size)?, sender.clone());
            pinned.bytes_mut()?; // threads that are shared wait for no copy
            scope.spawn(move |_| {
                let done = pinned.bytes_mut().map(|bytes| fill(bytes, values));
                // Nobody listens any more where another part has failed.
                let _ = sender.send(done.map(|()| (i, pinned)));
            });
        }
        drop(sender);
        let mut pinned = Pinned::new(&cuda.memory, first.len() * size)?;
        fill(pinned.bytes_mut()?, first);
        send(0, &pinned)?;
        filled.into_iter().try_for_each(|filled| filled.and_then(|(i, pinned)| send(i, &pinned)))
    })
}

/// Queues the copy of `bytes` bytes of lent memory from `at` on to the host, part by part.
pub fn leave(cuda: &CudaOps, lent: &ArenaBuffer, at: Ptr, bytes: usize, part: usize) -> Result<Vec<Pinned>> {
    let parts = (0..bytes).step_by(part).map(|start| {
        // SAFETY: a part of the owner's own bytes.
        let (pinned, copy) =
            unsafe { cuda.memory.download(Stream::Download, at.plus(start), part.min(bytes - start)) }?;
        lent.read_by(copy);
        Ok(pinned)
    });
    parts.collect()
}

/// Takes what has come to the host, `part` values at a time; while one part is taken, the next may still come. The last is taken
/// here.
pub fn arrive<T: Send>(
    parts: &[Pinned],
    into: &mut [T],
    part: usize,
    take: impl Fn(&mut [T], &[u8]) + Sync,
) -> Result<()> {
    let take = &take;
    rayon::in_place_scope(|scope| {
        for (i, (to, from)) in into.chunks_mut(part).zip(parts).enumerate() {
            let bytes = from.bytes()?;
            match i + 1 < parts.len() {
                true => scope.spawn(move |_| take(to, bytes)),
                false => take(to, bytes),
            }
        }
        Ok(())
    })
}

/// Where the type has a narrow range: whether statistics have left it before, as one integer on its way to the host.
pub struct Guard {
    overflow: Option<Pinned>,
    dtype: DType,
}

impl Guard {
    /// Queues the copy of the mark that group statistics leave when they are not finite.
    pub fn new(cuda: &CudaOps, dtype: DType) -> Result<Guard> {
        let mark = || {
            let mark = cuda.driver.global("not_finite")?;
            // SAFETY: the mark is one integer.
            Ok(unsafe { cuda.memory.download(Stream::Download, mark, size_of::<i32>()) }?.0)
        };
        Ok(Guard { overflow: (dtype == DType::F16).then(mark).transpose()?, dtype })
    }

    /// An error where they have.
    pub fn check(&self) -> Result<()> {
        match &self.overflow {
            Some(mark) if mark.bytes()?.iter().any(|&byte| byte != 0) => Err(Error::OutOfRange { dtype: self.dtype }),
            _ => Ok(()),
        }
    }
}

pub fn upload(cuda: &CudaOps, shape: Shape, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let (x, dtype) = (cuda.empty("upload", shape, cuda.dtype)?, cuda.dtype);
    bring(cuda, x.storage(), values, PART, dtype.bytes(), |to, part| narrow(to, part, dtype))?;
    Ok(x)
}

/// A tensor on its way to the host.
struct Sent {
    parts: Vec<Pinned>,
    dtype: DType,
    count: usize,
    guard: Guard,
}

impl PendingDownload for Sent {
    fn wait(self: Box<Self>, into: &mut Vec<f32>) -> Result<()> {
        into.resize(self.count, 0.0);
        arrive(&self.parts, into, PART, |to, part| widen(to, part, self.dtype))?;
        self.guard.check()
    }
}

/// The tensor on the card, brought there if it is offloaded.
pub fn here(cuda: &CudaOps, x: &Tensor) -> Result<Tensor> {
    if x.is_on::<Offloaded>() { offloaded::prefetch(cuda, x) } else { Ok(x.clone()) }
}

pub fn start_download(cuda: &CudaOps, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
    let (x, dtype) = (here(cuda, x)?, x.dtype());
    let (guard, part) = (Guard::new(cuda, dtype)?, PART * dtype.bytes());
    let parts = leave(cuda, x.storage(), ptr(&x), x.bytes(), part)?;
    Ok(Box::new(Sent { parts, dtype, count: x.count(), guard }))
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
