//! Frames of arrays that other libraries share: the input of a job, and its result.

use std::any::Any;
use std::sync::Arc;

use half::f16;
use reseed_ops::{DeviceResult, DeviceSamples, FrameSamples, Hw, Result, SampleType};

use super::CudaFrames;
use crate::interop::{ArrayType, DeviceBuffer, ForeignArray};
use crate::launch::args;
use crate::ops::{ForeignFrame, stride_grid};
use crate::params::long;
use crate::pinned::Pinned;
use crate::stream::Stream;

/// An RGB frame of an array of another library.
pub struct ArrayFrame {
    array: Arc<ForeignArray>,
    index: usize,
}

impl ArrayFrame {
    /// The frames of arrays, in their order.
    pub fn all(arrays: &[Arc<ForeignArray>]) -> impl Iterator<Item = ArrayFrame> {
        let frames = |array: &Arc<ForeignArray>| {
            (0..array.layout().shape[0]).map({
                let array = array.clone();
                move |index| ArrayFrame { array: array.clone(), index }
            })
        };
        arrays.iter().flat_map(frames)
    }

    /// The frame behind samples. Panics where they are of another device, or of another size or type.
    pub(super) fn of(samples: &dyn DeviceSamples, size: Hw, dtype: SampleType) -> &ArrayFrame {
        let any: &dyn Any = samples;
        let frame = any.downcast_ref::<ArrayFrame>().expect("samples of this device");
        let layout = frame.array.layout();
        assert_eq!((&layout.shape[1..], layout.dtype.samples()), (&[size.h, size.w, 3][..], dtype), "samples");
        frame
    }

    pub(super) fn foreign(&self) -> ForeignFrame<'_> {
        ForeignFrame { array: &self.array, index: self.index, number: 0 }
    }
}

impl DeviceSamples for ArrayFrame {
    fn fetch(&self) -> Result<Vec<u8>> {
        self.array.fetch(self.index)
    }
}

/// An RGB frame of a result that another library receives.
pub struct BufferFrame {
    buffer: Arc<DeviceBuffer>,
    /// Its first byte.
    at: usize,
    size: Hw,
    dtype: ArrayType,
}

impl BufferFrame {
    /// Frame `index` of a dense array of frames of one size.
    pub fn new(buffer: Arc<DeviceBuffer>, index: usize, size: Hw, dtype: ArrayType) -> BufferFrame {
        BufferFrame { buffer, at: index * 3 * size.count() * dtype.bytes(), size, dtype }
    }

    fn bytes(&self) -> usize {
        3 * self.size.count() * self.dtype.bytes()
    }

    /// The frame behind a result. Panics where it is of another device, or of another size or type.
    fn of(result: &dyn DeviceResult, size: Hw, dtype: SampleType) -> &BufferFrame {
        let any: &dyn Any = result;
        let frame = any.downcast_ref::<BufferFrame>().expect("a result of this device");
        assert_eq!((frame.size, frame.dtype.samples()), (size, dtype), "a result");
        frame
    }
}

impl DeviceResult for BufferFrame {
    fn store(&self, samples: &[u8]) -> Result<()> {
        if self.dtype != ArrayType::F16 {
            return self.buffer.write(self.at, samples);
        }
        let (floats, _) = samples.as_chunks::<4>();
        let halves: Vec<f16> = floats.iter().map(|float| f16::from_f32(f32::from_ne_bytes(*float))).collect();
        self.buffer.write(self.at, bytemuck::cast_slice(&halves))
    }

    fn fetch(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes()];
        self.buffer.read(self.at, &mut bytes)?;
        if self.dtype != ArrayType::F16 {
            return Ok(bytes);
        }
        let (halves, _) = bytes.as_chunks::<2>();
        Ok(halves.iter().flat_map(|half| f16::from_ne_bytes(*half).to_f32().to_ne_bytes()).collect())
    }
}

impl CudaFrames {
    /// Copies the samples of an input frame. Returns the pinned memory of what comes from the host.
    pub(super) fn receive_samples(&self, samples: FrameSamples) -> Result<Option<Pinned>> {
        match samples {
            FrameSamples::Host(bytes) => self.upload(self.samples(), bytes).map(Some),
            FrameSamples::Device(samples) => {
                let frame = ArrayFrame::of(samples, self.spec.input, self.spec.samples);
                self.cuda.read_samples(Stream::Frames, self.samples(), &frame.foreign())?;
                Ok(None)
            }
        }
    }

    /// Queues the conversion of a frame to samples and their copy to a result on this device.
    pub(super) fn store(&self, frame: usize, result: &dyn DeviceResult) -> Result<()> {
        let (result, to) = (BufferFrame::of(result, self.spec.output, self.spec.samples), self.samples());
        if result.dtype == ArrayType::F16 {
            let (count, content) = (self.count(), self.content(frame));
            // SAFETY: arguments follow kernels/frames.cu in order and type; the layout has room for floats.
            unsafe { self.launch("finish_f16", stride_grid(count), args![to, content, long(count)]) }?;
        } else {
            self.convert(frame)?;
        }
        let (at, bytes) = (result.buffer.part(result.at, result.bytes()), result.bytes());
        // SAFETY: `part` has checked the memory of the result; both hold a frame of it.
        unsafe { self.cuda.driver().copy(Stream::Frames, at, to, bytes) }
    }
}
