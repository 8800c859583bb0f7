//! Restored frames that stay on the GPU until they are finished.
//!
//! All work on them is queued on the stream of frames, in order, so that the memory of a frame that is dropped can be
//! written again at once.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{DeviceFrame, FrameValues, Hw, PendingDownload, Result, Tensor};

use super::staging;
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::launch::args;
use crate::ops::{CudaOps, Guard, ptr, row_grid, stride_grid};
use crate::params::{int, long};
use crate::stream::{Event, Stream};

/// Memory for frames of one size.
pub struct KeptFrames {
    cuda: Arc<CudaOps>,
    block: Allocation,
    size: Hw,
    /// Indices of frames that nobody has.
    free: Mutex<Vec<usize>>,
}

/// One of the frames.
struct KeptFrame {
    frames: Arc<KeptFrames>,
    index: usize,
}

/// Frames whose values may turn out to have left the range of their type.
struct Pending {
    frames: Vec<FrameValues>,
    guard: Guard,
}

impl KeptFrames {
    /// Bytes of `count` frames.
    pub fn bytes(count: usize, size: Hw) -> usize {
        count * 3 * size.count() * size_of::<f32>()
    }

    /// Memory for `count` frames; none where that is zero.
    pub fn new(cuda: &Arc<CudaOps>, count: usize, size: Hw) -> Result<Option<Arc<KeptFrames>>> {
        if count == 0 {
            return Ok(None);
        }
        let block = cuda.allocate_weights(KeptFrames::bytes(count, size))?;
        let free = Mutex::new((0..count).rev().collect());
        Ok(Some(Arc::new(KeptFrames { cuda: cuda.clone(), block, size, free })))
    }

    fn at(&self, index: usize) -> Ptr {
        self.block.ptr().plus(KeptFrames::bytes(index, self.size))
    }

    /// Values of a frame.
    fn count(&self) -> usize {
        3 * self.size.count()
    }

    /// Free frames, all of them or none.
    fn take(self: &Arc<Self>, count: usize) -> Option<Vec<KeptFrame>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let first = free.len().checked_sub(count)?;
        Some(free.drain(first..).map(|index| KeptFrame { frames: self.clone(), index }).collect())
    }

    /// Copies the top left of each frame of a tensor.
    pub fn keep(self: &Arc<Self>, decoded: &Tensor) -> Result<Option<Box<dyn PendingDownload<Vec<FrameValues>>>>> {
        let thw = decoded.thw();
        if !decoded.is_on::<ArenaBuffer>() {
            return Ok(None);
        }
        let Some(frames) = self.take(thw.t) else { return Ok(None) };
        let (driver, Hw { h, w }) = (self.cuda.driver(), self.size);
        assert!(h <= thw.h && w <= thw.w && decoded.channels() == 3, "{h}x{w} of {}", decoded.shape());
        let (name, first) = (format!("keep_frame_{}", decoded.dtype()), ptr(decoded));
        Event::record(driver, Stream::Compute)?.block(Stream::Frames)?;
        for (i, frame) in frames.iter().enumerate() {
            let from = first.plus(i * thw.h * thw.w * 3 * decoded.dtype().bytes());
            let (to, grid) = (frame.at(), row_grid(h, 3 * w));
            // SAFETY: arguments follow kernels/frames.cu in order and type; the tensor has at least `size`.
            unsafe { driver.launch_on(Stream::Frames, &name, grid, args![to, from, int(thw.w), int(w)]) }?;
        }
        decoded.storage::<ArenaBuffer>().read_by(Event::record(driver, Stream::Frames)?);
        let guard = Guard::new(&self.cuda, decoded.dtype())?;
        let frames = frames.into_iter().map(|frame| FrameValues::Device(Box::new(frame))).collect();
        Ok(Some(Box::new(Pending { frames, guard })))
    }
}

/// The address of the values of a kept frame. Panics where it is one of another device.
pub fn address(frame: &dyn DeviceFrame) -> Ptr {
    let frame: &dyn Any = frame;
    frame.downcast_ref::<KeptFrame>().expect("a frame of this device").at()
}

impl KeptFrame {
    fn at(&self) -> Ptr {
        self.frames.at(self.index)
    }
}

impl Drop for KeptFrame {
    fn drop(&mut self) {
        self.frames.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

impl DeviceFrame for KeptFrame {
    fn blend(&mut self, later: &dyn DeviceFrame, weight: f32) -> Result<()> {
        let (count, later) = (self.frames.count(), address(later));
        let (driver, grid) = (self.frames.cuda.driver(), stride_grid(count));
        // SAFETY: arguments follow kernels/frames.cu in order and type; both hold a frame.
        unsafe { driver.launch_on(Stream::Frames, "blend_frames", grid, args![self.at(), later, weight, long(count)]) }
    }

    fn fetch(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.frames.count()];
        // SAFETY: the memory of a frame has these bytes, and its next owner writes later on the same stream.
        let pinned = unsafe { staging::download(&self.frames.cuda, self.at(), size_of_val(&values[..])) }?;
        staging::receive(&pinned, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }
}

impl PendingDownload<Vec<FrameValues>> for Pending {
    fn wait(self: Box<Self>, into: &mut Vec<FrameValues>) -> Result<()> {
        self.guard.check()?;
        *into = self.frames;
        Ok(())
    }
}
