//! Clips in memory as sources and sinks of the engine.

use std::sync::{Arc, Mutex, PoisonError};

use half::f16;
use half::slice::HalfFloatSliceExt;
use reseed::media::{self, Frame, Info, Samples, Sink, Size, Source};

use crate::array::Array;
use crate::buffer::Buffer;
use crate::dtype::Dtype;
use crate::errors::{Failure, Result};

/// Frames of one size in the memory of Python: one array `[B, H, W, C]`, or one array per frame.
pub struct Clip {
    arrays: Vec<Array>,
    pub size: Size,
    pub channels: usize,
    pub dtype: Dtype,
    pub frames: usize,
}

impl Clip {
    /// Checks shapes and types. An array of four dimensions holds frames, one of three or two is a frame.
    pub fn new(arrays: Vec<Array>) -> Result<Clip> {
        let first = arrays.first().ok_or_else(|| Failure::Input("there are no frames in the input".into()))?;
        let (size, channels) = layout(first)?;
        let dtype = first.dtype;
        for (i, array) in arrays.iter().enumerate().skip(1) {
            let (other, other_channels) = layout(array)?;
            if (other, other_channels, array.dtype) != (size, channels, dtype) {
                return Err(Failure::Input(format!(
                    "frame {i} is {other} with {other_channels} channels of {}, frame 0 is {size} with {channels} of \
                     {}; use frames of one size and type, or independent=True for images that are not one clip",
                    array.dtype.name(),
                    dtype.name()
                )));
            }
        }
        let frames = arrays.iter().map(|array| if array.shape.len() == 4 { array.shape[0] } else { 1 }).sum();
        if frames == 0 {
            return Err(Failure::Input("there are no frames in the input".into()));
        }
        Ok(Clip { arrays, size, channels, dtype, frames })
    }

    pub fn info(&self) -> Info {
        let (size, frames, depth) = (self.size, Some(self.frames), self.dtype.depth());
        Info { size, frames, depth, alpha: self.channels == 4, ..media::sample().info().clone() }
    }

    /// The array and the index in it of a frame.
    fn locate(&self, mut frame: usize) -> (&Array, Option<usize>) {
        for array in &self.arrays {
            let count = if array.shape.len() == 4 { array.shape[0] } else { 1 };
            if frame < count {
                return (array, (array.shape.len() == 4).then_some(frame));
            }
            frame -= count;
        }
        unreachable!("a frame of the clip")
    }

    /// Copies a frame out of its array, into `spare` where that fits.
    pub fn frame(&self, number: usize, spare: Option<Samples>) -> Frame {
        let (array, index) = self.locate(number);
        let index: &[usize] = index.as_slice();
        let (samples, alpha) = match (self.dtype, spare) {
            (Dtype::U8, Some(Samples::U8(spare))) => self.split(array, index, spare, Samples::U8),
            (Dtype::U16, Some(Samples::U16(spare))) => self.split(array, index, spare, Samples::U16),
            (Dtype::F32, Some(Samples::F32(spare))) => self.split(array, index, spare, Samples::F32),
            (Dtype::U8, _) => self.split(array, index, Vec::new(), Samples::U8),
            (Dtype::U16, _) => self.split(array, index, Vec::new(), Samples::U16),
            (Dtype::F32, _) => self.split(array, index, Vec::new(), Samples::F32),
            (Dtype::F16, _) => {
                let mut values = Vec::<f16>::new();
                array.read_block(index, &mut values);
                let mut floats = vec![0.0; values.len()];
                values.convert_to_f32_slice(&mut floats);
                separate(floats, self.channels, Samples::F32)
            }
        };
        Frame { size: self.size, samples, alpha }
    }

    fn split<T: Copy>(
        &self,
        array: &Array,
        index: &[usize],
        mut spare: Vec<T>,
        samples: fn(Vec<T>) -> Samples,
    ) -> (Samples, Option<Samples>) {
        spare.clear();
        array.read_block(index, &mut spare);
        separate(spare, self.channels, samples)
    }
}

