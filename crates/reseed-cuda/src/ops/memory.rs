//! Tensors in device memory.

use std::sync::Arc;

use reseed_ops::{DType, Error, Result, Shape, Tensor};

use super::CudaOps;
use crate::driver::Ptr;
use crate::event::Lane;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::store::{ArenaBuffer, Memory};

impl CudaOps {
    /// A tensor whose every element is yet to be written.
    pub fn room(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        self.room_on(Lane::Compute, op, shape, dtype)
    }

    /// The same where `lane` writes first.
    pub fn room_on(&self, lane: Lane, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        Ok(Tensor::new(shape, dtype, Arc::new(self.lend(lane, op, shape, shape.count() * dtype.bytes())?)))
    }

    /// Memory that goes back when the op has queued its work.
    pub fn scratch(&self, op: &'static str, count: usize, dtype: DType) -> Result<ArenaBuffer> {
        self.lend(Lane::Compute, op, Shape::from([count]), count * dtype.bytes())
    }

    /// Bytes for something of this shape that `lane` writes first.
    pub fn lend(&self, lane: Lane, op: &'static str, shape: Shape, bytes: usize) -> Result<ArenaBuffer> {
        self.store.take(bytes, lane)?.ok_or_else(|| self.out_of_memory(op, shape, bytes))
    }

    fn out_of_memory(&self, op: &'static str, shape: Shape, bytes: usize) -> Error {
        Error::OutOfMemory { op, device: self.driver.label.clone(), shape, bytes }
    }

    /// Brings weights onto the device, for as long as their layer lives.
    pub fn keep<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Memory> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let memory = self.keep_room(bytes.len())?;
        // SAFETY: the memory was just made for these bytes.
        unsafe { self.driver.copy_in(memory.ptr(), bytes) }?;
        Ok(memory)
    }

    /// Memory beside that of tensors, with anything in it.
    pub fn keep_room(&self, bytes: usize) -> Result<Memory> {
        self.store.keep(bytes)?.ok_or_else(|| self.out_of_memory("load", Shape::from([bytes]), bytes))
    }

    /// Whether nobody else holds the memory of `x`. Kernels queued from now on may overwrite it then.
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
        let copy = self.room(op, x.shape(), x.dtype())?;
        // SAFETY: the copy was just made with the size of `x`.
        unsafe { self.driver.copy(Lane::Compute, ptr(&copy), ptr(&x), x.bytes()) }?;
        Ok(copy)
    }
}

/// The first element of a tensor.
pub fn ptr(x: &Tensor) -> Ptr {
    x.storage::<ArenaBuffer>().ptr().plus(x.offset() * x.dtype().bytes())
}

/// Blocks of a kernel that strides over `count` values.
pub fn stride_grid(count: usize) -> Grid {
    Grid::new([count.div_ceil(1024).min(4096), 1, 1], 256)
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
