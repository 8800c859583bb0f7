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

/// Bytes of a part: enough parts of a frame for the threads that copy, but few, since each takes time in the driver.
const PART: usize = 1 << 20;

/// Queues copies to the host, in parts.
///
/// # Safety
/// `from` holds these bytes, and what writes them later is queued on the same stream.
pub unsafe fn download(cuda: &CudaOps, from: Ptr, bytes: usize) -> Result<Vec<Pinned>> {
    let part = |start: usize| {
        let pinned = Pinned::new(cuda.device_memory(), PART.min(bytes - start))?;
        pinned.last().map_or(Ok(()), |copy| copy.block(Stream::Frames))?;
        // SAFETY: the caller's promise; `used_by` keeps the pinned bytes until they are read.
        unsafe { cuda.driver().download(Stream::Frames, pinned.as_ptr(), from.plus(start), pinned.len()) }?;
        pinned.used_by(Event::record(cuda.driver(), Stream::Frames)?);
        Ok(pinned)
    };
    (0..bytes).step_by(PART).map(part).collect()
}

/// Waits for downloaded parts and copies them.
pub fn receive(parts: &[Pinned], to: &mut [u8]) -> Result<()> {
    parts.iter().try_for_each(|pinned| pinned.bytes().map(drop))?; // wait here, not on a shared thread
    let copy = |(to, pinned): (&mut [u8], &Pinned)| pinned.bytes().map(|from| to.copy_from_slice(from));
    to.par_chunks_mut(PART).zip(parts).try_for_each(copy)
}

/// Takes the first downloads, each with the index of its place, until `left` are left.
pub fn receive_until(left: usize, downloads: &mut VecDeque<(usize, Vec<Pinned>)>, to: &mut [&mut [u8]]) -> Result<()> {
    while downloads.len() > left {
        let Some((index, parts)) = downloads.pop_front() else { break };
        receive(&parts, to[index])?;
    }
    Ok(())
}

impl CudaFrames {
    /// Queues a copy from the host, which has read `bytes` when it returns. Returns its pinned memory.
    pub(super) fn upload(&self, to: Ptr, bytes: &[u8]) -> Result<Vec<Pinned>> {
        let pin = |part: &[u8]| {
            let mut pinned = Pinned::new(self.cuda.device_memory(), part.len())?;
            pinned.bytes_mut()?; // wait here, not on a shared thread
            Ok(pinned)
        };
        let mut parts = bytes.chunks(PART).map(pin).collect::<Result<Vec<Pinned>>>()?;
        let fill = |(pinned, part): (&mut Pinned, &[u8])| pinned.bytes_mut().map(|to| to.copy_from_slice(part));
        parts.par_iter_mut().zip(bytes.par_chunks(PART)).try_for_each(fill)?;
        let driver = self.cuda.driver();
        for (i, pinned) in parts.iter().enumerate() {
            // SAFETY: callers pass the place of a buffer for `bytes`; `used_by` keeps the pinned bytes unchanged.
            unsafe { driver.upload(Stream::Frames, to.plus(i * PART), pinned.as_ptr(), pinned.len()) }?;
            pinned.used_by(Event::record(driver, Stream::Frames)?);
        }
        Ok(parts)
    }

    /// Queues the conversion of a frame to samples and their copy to the host.
    pub(super) fn download(&self, frame: usize) -> Result<Vec<Pinned>> {
        let (count, samples, to) = (self.count(), self.spec.samples, self.samples());
        let (name, each) = match samples {
            SampleType::U8 => ("download_pixels_u8_f32", 4),
            SampleType::U16 => ("download_pixels_u16_f32", 4),
            SampleType::F32 => ("finish_f32", 1),
        };
        let grid = stride_grid(count.div_ceil(each));
        // SAFETY: arguments follow kernels/pixels.cu and kernels/frames.cu in order and type; the layout has room for
        // the samples of a frame.
        unsafe { self.launch(name, grid, args![to, self.content(frame), long(count)]) }?;
        // SAFETY: as above; the next kernel that writes the samples is queued later on the same stream.
        unsafe { download(&self.cuda, to, count * samples.bytes()) }
    }

    /// Queues the copy of a result of alpha to the host.
    pub(super) fn download_alpha(&self, filter: &AlphaFilter) -> Result<Vec<Pinned>> {
        let bytes = self.spec.output.count() * self.spec.samples.bytes();
        // SAFETY: the filter has memory for the samples of a frame; later writers are queued on the same stream.
        unsafe { download(&self.cuda, filter.samples(), bytes) }
    }
}