/// Size and channels of the frames of an array.
fn layout(array: &Array) -> Result<(Size, usize)> {
    let (h, w, channels) = match array.shape[..] {
        [h, w] => (h, w, 1),
        [h, w, c] => (h, w, c),
        [_, h, w, c] => (h, w, c),
        _ => {
            let shape = &array.shape;
            return Err(Failure::Input(format!("shape {shape:?}: frames are [B, H, W, C], one frame is [H, W, C]")));
        }
    };
    if ![1, 3, 4].contains(&channels) {
        let shape = &array.shape;
        let hint = if shape.len() > 2 && [1, 3, 4].contains(&shape[shape.len() - 3]) {
            "; move the channels to the last dimension"
        } else {
            ""
        };
        return Err(Failure::Input(format!("shape {shape:?}: {channels} channels; frames have 1, 3 or 4{hint}")));
    }
    let size = Size { h, w };
    match size.is_plausible() {
        true => Ok((size, channels)),
        false => Err(Failure::Input(format!("frames of {size}: sides are between 1 and {}", Size::MAX_SIDE))),
    }
}

/// Colour and alpha of interleaved values. Grey becomes RGB.
fn separate<T: Copy>(values: Vec<T>, channels: usize, samples: fn(Vec<T>) -> Samples) -> (Samples, Option<Samples>) {
    match channels {
        3 => (samples(values), None),
        1 => (samples(values.iter().flat_map(|value| [*value; 3]).collect()), None),
        _ => {
            let alpha = values.iter().skip(3).step_by(4).copied().collect();
            let colour = values.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
            (samples(colour), Some(samples(alpha)))
        }
    }
}

/// Reads the frames of a clip one at a time.
pub struct ClipSource {
    clip: Arc<Clip>,
    info: Info,
    next: usize,
    spare: Option<Samples>,
}

impl ClipSource {
    pub fn new(clip: Arc<Clip>) -> ClipSource {
        let info = clip.info();
        ClipSource { clip, info, next: 0, spare: None }
    }
}

impl Source for ClipSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> media::Result<Option<Frame>> {
        if self.next == self.clip.frames {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(self.clip.frame(self.next - 1, self.spare.take())))
    }

    fn reuse(&mut self, done: Samples) {
        self.spare = Some(done);
    }

    fn skip(&mut self, frames: usize) -> media::Result<usize> {
        let skipped = frames.min(self.clip.frames - self.next);
        self.next += skipped;
        Ok(skipped)
    }
}

/// Where the frames of a result are written.
pub struct Target {
    buffer: Mutex<Option<Buffer>>,
    pub size: Size,
    pub channels: usize,
    pub dtype: Dtype,
    pub frames: usize,
}

impl Target {
    /// Memory for so many frames.
    pub fn new(size: Size, channels: usize, dtype: Dtype, frames: usize) -> Result<Target> {
        let bytes = size.pixels().checked_mul(channels * dtype.bytes() * frames);
        let failed = || reseed::Error::OutOfHostMemory { what: "the frames of the result", bytes: bytes.unwrap_or(0) };
        let buffer = bytes.and_then(Buffer::zeros).ok_or_else(failed)?;
        Ok(Target { buffer: Mutex::new(Some(buffer)), size, channels, dtype, frames })
    }

    /// The written memory; a target gives it away once.
    pub fn take(&self) -> Option<Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes frame `number`.
    pub fn write(&self, number: usize, frame: &Frame) {
        assert!(number < self.frames && frame.size == self.size, "a frame of the result");
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        // After a job was abandoned, nobody reads its frames.
        let Some(buffer) = buffer.as_mut() else { return };
        let bytes = self.size.pixels() * self.channels * self.dtype.bytes();
        let to = &mut buffer.as_mut_slice()[number * bytes..][..bytes];
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
        self.target.write(self.next, frame);
        self.next += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> media::Result<()> {
        Ok(())
    }
}
