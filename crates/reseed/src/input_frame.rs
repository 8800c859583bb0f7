//! Frames of the input, in host memory or in that of a GPU.

use std::sync::OnceLock;

use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::{DeviceSamples, FrameSamples, Result};

/// A frame of the input.
pub enum InputFrame {
    /// In host memory.
    Host(Frame),
    /// In the memory of a GPU, and on the host once that has needed it.
    Device(DeviceInput, OnceLock<Frame>),
}

/// An RGB frame in the memory of a GPU.
pub struct DeviceInput {
    /// Its size.
    pub size: Size,
    /// The depth of its samples.
    pub depth: Depth,
    /// Its samples.
    pub samples: Box<dyn DeviceSamples>,
}

impl DeviceInput {
    /// A copy in host memory.
    pub fn fetch(&self) -> Result<Frame> {
        let mut samples = Samples::black(self.depth, 3 * self.size.pixels());
        samples.as_bytes_mut().copy_from_slice(&self.samples.fetch()?);
        Ok(Frame { size: self.size, samples, alpha: None })
    }
}

impl From<Frame> for InputFrame {
    fn from(frame: Frame) -> InputFrame {
        InputFrame::Host(frame)
    }
}

impl From<DeviceInput> for InputFrame {
    fn from(frame: DeviceInput) -> InputFrame {
        InputFrame::Device(frame, OnceLock::new())
    }
}

impl InputFrame {
    /// The frame in host memory. An error is one of the GPU.
    pub fn host(&self) -> Result<&Frame> {
        match self {
            InputFrame::Host(frame) => Ok(frame),
            InputFrame::Device(frame, copy) => match copy.get() {
                Some(copy) => Ok(copy),
                None => {
                    let fetched = frame.fetch()?;
                    Ok(copy.get_or_init(|| fetched))
                }
            },
        }
    }

    /// The samples for a device that has the frame, or that copies it from the host.
    pub fn samples(&self) -> FrameSamples<'_> {
        match self {
            InputFrame::Host(frame) => FrameSamples::Host(frame.samples.as_bytes()),
            InputFrame::Device(frame, _) => FrameSamples::Device(&*frame.samples),
        }
    }

    /// Alpha, which frames in the memory of a GPU do not have.
    pub fn alpha(&self) -> Option<&Samples> {
        match self {
            InputFrame::Host(frame) => frame.alpha.as_ref(),
            InputFrame::Device(..) => None,
        }
    }

    /// Depth of the samples.
    pub fn depth(&self) -> Depth {
        match self {
            InputFrame::Host(frame) => frame.depth(),
            InputFrame::Device(frame, _) => frame.depth,
        }
    }
}
