//! Tensors in device memory, and their way in and out.

use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::{DType, Error, Incoming, Result, Shape, Tensor};

use super::CudaOps;
use super::parked::{self, Parked};
use super::weights::Element;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::pinned::Pinned;
use crate::store::{Lent, Memory};

impl CudaOps {
    /// A tensor whose every element is yet to be written.
    pub fn room(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        Ok(Tensor::new(shape, dtype, Arc::new(self.lend(op, shape, shape.count() * dtype.bytes())?)))
    }

    /// Memory that goes back when the op has queued its work.
    pub fn scratch(&self, op: &'static str, count: usize, dtype: DType) -> Result<Lent> {
        self.lend(op, Shape::from([count]), count * dtype.bytes())
    }

    /// Bytes for something of this shape.
    pub fn lend(&self, op: &'static str, shape: Shape, bytes: usize) -> Result<Lent> {
        self.store.take(bytes)?.ok_or_else(|| self.out_of_memory(op, shape, bytes))
    }

    fn out_of_memory(&self, op: &'static str, shape: Shape, bytes: usize) -> Error {
        Error::OutOfMemory { op, device: self.driver.label.clone(), shape, bytes }
    }

    /// Brings weights onto the device, for as long as their layer lives.
    pub fn keep<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Memory> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let refused = || self.out_of_memory("load", Shape::from([values.len()]), bytes.len());
        let memory = self.store.keep(bytes.len())?.ok_or_else(refused)?;
        // SAFETY: the memory was just made for these bytes.
        unsafe { self.driver.copy_in(memory.ptr(), bytes) }?;
        Ok(memory)
    }

    /// `x` itself when its memory may be overwritten, else a copy.
    pub fn writable(&self, op: &'static str, mut x: Tensor) -> Result<Tensor> {
        if x.is_unique() {
            return Ok(x);
        }
        let copy = self.room(op, x.shape(), x.dtype())?;
        // SAFETY: the copy was just made with the size of `x`.
        unsafe { self.driver.copy(ptr(&copy), ptr(&x), x.bytes()) }?;
        Ok(copy)
    }
}

/// The first element of a tensor.
pub fn ptr(x: &Tensor) -> Ptr {
    x.storage::<Lent>().ptr().plus(x.offset() * x.dtype().bytes())
}

/// Blocks of a kernel that strides over `count` values.
pub fn stride_grid(count: usize) -> Grid {
    Grid::new([count.div_ceil(1024).min(4096), 1, 1], 256)
}

pub fn upload(cuda: &CudaOps, shape: Shape, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let x = cuda.room("upload", shape, cuda.dtype)?;
    let mut pinned = Pinned::new(&cuda.store, x.bytes())?;
    narrow(pinned.bytes_mut()?, values, cuda.dtype);
    cuda.store.bring(x.storage(), 0, &pinned, 0, x.bytes())?;
    Ok(x)
}

/// Queues the copy of a tensor to the host.
fn leave(cuda: &CudaOps, x: &Tensor) -> Result<Pinned> {
    // SAFETY: the tensor's own bytes.
    let (pinned, copy) = unsafe { cuda.store.leave(ptr(x), x.bytes()) }?;
    x.storage::<Lent>().read_by(copy);
    Ok(pinned)
}

/// A tensor on its way to the host.
struct Sent {
    pinned: Pinned,
    dtype: DType,
    count: usize,
    /// Where the type has a narrow range: whether statistics have left it before, as one integer.
    overflow: Option<Pinned>,
}

impl Incoming for Sent {
    fn wait(self: Box<Self>, into: &mut Vec<f32>) -> Result<()> {
        if let Some(overflow) = &self.overflow
            && overflow.bytes()?.iter().any(|&byte| byte != 0)
        {
            return Err(Error::OutOfRange { dtype: self.dtype });
        }
        into.resize(self.count, 0.0);
        widen(into, self.pinned.bytes()?, self.dtype);
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
    Ok(Box::new(Sent { pinned: leave(cuda, &x)?, dtype: x.dtype(), count: x.count(), overflow }))
}

/// Values that a thread converts at a time.
const PART: usize = 1 << 18;

/// Runs `convert` over parts of both on several threads: one cannot keep up with the bus.
fn spread<A: Send, B: Sync>(to: &mut [A], from: &[B], convert: impl Fn(&mut [A], &[B]) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let part = from.len().div_ceil(threads).max(PART);
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
            let convert = &convert;
            scope.spawn(move || convert(to, from));
        }
    });
}

/// Host values as the device stores them.
fn narrow(to: &mut [u8], values: &[f32], dtype: DType) {
    match dtype {
        DType::F32 => spread(to_typed::<f32>(to), values, <f32 as Element>::round),
        DType::F16 => spread(to_typed::<f16>(to), values, <f16 as Element>::round),
        DType::Bf16 => spread(to_typed::<bf16>(to), values, <bf16 as Element>::round),
    }
}

fn to_typed<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

/// The other way.
fn widen(to: &mut [f32], bytes: &[u8], dtype: DType) {
    match dtype {
        DType::F32 => spread(to, bytemuck::cast_slice::<u8, f32>(bytes), <[f32]>::copy_from_slice),
        DType::F16 => spread(to, bytemuck::cast_slice::<u8, f16>(bytes), |to, from| from.convert_to_f32_slice(to)),
        DType::Bf16 => spread(to, bytemuck::cast_slice::<u8, bf16>(bytes), |to, from| from.convert_to_f32_slice(to)),
    }
}

impl CudaOps {
    /// `x` with zero channels behind its own, so that kernels can read eight at a time.
    pub fn padded(&self, x: &Tensor, channels: usize) -> Result<Tensor> {
        let y = self.room("conv", Shape::clip(x.thw(), channels), x.dtype())?;
        let kernel = format!("pad_channels_{}", x.dtype());
        let (from, to) = (int(x.channels()), int(channels));
        // SAFETY: arguments follow kernels/small.cu in order and type; y holds as many pixels as x.
        unsafe {
            self.driver.launch(&kernel, stride_grid(y.count()), args![ptr(&y), ptr(x), long(x.rows()), from, to])
        }?;
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_converted_once() {
        for count in [0, 1, PART - 1, 3 * PART + 5] {
            let values: Vec<f32> = (0..count).map(|i| (i % 2048) as f32 - 1024.0).collect();
            for dtype in [DType::F32, DType::F16] {
                let mut aligned = vec![0u64; count.div_ceil(2)];
                let stored = &mut bytemuck::cast_slice_mut(&mut aligned)[..count * dtype.bytes()];
                narrow(stored, &values, dtype);
                let mut back = vec![0.0; count];
                widen(&mut back, stored, dtype);
                assert!(back == values, "{count} values of {dtype}");
            }
        }
    }
}
