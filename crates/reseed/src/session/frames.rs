//! Clips in memory.

use std::sync::{Arc, Mutex, PoisonError};

use reseed_media::{Depth, Frame, Info, Sink, Source};

use super::{Plain, Session};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::observer::Observer;
use crate::part::ClipInput;
use crate::report::Report;
use crate::settings::Settings;
use crate::step::Step;

impl Session {
    /// Restores and upscales the frames of one clip.
    ///
    /// ```
    /// use reseed::{Session, Settings, Target};
    ///
    /// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
    /// let frames = vec![reseed::media::sample().next()?.expect("a frame")];
    /// let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
    /// let restored = session.upscale_frames(frames, &settings, &mut ())?;
    /// assert_eq!(restored[0].size.to_string(), "144x96");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn upscale_frames(
        &self,
        frames: Vec<Frame>,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Frame>> {
        let depth = frames.first().map_or(Depth::Eight, Frame::depth);
        Ok(self.run_frames(&frames, depth, settings, (observer, None))?.0)
    }

    /// The frames of one clip with results of another depth, and the report.
    pub(crate) fn upscale_to_depth(
        &self,
        frames: &[Frame],
        depth: Depth,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<(Vec<Frame>, Report)> {
        self.run_frames(frames, depth, settings, (observer, None))
    }

    /// Frames through the VAE alone.
    pub(crate) fn reconstruct_frames(&self, frames: &[Frame], depth: Depth, settings: &Settings) -> Result<Vec<Frame>> {
        let step = |condition: &Latent, _: &Latent| Ok(condition.clone());
        Ok(self.run_frames(frames, depth, settings, (&mut (), Some(&step)))?.0)
    }

    fn run_frames(
        &self,
        frames: &[Frame],
        depth: Depth,
        settings: &Settings,
        watchers: (&mut dyn Observer, Option<&dyn Step>),
    ) -> Result<(Vec<Frame>, Report)> {
        let size = frames.first().ok_or(Error::NoFrames { path: None })?.size;
        let alpha = frames.iter().any(|frame| frame.alpha.is_some());
        let info = Info { size, frames: Some(frames.len()), depth, alpha, ..reseed_media::sample().info().clone() };
        let mut source = FrameSource { info, frames: frames.iter() };
        let collector = FrameCollector::default();
        let mut output = Plain(Some(Box::new(collector.clone())));
        let report = self.execute_with(ClipInput::Whole(&mut source), settings, &mut output, watchers)?;
        Ok((collector.take(), report))
    }
}

/// Reads frames from memory, in the depth of its results: devices load the samples that they return.
struct FrameSource<'a> {
    info: Info,
    frames: std::slice::Iter<'a, Frame>,
}

impl Source for FrameSource<'_> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> reseed_media::Result<Option<Frame>> {
        let depth = self.info.depth;
        Ok(self.frames.next().map(|frame| Frame {
            size: frame.size,
            samples: frame.samples.to_depth(depth),
            alpha: frame.alpha.as_ref().map(|alpha| alpha.to_depth(depth)),
        }))
    }
}

/// Keeps frames in memory.
#[derive(Clone, Default)]
pub(crate) struct FrameCollector(Arc<Mutex<Vec<Frame>>>);

impl FrameCollector {
    pub fn take(&self) -> Vec<Frame> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for FrameCollector {
    fn write(&mut self, frame: &Frame) -> reseed_media::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(frame.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        Ok(())
    }
}
