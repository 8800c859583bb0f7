//! Tensors in device memory.

use std::sync::Arc;

use reseed_ops::{DType, Error, Result, Shape, Tensor};

use super::CudaOps;
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::stream::Stream;

impl CudaOps {
    /// A tensor with undefined contents.
    pub fn empty(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        self.empty_on(Stream::Compute, op, shape, dtype)
    }

    /// A tensor with undefined contents, which `stream` writes first.
    pub fn empty_on(&self, stream: Stream, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        Ok(Tensor::new(shape, dtype, Arc::new(self.buffer(stream, op, shape, shape.count() * dtype.bytes())?)))
    }

    /// Memory that is freed when the op has queued its work.
    pub fn scratch(&self, op: &'static str, count: usize, dtype: DType) -> Result<ArenaBuffer> {
        self.buffer(Stream::Compute, op, Shape::from([count]), count * dtype.bytes())
    }

    /// Memory for a tensor of this shape, which `stream` writes first.
    pub fn buffer(&self, stream: Stream, op: &'static str, shape: Shape, bytes: usize) -> Result<ArenaBuffer> {
        self.memory.allocate(bytes, stream)?.ok_or_else(|| self.out_of_memory(op, shape, bytes))
    }

    fn out_of_memory(&self, op: &'static str, shape: Shape, bytes: usize) -> Error {
        Error::OutOfMemory { op, device: self.driver.label.clone(), shape, bytes }
    }

    /// Uploads weights to memory of their own.
    pub fn upload_weights<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Allocation> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = self.allocate_weights(bytes.len())?;
        // SAFETY: the memory was allocated with this size.
        unsafe { self.driver.copy_in(memory.ptr(), bytes) }?;
        Ok(memory)
    }

    /// Memory that tensors do not share, with undefined contents.
    pub fn allocate_weights(&self, bytes: usize) -> Result<Allocation> {
        self.memory.allocate_alone(bytes)?.ok_or_else(|| self.out_of_memory("load", Shape::from([bytes]), bytes))
    }

    /// Whether `x` is the only owner of its memory. Kernels that are queued from now on may overwrite it then.
    pub fn is_writable(&self, x: &mut Tensor) -> Result<bool> {
        let unique = x.is_unique();
        if unique {
            x.storage::<ArenaBuffer>().wait_for_readers()?;
        }
        Ok(unique)
    }

    /// `x` itself when its memory may be overwritten, else a copy.
    pub fn writable(&self, op: &'static str, mut x: Tensor) -> Result<Tensor> {
        if self.is_writable(&mut x)? {
            return Ok(x);
        }
        let copy = self.empty(op, x.shape(), x.dtype())?;
        // SAFETY: the copy was allocated with the size of `x`.
        unsafe { self.driver.copy(Stream::Compute, ptr(&copy), ptr(&x), x.bytes()) }?;
        Ok(copy)
    }
}

/// Address of the first element of a tensor.
pub fn ptr(x: &Tensor) -> Ptr {
    x.storage::<ArenaBuffer>().ptr().plus(x.offset() * x.dtype().bytes())
}

/// Grid of a kernel that computes a row per warp.
pub fn rows_grid(rows: usize) -> Grid {
    const WARPS: usize = 8;
    Grid::new([rows.div_ceil(WARPS), 1, 1], 32 * WARPS)
}

/// Grid of a kernel whose blocks stride over the `count` values of one of `rows` rows.
pub fn row_grid(rows: usize, count: usize) -> Grid {
    Grid::new([count.div_ceil(256).min(64), rows, 1], 256)
}

/// Grid of a kernel whose threads stride over `count` values.
pub fn stride_grid(count: usize) -> Grid {
    Grid::new([count.div_ceil(1024).min(4096), 1, 1], 256)
}

impl CudaOps {
    /// `x` with zero channels appended, so that kernels can read eight at a time.
    pub fn padded(&self, x: &Tensor, channels: usize) -> Result<Tensor> {
        let y = self.empty("conv", Shape::clip(x.thw(), channels), x.dtype())?;
        let kernel = format!("pad_channels_{}", x.dtype());
        let (from, to) = (int(x.channels()), int(channels));
        // SAFETY: arguments follow kernels/pad_channels.cu in order and type; y holds as many pixels as x.
        unsafe {
            self.driver.launch(&kernel, stride_grid(y.count()), args![ptr(&y), ptr(x), long(x.rows()), from, to])
        }?;
        Ok(y)
    }
}
