//! Results in memory as sinks of the engine.

use std::sync::{Arc, Mutex, PoisonError};

use half::f16;
use reseed::media::{self, Frame, Samples, Sink, Size};
use reseed::{DeviceBuffer, Gpu};

use crate::buffer::Buffer;
use crate::clip::io_error;
use crate::dtype::Dtype;
use crate::errors::{Failure, Result};
use crate::frames::Frames;
use crate::store::Store;

/// Memory of a result.
struct Memory {
    /// All frames, or the frame on its way to the GPU.
    host: Buffer,
    gpu: Option<DeviceBuffer>,
}

fn zeros(bytes: usize) -> Result<Buffer> {
    let failed = || reseed::Error::OutOfHostMemory { what: "the frames of the result", bytes };
    Ok(Buffer::zeros(bytes).ok_or_else(failed)?)
}

pub fn no_result() -> Failure {
    Failure::Failed("internal error: no result".into())
}

/// Where the frames of a result are written.
pub struct Target {
    memory: Mutex<Option<Memory>>,
    pub size: Size,
    pub channels: usize,
    pub dtype: Dtype,
    pub frames: usize,
}

impl Target {
    /// Memory for so many frames, on this GPU or on the host.
    pub fn new(size: Size, channels: usize, dtype: Dtype, frames: usize, gpu: Option<&Gpu>) -> Result<Target> {
        let bytes = size.pixels().checked_mul(channels * dtype.bytes() * frames);
        let failed = || reseed::Error::OutOfHostMemory { what: "the frames of the result", bytes: bytes.unwrap_or(0) };
        let bytes = bytes.ok_or_else(failed)?;
        let memory = match gpu {
            Some(gpu) => Memory { host: zeros(bytes / frames.max(1))?, gpu: Some(gpu.buffer(bytes)?) },
            None => Memory { host: zeros(bytes)?, gpu: None },
        };
        Ok(Target { memory: Mutex::new(Some(memory)), size, channels, dtype, frames })
    }

    /// The written memory; a target gives it away once.
    pub fn take(&self) -> Option<Store> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(memory.gpu.map_or(Store::Host(memory.host), Store::Gpu))
    }

    /// The frames as an array of four dimensions.
    pub fn into_frames(self) -> Result<Frames> {
        let store = self.take().ok_or_else(no_result)?;
        Ok(Frames::of(store, vec![self.frames, self.size.h, self.size.w, self.channels], self.dtype))
    }

    /// Writes frame `number`.
    pub fn write(&self, number: usize, frame: &Frame) -> Result<()> {
        assert!(number < self.frames && frame.size == self.size, "a frame of the result");
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        // After a job was abandoned, nobody reads its frames.
        let Some(Memory { host, gpu }) = memory.as_mut() else { return Ok(()) };
        let bytes = self.size.pixels() * self.channels * self.dtype.bytes();
        let at = if gpu.is_some() { 0 } else { number * bytes };
        let to = &mut host.as_mut_slice()[at..][..bytes];
        self.convert(frame, to);
        let written = gpu.as_ref().map_or(Ok(()), |gpu| gpu.write(number * bytes, to));
        Ok(written.map_err(reseed::Error::from)?)
    }

    /// Writes the elements of a frame.
    fn convert(&self, frame: &Frame, to: &mut [u8]) {
        let grey = (self.channels == 1).then(|| frame.samples.luma());
        let colour = grey.as_ref().unwrap_or(&frame.samples);
        let channels = self.channels.min(3);
        match (colour, &frame.alpha) {
            (Samples::U8(colour), alpha) => {
                let alpha = if let Some(Samples::U8(alpha)) = alpha { Some(&alpha[..]) } else { None };
                interleave((colour, channels), (alpha, u8::MAX), (to, self.channels), |value| [value]);
            }
            (Samples::U16(colour), alpha) => {
                let alpha = if let Some(Samples::U16(alpha)) = alpha { Some(&alpha[..]) } else { None };
                interleave((colour, channels), (alpha, u16::MAX), (to, self.channels), u16::to_ne_bytes);
            }
            (Samples::F32(colour), alpha) => {
                let alpha = if let Some(Samples::F32(alpha)) = alpha { Some(&alpha[..]) } else { None };
                match self.dtype {
                    Dtype::F16 => {
                        let half = |value| f16::from_f32(value).to_ne_bytes();
                        interleave((colour, channels), (alpha, 1.0), (to, self.channels), half);
                    }
                    _ => interleave((colour, channels), (alpha, 1.0), (to, self.channels), f32::to_ne_bytes),
                }
            }
        }
    }
}

/// Writes colour and alpha as pixels of `channels` elements. A frame without alpha is opaque.
fn interleave<T: Copy, const N: usize>(
    (colour, samples): (&[T], usize),
    (alpha, opaque): (Option<&[T]>, T),
    (to, channels): (&mut [u8], usize),
    bytes: impl Fn(T) -> [u8; N],
) {
    for (i, (pixel, colour)) in to.chunks_exact_mut(channels * N).zip(colour.chunks_exact(samples)).enumerate() {
        let (elements, _) = pixel.as_chunks_mut::<N>();
        elements.iter_mut().zip(colour).for_each(|(element, value)| *element = bytes(*value));
        if channels > samples {
            elements[samples] = bytes(alpha.map_or(opaque, |alpha| alpha[i]));
        }
    }
}

/// Writes frames to a target.
pub struct ClipSink {
    target: Arc<Target>,
    next: usize,
}

impl ClipSink {
    /// Starts at a frame of the target.
    pub fn new(target: Arc<Target>, next: usize) -> ClipSink {
        ClipSink { target, next }
    }
}

impl Sink for ClipSink {
    fn write(&mut self, frame: &Frame) -> media::Result<()> {
        let failed = |failure| media::Error::Write { path: "the result".into(), cause: io_error(failure) };
        self.target.write(self.next, frame).map_err(failed)?;
        self.next += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> media::Result<()> {
        Ok(())
    }
}
