//! Upload and download of tensors. Values are f32 on the host and rounded here in parts, by several threads, since one
//! is slower than the bus; a part is copied while others are rounded.

use std::sync::{Arc, mpsc};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::{DType, Error, PendingDownload, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::ptr;
use super::offloaded::{self, Offloaded};
use super::weights::Element;
use crate::device_memory::ArenaBuffer;
use crate::driver::{Driver, Ptr};
use crate::pinned::Pinned;
use crate::stream::Stream;

/// Values of a part.
const PART: usize = 1 << 18;

/// Uploads to a buffer in parts: `fill` makes `size` bytes of each value, and a part is copied while others are filled.
/// The calling thread fills the first part, since waking a sleeping thread takes as long.
pub fn upload_parts<T: Sync>(
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
            pinned.bytes_mut()?; // wait here, not on a shared thread
            scope.spawn(move |_| {
                let done = pinned.bytes_mut().map(|bytes| fill(bytes, values));
                // The receiver is dropped where another part has failed.
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

/// Queues the copies of `bytes` bytes of a buffer from `at` on to the host, in parts.
pub fn download_parts(cuda: &CudaOps, buffer: &ArenaBuffer, at: Ptr, bytes: usize, part: usize) -> Result<Vec<Pinned>> {
    let parts = (0..bytes).step_by(part).map(|start| {
        // SAFETY: callers pass a range of the buffer; `read_by` keeps its memory until the copy has ended.
        let (pinned, copy) =
            unsafe { cuda.memory.download(Stream::Download, at.plus(start), part.min(bytes - start)) }?;
        buffer.read_by(copy);
        Ok(pinned)
    });
    parts.collect()
}

/// Converts downloaded parts of `part` values each; while one is converted, the next may still be copied. The calling
/// thread converts the last part.
pub fn receive_parts<T: Send>(
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

/// Detects values outside the range of f16: downloads the flag that group statistics set when they are not finite.
pub struct Guard {
    overflow: Option<Overflow>,
    dtype: DType,
}

struct Overflow {
    flag: Ptr,
    copy: Pinned,
    driver: Arc<Driver>,
}

impl Guard {
    /// Queues the copy of the flag, where the type needs it.
    pub fn new(cuda: &CudaOps, dtype: DType) -> Result<Guard> {
        let overflow = || {
            let flag = cuda.driver.global("not_finite")?;
            // SAFETY: the flag is one integer, and lives as long as the module.
            let (copy, _) = unsafe { cuda.memory.download(Stream::Download, flag, size_of::<i32>()) }?;
            Ok(Overflow { flag, copy, driver: cuda.driver.clone() })
        };
        Ok(Guard { overflow: (dtype == DType::F16).then(overflow).transpose()?, dtype })
    }

    /// Returns an error where the flag is set. The flag is cleared for what is computed next; what was started before
    /// is waited for, because it may set the flag again.
    pub fn check(&self) -> Result<()> {
        let Some(Overflow { flag, copy, driver }) = &self.overflow else { return Ok(()) };
        if copy.bytes()?.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        driver.synchronize_all()?;
        // SAFETY: the flag is one integer, and lives as long as the module that the driver holds.
        unsafe { driver.clear(Stream::Compute, *flag, size_of::<i32>()) }?;
        Err(Error::OutOfRange { dtype: self.dtype })
    }
}

pub fn upload(cuda: &CudaOps, shape: Shape, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let (x, dtype) = (cuda.empty("upload", shape, cuda.dtype)?, cuda.dtype);
    upload_parts(cuda, x.storage(), values, PART, dtype.bytes(), |to, part| narrow(to, part, dtype))?;
    Ok(x)
}

/// A tensor that is being downloaded.
struct Sent {
    parts: Vec<Pinned>,
    dtype: DType,
    count: usize,
    guard: Guard,
}

impl PendingDownload for Sent {
    fn wait(self: Box<Self>, into: &mut Vec<f32>) -> Result<()> {
        into.resize(self.count, 0.0);
        receive_parts(&self.parts, into, PART, |to, part| widen(to, part, self.dtype))?;
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
    let parts = download_parts(cuda, x.storage(), ptr(&x), x.bytes(), part)?;
    Ok(Box::new(Sent { parts, dtype, count: x.count(), guard }))
}

/// Rounds host values to the device's type.
fn narrow(to: &mut [u8], values: &[f32], dtype: DType) {
    match dtype {
        DType::F32 => <f32 as Element>::round(bytemuck::cast_slice_mut(to), values),
        DType::F16 => f16::round(bytemuck::cast_slice_mut(to), values),
        DType::Bf16 => bf16::round(bytemuck::cast_slice_mut(to), values),
    }
}

/// Converts device values to f32.
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
    fn rounded_values_come_back() {
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
