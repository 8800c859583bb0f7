//! Values and pixels between host and device.

use crate::error::Result;
use crate::pixels::{Depth, Pixels};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Copies between the caller's memory and tensors.
///
/// Uploads return when the caller's memory has been read. Downloads that are started return at once; the copy runs
/// beside the ops that follow.
pub trait Transfer: Send + Sync {
    /// A tensor of host values, rounded to the device's type (to nearest, ties to even).
    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor>;

    /// The values of a tensor. Offloaded tensors can be downloaded too.
    fn download(&self, x: &Tensor) -> Result<Vec<f32>>;

    /// Starts a download.
    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>>;

    /// A tensor of frames: code c becomes 2c / max - 1, computed as [`crate::Code::value`] does and rounded to the
    /// device's type. All devices return the same bits.
    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor>;

    /// Starts a download of frames as codes, computed as [`crate::Code::nearest`] does: -1 and below is black, 1 and
    /// above is white, NaN is black. All devices return the same codes for the same values.
    fn start_download_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>>;
}

/// The result of a download that has been started: values, or pixels.
pub trait PendingDownload<T = Vec<f32>>: Send {
    /// Waits for the copy. The result replaces the contents of `into` and reuses its memory.
    fn wait(self: Box<Self>, into: &mut T) -> Result<()>;
}

/// A result that is complete already.
impl<T: Send> PendingDownload<T> for T {
    fn wait(self: Box<Self>, into: &mut T) -> Result<()> {
        *into = *self;
        Ok(())
    }
}
