//! Tensors on their way between host and card. The host computes in f32; values are rounded here, part by part and on several
//! threads, since one cannot keep up with the bus, and a part travels while others are rounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

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
const PART: usize = 1 << 19;

/// Runs `work` on items from several threads, each taking the next one, and hands what comes of them to `then` here, as it
/// comes.
fn share<I: Send, O: Send>(
    items: impl ExactSizeIterator<Item = I>,
    work: impl Fn(I) -> Result<O> + Sync,
    mut then: impl FnMut(O) -> Result<()>,
) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8).min(items.len());
    if threads < 2 {
        return items.into_iter().try_for_each(|item| then(work(item)?));
    }
    let items: Vec<Mutex<Option<I>>> = items.map(|item| Mutex::new(Some(item))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads {
            let (sender, items, next, work) = (sender.clone(), &items, &next, &work);
            scope.spawn(move || {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let item = item.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if item.is_some_and(|item| sender.send(work(item)).is_err()) {
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().try_for_each(|result| then(result?))
    })
}

pub fn upload(cuda: &CudaOps, shape: Shape, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let (x, size) = (cuda.room("upload", shape, cuda.dtype)?, cuda.dtype.bytes());
    let round = |(i, part): (usize, &[f32])| {
        let mut pinned = Pinned::new(&cuda.store, part.len() * size)?;
        narrow(pinned.bytes_mut()?, part, cuda.dtype);
        Ok((i, pinned))
    };
    share(values.chunks(PART).enumerate(), round, |(i, pinned)| {
        cuda.store.bring(x.storage(), i * PART * size, &pinned, 0, pinned.len())
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
        let work = |(to, part): (&mut [f32], &Pinned)| {
            widen(to, part.bytes()?, self.dtype);
            Ok(())
        };
        share(into.chunks_mut(PART).zip(&self.parts), work, Ok)?;
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

    #[test]
    fn every_part_is_worked_on_once_and_an_error_ends_it() {
        let mut seen = vec![0; 100];
        let count = |i: usize| {
            seen[i] += 1;
            Ok(())
        };
        share(0..100, Ok, count).unwrap();
        assert!(seen.iter().all(|&times| times == 1));
        let refused = |i| if i == 7 { Err(Error::OutOfRange { dtype: DType::F16 }) } else { Ok(i) };
        assert!(share(0..100, refused, |_| Ok(())).is_err());
    }
}
