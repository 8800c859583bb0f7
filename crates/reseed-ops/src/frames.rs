//! Work on frames before and after the networks: resampling, cross-fade, low band, range limit, colour transfer and the
//! conversion of samples.
//!
//! The host defines it. A device repeats every operation of the host in the same order, rounded in the same way, so
//! that either may do the work.

use std::any::Any;
use std::ops::Range;

use crate::error::Result;
use crate::shape::Hw;
use crate::tensor::Tensor;
use crate::transfer::PendingDownload;

/// Type of the samples of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleType {
    /// Black 0, white 255.
    U8,
    /// Black 0, white 65535.
    U16,
    /// Black 0, white 1.
    F32,
}

impl SampleType {
    /// Bytes of a sample.
    pub fn bytes(self) -> usize {
        match self {
            SampleType::U8 => 1,
            SampleType::U16 => 2,
            SampleType::F32 => 4,
        }
    }
}

/// Weights of a resampling along one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeAxis {
    /// For each output index: the first input index and the offset of its weights. One more entry ends the last.
    pub starts: Vec<[u32; 2]>,
    /// The weights of all output indices.
    pub weights: Vec<f32>,
}

/// A resampling of `[H, W, 3]`: along x first, then along y. Each sum starts at zero and adds its terms in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// Size of the input.
    pub from: Hw,
    /// Size of the result.
    pub to: Hw,
    /// Weights along y.
    pub rows: ResizeAxis,
    /// Weights along x.
    pub columns: ResizeAxis,
}

/// Low frequencies of the input in the result: clamp(x + share · up(input - down(clamp(x)))), where every frame has
/// its own share.
#[derive(Clone, Debug, PartialEq)]
pub struct LowBand {
    /// To the size of the input.
    pub down: Resize,
    /// From the size of the input.
    pub up: Resize,
}

/// Keeps the result within the range of the input, after the low band: clamp(clamp(x, low - m, high + m)).
///
/// `low` and `high` are the extreme values of the channel among the 5x5 pixels of the input around the one below x, and
/// m = (high - low) / 2 + margin. The windows are cut at borders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeLimit {
    /// Size of the resized input, whose top left is the result: the input pixel below pixel i of a side is
    /// i · input / resized, rounded down.
    pub resized: Hw,
    /// Of values in [-1, 1], where the input is plain.
    pub margin: f32,
}

/// Transfer of the colours of the input to a slice of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorTransfer {
    /// Low frequencies, then ranks in CIE Lab over the slice.
    Lab,
    /// Low frequencies.
    Wavelet,
    /// Low frequencies, blended with `Hsv`.
    WaveletAdaptive,
    /// Ranks of the HSV saturation in bands of hue over the slice.
    Hsv,
    /// Mean and standard deviation of each frame and channel.
    Adain,
    /// None.
    None,
}

impl ColorTransfer {
    /// Whether the frames of a slice depend on each other.
    pub fn joins_frames(self) -> bool {
        matches!(self, ColorTransfer::Lab | ColorTransfer::WaveletAdaptive | ColorTransfer::Hsv)
    }
}

/// The work on the frames of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameSpec {
    /// Most frames of a slice.
    pub frames: usize,
    /// Most restored frames that stay on the device until they are finished.
    pub kept: usize,
    /// Size of the input.
    pub input: Hw,
    /// Resamplings of the input, one after the other. The result is the top left of the last.
    pub steps: Vec<Resize>,
    /// Size of the frames.
    pub output: Hw,
    /// Samples of the input and of the result.
    pub samples: SampleType,
    /// The low band, if any.
    pub low_band: Option<LowBand>,
    /// The range limit, if any.
    pub limit: Option<RangeLimit>,
    /// The colour transfer.
    pub color: ColorTransfer,
    /// The resampling of alpha to the size of the frames, where the input has alpha.
    pub alpha: Option<Resize>,
}

/// Values `[H, W, 3]` of a restored frame, in about [-1, 1].
pub enum FrameValues {
    /// In host memory.
    Host(Vec<f32>),
    /// In the memory of the device that finishes frames.
    Device(Box<dyn DeviceFrame>),
}

