//! Tensors in device memory, and their way in and out.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use reseed_ops::{DType, Error, Result, Shape, Tensor};

use super::CudaOps;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::pool::{Lent, Memory};
use crate::staging::{Staging, spread};

/// Values that are converted at a time on their way in and out, so that this takes 32 MiB and not another tensor.
const STAGE: usize = 8 << 20;

impl CudaOps {
    /// A tensor whose every element is yet to be written.
    pub fn room(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        Ok(Tensor::new(shape, dtype, Arc::new(self.lend(op, shape, dtype)?)))
    }

    /// Memory that goes back when the op has queued its work.
    pub fn scratch(&self, op: &'static str, count: usize, dtype: DType) -> Result<Lent> {
        self.lend(op, Shape::from([count]), dtype)
    }

    fn lend(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Lent> {
        let bytes = shape.count() * dtype.bytes();
        self.memory.take(bytes)?.ok_or_else(|| self.out_of_memory(op, shape, bytes))
    }

    fn out_of_memory(&self, op: &'static str, shape: Shape, bytes: usize) -> Error {
        Error::OutOfMemory { op, device: self.driver.label.clone(), shape, bytes }
    }

    /// Brings weights onto the device, for as long as their layer lives.
    pub fn keep<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Memory> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let refused = || self.out_of_memory("load", Shape::from([values.len()]), bytes.len());
        let memory = self.memory.keep(bytes.len())?.ok_or_else(refused)?;
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
    let kernel = format!("from_f32_{}", x.dtype());
    cuda.staged(values.len(), |cuda, stage, pinned, part| {
        let bytes: &[u8] = bytemuck::cast_slice(&values[part.clone()]);
        spread(&mut pinned[..bytes.len()], bytes);
        let to = ptr(&x).plus(part.start * x.dtype().bytes());
        // SAFETY: the stage holds a part, `x` all of them; `staged` waits before the pinned memory is used again.
        unsafe {
            cuda.driver.queue_in(stage, &pinned[..bytes.len()])?;
            cuda.driver.launch(&kernel, stride_grid(part.len()), args![to, stage, long(part.len())])?;
        }
        cuda.driver.synchronize()
    })?;
    Ok(x)
}

pub fn download(cuda: &CudaOps, x: &Tensor) -> Result<Vec<f32>> {
    let mut values = vec![0f32; x.count()];
    let kernel = format!("to_f32_{}", x.dtype());
    cuda.staged(x.count(), |cuda, stage, pinned, part| {
        let from = ptr(x).plus(part.start * x.dtype().bytes());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values[part.clone()]);
        // SAFETY: the stage holds a part, `x` all of them; we wait before the pinned memory is read.
        unsafe {
            cuda.driver.launch(&kernel, stride_grid(part.len()), args![stage, from, long(part.len())])?;
            cuda.driver.queue_out(&mut pinned[..bytes.len()], stage)?;
        }
        cuda.driver.synchronize()?;
        spread(bytes, &pinned[..bytes.len()]);
        Ok(())
    })?;
    Ok(values)
}

impl CudaOps {
    /// Runs `pass` for every part of `count` values, with device and pinned memory for one part of f32.
    fn staged(
        &self,
        count: usize,
        mut pass: impl FnMut(&CudaOps, Ptr, &mut [u8], Range<usize>) -> Result<()>,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let stage = self.scratch("copy", STAGE.min(count), DType::F32)?;
        let mut staging = self.driver.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.is_none() {
            *staging = Some(Staging::new(&self.driver, STAGE * size_of::<f32>())?);
        }
        let pinned = staging.as_mut().expect("made above").bytes();
        for start in (0..count).step_by(STAGE) {
            pass(self, stage.ptr(), pinned, start..count.min(start + STAGE))?;
        }
        Ok(())
    }

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
