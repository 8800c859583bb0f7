//! Work on restored frames: low band, colour transfer and the conversion to codes.
//!
//! The host defines it. A device repeats every operation of the host in the same order, rounded in the same way, so
//! that either may do the work.

use crate::error::Result;
use crate::pixels::{Depth, Pixels};
use crate::shape::Hw;

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

/// Low frequencies of the input in the result: clamp(x + strength · up(input - down(clamp(x)))), where every frame has
/// its own strength.
#[derive(Clone, Debug, PartialEq)]
pub struct LowBand {
    /// To the size of the input.
    pub down: Resize,
    /// From the size of the input.
    pub up: Resize,
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
    /// Size of the input.
    pub input: Hw,
    /// Resamplings of the input, one after the other. The result is the top left of the last.
    pub steps: Vec<Resize>,
    /// Size of the frames.
    pub output: Hw,
    /// Codes of the input and of the result.
    pub depth: Depth,
    /// The low band, if any.
    pub low_band: Option<LowBand>,
    /// The colour transfer.
    pub color: ColorTransfer,
}

/// A device that does the work of one [`FrameSpec`].
pub trait FrameOps: Send + Sync {
    /// Finishes a slice: `frames` are restored values `[H, W, 3]` in about [-1, 1], `inputs` the codes of the input
    /// frames in memory order, `strengths` those of the low band of the frames, and `results` receives the codes.
    fn finish(&self, frames: &[Vec<f32>], inputs: &[&[u8]], strengths: &[f32], results: &mut [Pixels]) -> Result<()>;
}