impl FrameValues {
    /// The values in host memory.
    pub fn fetch(self) -> Result<Vec<f32>> {
        match self {
            FrameValues::Host(values) => Ok(values),
            FrameValues::Device(frame) => frame.fetch(),
        }
    }

    /// A copy of the values in host memory.
    pub fn copy(&self) -> Result<Vec<f32>> {
        match self {
            FrameValues::Host(values) => Ok(values.clone()),
            FrameValues::Device(frame) => frame.fetch(),
        }
    }
}

/// A restored frame that stayed on its device.
pub trait DeviceFrame: Any + Send {
    /// self ← weight · self + (1 - weight) · later. Both are frames of one device.
    fn blend(&mut self, later: &dyn DeviceFrame, weight: f32) -> Result<()>;

    /// Copies the values to the host.
    fn fetch(&self) -> Result<Vec<f32>>;
}

/// Samples of a frame of the input.
#[derive(Clone, Copy)]
pub enum FrameSamples<'a> {
    /// In host memory, in memory order.
    Host(&'a [u8]),
    /// In the memory of the device that reads them.
    Device(&'a dyn DeviceSamples),
}

/// Samples `[H, W, 3]` of a frame of the input that are in the memory of a device.
pub trait DeviceSamples: Any + Send + Sync {
    /// Copies the samples to the host, in memory order.
    fn fetch(&self) -> Result<Vec<u8>>;
}

/// Makes the input of the networks from frames.
pub trait FrameLoader: Send + Sync {
    /// A tensor `[T, H, W, 3]` of the given rows and columns of resampled frames: clamped, from -1 for black to 1 for
    /// white, and black beyond the frame.
    fn load(&self, inputs: &[FrameSamples], rows: Range<usize>, columns: Range<usize>) -> Result<Tensor>;
}

/// Frames that are being kept on the device. An error where values have left the range of the tensor's type.
pub type PendingFrames = Box<dyn PendingDownload<Vec<FrameValues>>>;

/// A device that does the work of one [`FrameSpec`].
pub trait FrameOps: Send + Sync {
    /// Keeps the top left of each frame of a tensor. `None` where there is no memory left for them, or where the tensor
    /// is not one of this device.
    fn keep(&self, _decoded: &Tensor) -> Result<Option<PendingFrames>> {
        Ok(None)
    }

    /// Finishes the frames of a slice.
    fn finish(&self, slice: &FrameSlice, results: &mut FrameResults) -> Result<()>;
}

/// Frames that are finished together.
pub struct FrameSlice<'a> {
    /// Restored frames.
    pub frames: &'a [FrameValues],
    /// Samples of the input frames.
    pub inputs: &'a [FrameSamples<'a>],
    /// Share of the low band of each frame.
    pub shares: &'a [f32],
    /// Samples of the alpha of the input frames in memory order; none without alpha.
    pub alphas: &'a [&'a [u8]],
    /// Whether the alpha is a mask: nearly all of it 0 or 1.
    pub mask: bool,
}

/// Memory for the samples of finished frames.
pub struct FrameResults<'a> {
    /// Colour.
    pub frames: Vec<FrameResult<'a>>,
    /// Alpha, in memory order; none without alpha.
    pub alphas: Vec<&'a mut [u8]>,
}

/// Memory for the samples of a finished frame.
pub enum FrameResult<'a> {
    /// In host memory, in memory order.
    Host(&'a mut [u8]),
    /// In the memory of the device that finishes the frame.
    Device(&'a dyn DeviceResult),
}

impl<'a> FrameResult<'a> {
    /// The memory of the device.
    pub fn on_device(&self) -> Option<&'a dyn DeviceResult> {
        match self {
            FrameResult::Host(_) => None,
            FrameResult::Device(result) => Some(*result),
        }
    }

    /// The memory of the host; empty where the result stays on the device.
    pub fn on_host(&mut self) -> &mut [u8] {
        match self {
            FrameResult::Host(samples) => samples,
            FrameResult::Device(_) => &mut [],
        }
    }
}

/// Memory of a device for the samples `[H, W, 3]` of a finished frame.
pub trait DeviceResult: Any + Send + Sync {
    /// Copies samples from the host, in memory order.
    fn store(&self, samples: &[u8]) -> Result<()>;

    /// Copies the samples to the host, in memory order.
    fn fetch(&self) -> Result<Vec<u8>>;
}
