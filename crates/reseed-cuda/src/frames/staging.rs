//! Copies of frames between host and GPU through pinned memory, on the stream of the work on frames.

use std::collections::VecDeque;

use rayon::prelude::*;
use reseed_ops::{Result, SampleType};

use super::CudaFrames;
use super::alpha::AlphaFilter;
use crate::driver::Ptr;
use crate::launch::args;
use crate::ops::{CudaOps, stride_grid};
use crate::params::long;
use crate::pinned::Pinned;
use crate::stream::{Event, Stream};

/// Bytes that a thread copies at a time.
const PART: usize = 1 << 18;

/// Queues a copy to the host.
///
/// # Safety
/// `from` holds these bytes, and what writes them later is queued on the same stream.
pub unsafe fn download(cuda: &CudaOps, from: Ptr, bytes: usize) -> Result<Pinned> {
    let pinned = Pinned::new(cuda.device_memory(), bytes)?;
    pinned.last().map_or(Ok(()), |copy| copy.block(Stream::Frames))?;
    // SAFETY: the caller's promise; `used_by` keeps the pinned bytes until they are read.
    unsafe { cuda.driver().download(Stream::Frames, pinned.as_ptr(), from, bytes) }?;
    pinned.used_by(Event::record(cuda.driver(), Stream::Frames)?);
    Ok(pinned)
}

/// Waits for downloaded bytes and copies them.
pub fn receive(pinned: &Pinned, to: &mut [u8]) -> Result<()> {
    let from = pinned.bytes()?;
    to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
    Ok(())
}

/// Takes the first downloads, each with the index of its place, until `left` are left.
pub fn receive_until(left: usize, downloads: &mut VecDeque<(usize, Pinned)>, to: &mut [&mut [u8]]) -> Result<()> {
    while downloads.len() > left {
        let Some((index, pinned)) = downloads.pop_front() else { break };
        receive(&pinned, to[index])?;
    }
    Ok(())
}

impl CudaFrames {
    /// Queues a copy from the host, which has read `bytes` when it returns. Returns its pinned memory.
    pub(super) fn upload(&self, to: Ptr, bytes: &[u8]) -> Result<Pinned> {
        let (driver, mut pinned) = (self.cuda.driver(), Pinned::new(self.cuda.device_memory(), bytes.len())?);
        let parts = pinned.bytes_mut()?.par_chunks_mut(PART).zip(bytes.par_chunks(PART));
        parts.for_each(|(to, from)| to.copy_from_slice(from));
        // SAFETY: callers pass the place of a buffer for `bytes`; `used_by` keeps the pinned bytes unchanged.
        unsafe { driver.upload(Stream::Frames, to, pinned.as_ptr(), bytes.len()) }?;
        pinned.used_by(Event::record(driver, Stream::Frames)?);
        Ok(pinned)
    }

    /// Queues the conversion of a frame to samples.
    pub(super) fn convert(&self, frame: usize) -> Result<()> {
        let count = self.count();
        let (name, each) = match self.spec.samples {
            SampleType::U8 => ("download_pixels_u8_f32", 4),
            SampleType::U16 => ("download_pixels_u16_f32", 4),
            SampleType::F32 => ("finish_f32", 1),
        };
        let grid = stride_grid(count.div_ceil(each));
        // SAFETY: arguments follow kernels/pixels.cu and kernels/frames.cu in order and type; the layout has room for
        // the samples of a frame.
        unsafe { self.launch(name, grid, args![self.samples(), self.content(frame), long(count)]) }
    }

    /// Queues the conversion of a frame to samples and their copy to the host.
    pub(super) fn download(&self, frame: usize) -> Result<Pinned> {
        self.convert(frame)?;
        // SAFETY: the layout has room for the samples of a frame; the next kernel that writes them is queued later on
        // the same stream.
        unsafe { download(&self.cuda, self.samples(), self.count() * self.spec.samples.bytes()) }
    }

    /// Queues the copy of a result of alpha to the host.
    pub(super) fn download_alpha(&self, filter: &AlphaFilter) -> Result<Pinned> {
        let bytes = self.spec.output.count() * self.spec.samples.bytes();
        // SAFETY: the filter has memory for the samples of a frame; later writers are queued on the same stream.
        unsafe { download(&self.cuda, filter.samples(), bytes) }
    }
}
