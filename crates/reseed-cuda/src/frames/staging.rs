//! Copies of frames between host and GPU through pinned memory, on the stream of the work on frames.

use std::collections::VecDeque;

use rayon::prelude::*;
use reseed_ops::{Depth, Pixels, Result};

use super::CudaFrames;
use crate::driver::Ptr;
use crate::launch::args;
use crate::ops::stride_grid;
use crate::params::long;
use crate::pinned::Pinned;
use crate::stream::{Event, Stream};

/// Bytes of a part: enough parts of a frame for the threads that copy, but few, since each takes time in the driver.
const PART: usize = 1 << 20;

/// A result on its way to the host.
pub struct Download {
    parts: Vec<Pinned>,
    depth: Depth,
    codes: usize,
}

impl CudaFrames {
    /// Queues a copy from the host, which has read `bytes` when it returns. Returns its pinned memory.
    pub(super) fn upload(&self, to: Ptr, bytes: &[u8]) -> Result<Vec<Pinned>> {
        let pin = |part: &[u8]| {
            let mut pinned = Pinned::new(&self.memory, part.len())?;
            pinned.bytes_mut()?; // wait here, not on a shared thread
            Ok(pinned)
        };
        let mut parts = bytes.chunks(PART).map(pin).collect::<Result<Vec<Pinned>>>()?;
        let fill = |(pinned, part): (&mut Pinned, &[u8])| pinned.bytes_mut().map(|to| to.copy_from_slice(part));
        parts.par_iter_mut().zip(bytes.par_chunks(PART)).try_for_each(fill)?;
        for (i, pinned) in parts.iter().enumerate() {
            // SAFETY: callers pass the place of a buffer for `bytes`; `used_by` keeps the pinned bytes unchanged.
            unsafe { self.driver.upload(Stream::Frames, to.plus(i * PART), pinned.as_ptr(), pinned.len()) }?;
            pinned.used_by(Event::record(&self.driver, Stream::Frames)?);
        }
        Ok(parts)
    }

    /// Queues the conversion of a frame to codes and their copy to the host.
    pub(super) fn download(&self, frame: usize) -> Result<Download> {
        let (count, depth, codes) = (self.count(), self.spec.depth, self.codes());
        let name = format!("download_pixels_{}_f32", self.code_type());
        let grid = stride_grid(count.div_ceil(4));
        // SAFETY: arguments follow kernels/pixels.cu in order and type; the layout has room for the codes of a frame.
        unsafe { self.launch(&name, grid, args![codes, self.content(frame), long(count)]) }?;
        let bytes = count * depth.bytes();
        let part = |start: usize| {
            let pinned = Pinned::new(&self.memory, PART.min(bytes - start))?;
            pinned.last().map_or(Ok(()), |copy| copy.block(Stream::Frames))?;
            // SAFETY: the codes end at `bytes`; the next kernel that writes them comes later on the same stream.
            unsafe { self.driver.download(Stream::Frames, pinned.as_ptr(), codes.plus(start), pinned.len()) }?;
            pinned.used_by(Event::record(&self.driver, Stream::Frames)?);
            Ok(pinned)
        };
        let parts = (0..bytes).step_by(PART).map(part).collect::<Result<_>>()?;
        Ok(Download { parts, depth, codes: count })
    }

    /// Takes the first downloads until `left` are left.
    pub(super) fn receive<'a>(
        &self,
        downloads: &mut VecDeque<Download>,
        left: usize,
        results: &mut impl Iterator<Item = &'a mut Pixels>,
    ) -> Result<()> {
        while downloads.len() > left {
            let (Some(download), Some(result)) = (downloads.pop_front(), results.next()) else { return Ok(()) };
            let Download { parts, depth, codes } = download;
            result.reset(depth, codes);
            parts.iter().try_for_each(|pinned| pinned.bytes().map(drop))?;
            let copy = |(to, pinned): (&mut [u8], &Pinned)| pinned.bytes().map(|from| to.copy_from_slice(from));
            result.bytes_mut().par_chunks_mut(PART).zip(&parts).try_for_each(copy)?;
        }
        Ok(())
    }
}
