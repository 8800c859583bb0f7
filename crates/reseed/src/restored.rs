//! Decoded slices on their way out of the networks: they stay on the device that finishes frames, or come to the host.

use reseed_ops::{Device, FrameOps, FrameValues, PendingDownload, PendingFrames, Result, Tensor};

/// A decoded slice.
pub enum Restored {
    Host(Box<dyn PendingDownload>),
    Device(PendingFrames),
}

impl Restored {
    /// Keeps a decoded slice on `frames` where that has room, else starts its download.
    pub fn start(ops: &dyn Device, decoded: &Tensor, frames: Option<&dyn FrameOps>) -> Result<Restored> {
        let kept = frames.map_or(Ok(None), |frames| frames.keep(decoded))?;
        Ok(match kept {
            Some(kept) => Restored::Device(kept),
            None => Restored::Host(ops.start_download(decoded)?),
        })
    }

    /// Waits for it: padded values on the host, or frames on the device.
    pub fn wait(self) -> Result<(Vec<f32>, Vec<FrameValues>)> {
        let (mut pixels, mut kept) = (Vec::new(), Vec::new());
        match self {
            Restored::Host(download) => download.wait(&mut pixels)?,
            Restored::Device(frames) => frames.wait(&mut kept)?,
        }
        Ok((pixels, kept))
    }
}
