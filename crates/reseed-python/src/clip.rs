//! Clips in memory as sources of the engine.

use std::io;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use reseed::media::{self, Frame, Info, Samples, Size, Source};
use reseed::{ForeignArray, Gpu};

use crate::array::{Array, wrong_shape};
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

    /// The GPU that all frames are on.
    pub fn gpu(&self) -> Option<&Gpu> {
        let first = self.arrays[0].gpu();
        first.filter(|_| self.arrays.iter().all(|array| array.gpu().is_some()))
    }

    /// The arrays on the GPU, if they are there.
    pub fn gpu_arrays(&self) -> Option<Vec<Arc<ForeignArray>>> {
        self.arrays.iter().map(|array| array.gpu_array().cloned()).collect()
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
    pub fn frame(&self, number: usize, spare: Option<Samples>) -> Result<Frame> {
        let (array, index) = self.locate(number);
        let index = index.as_slice();
        let (samples, alpha) = match (self.dtype, spare) {
            (Dtype::U8, Some(Samples::U8(spare))) => self.split(array, index, spare, Samples::U8)?,
            (Dtype::U16, Some(Samples::U16(spare))) => self.split(array, index, spare, Samples::U16)?,
            (Dtype::F32, Some(Samples::F32(spare))) => self.split(array, index, spare, Samples::F32)?,
            (Dtype::U8, _) => self.split(array, index, Vec::new(), Samples::U8)?,
            (Dtype::U16, _) => self.split(array, index, Vec::new(), Samples::U16)?,
            (Dtype::F32, _) => self.split(array, index, Vec::new(), Samples::F32)?,
            (Dtype::F16, _) => {
                let mut values = Vec::<f16>::new();
                array.read_block(index, &mut values)?;
                let mut floats = vec![0.0; values.len()];
                values.convert_to_f32_slice(&mut floats);
                separate(floats, self.channels, Samples::F32)
            }
        };
        Ok(Frame { size: self.size, samples, alpha })
    }

    fn split<T: Copy>(
        &self,
        array: &Array,
        index: &[usize],
        mut spare: Vec<T>,
        samples: fn(Vec<T>) -> Samples,
    ) -> Result<(Samples, Option<Samples>)> {
        spare.clear();
        array.read_block(index, &mut spare)?;
        Ok(separate(spare, self.channels, samples))
    }
}

/// Size and channels of the frames of an array.
fn layout(array: &Array) -> Result<(Size, usize)> {
    let (h, w, channels) = match array.shape[..] {
        [h, w] => (h, w, 1),
        [h, w, c] => (h, w, c),
        [_, h, w, c] => (h, w, c),
        _ => return Err(wrong_shape(&array.shape)),
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
        let failed = |failure| media::Error::Read { path: "the frames".into(), cause: io_error(failure) };
        self.clip.frame(self.next - 1, self.spare.take()).map(Some).map_err(failed)
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

/// The reason of a failure, for sources and sinks.
pub fn io_error(failure: Failure) -> io::Error {
    match failure {
        Failure::Engine(error) => io::Error::other(error.to_string()),
        Failure::Usage(message) | Failure::Input(message) | Failure::Failed(message) => io::Error::other(message),
        Failure::Python(error) => io::Error::other(error.to_string()),
    }
}
