//! The first stage: reads frames and splits them into shots and batches.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use reseed_media::{Frame, Info, Source};

use crate::batch::{Batch, Batcher, End, ShotStart, extend};
use crate::error::{Error, Result};
use crate::input_frame::{DeviceInput, InputFrame};
use crate::report::timed;
use crate::settings::Settings;
use crate::shot::{FrameSignature, ShotDetector};
use crate::view::View;

/// A batch of frames.
pub type FrameBatch = Batch<Arc<InputFrame>>;

/// The frames of a whole clip, in their order.
pub enum ClipFrames<'a> {
    Source(&'a mut dyn Source),
    /// In the memory of a GPU, which has checked their numbers.
    Device(std::vec::IntoIter<DeviceInput>),
}

/// Counts and time of the reader.
#[derive(Default)]
pub struct ReadReport {
    pub shots: usize,
    pub batches: usize,
    pub time: Duration,
}

/// Reads a clip.
pub struct Reader<'a> {
    pub settings: &'a Settings,
    /// Batches that an earlier run computed.
    pub done: usize,
    /// The first batch that later stages need.
    pub first: usize,
    /// Start of a shot at or before `first`.
    pub shot: ShotStart,
    pub view: &'a View,
    pub stop: &'a AtomicBool,
    /// Whether one device alone reads the frames.
    pub alone: bool,
    /// Frames read or skipped so far.
    pub frames: Cell<usize>,
}

impl Reader<'_> {
    /// Sends the batches of a clip until the clip ends or the receiver hangs up.
    ///
    /// A resumed job reads from the start of a shot and repeats shot detection, so that shots and batches equal those
    /// of the first run. It sends only the batches from `first` on.
    pub fn run(&self, mut source: ClipFrames, to: &SyncSender<FrameBatch>) -> Result<ReadReport> {
        let mut report = ReadReport::default();
        let mut batcher = self.batcher();
        let mut shots = ShotDetector::default();
        let mut head = timed(&mut report.time, || self.head(&mut source, batcher.count()))?.into_iter();
        let mut more = true;
        while more && !self.stop.load(Ordering::Relaxed) {
            let frame = match head.next() {
                Some(frame) => Some(frame),
                None => timed(&mut report.time, || self.next(&mut source))?,
            };
            more = frame.is_some();
            let detected = timed(&mut report.time, || self.detect(&mut shots, frame))?;
            let Some((frame, cut)) = detected else { continue };
            let ended = if cut { batcher.end_shot() } else { None };
            report.shots += usize::from(cut || report.shots == 0);
            for batch in ended.into_iter().chain(batcher.push(frame)) {
                more &= self.send(batch, &mut report, to);
            }
        }
        if let Some(batch) = batcher.end_shot().filter(|_| !self.stop.load(Ordering::Relaxed)) {
            // A receiver that hung up reports its own error.
            self.send(batch, &mut report, to);
        }
        Ok(report)
    }

    /// Counts a batch and sends it if it is needed; `false` when the receiver has hung up.
    fn send(&self, batch: FrameBatch, report: &mut ReadReport, to: &SyncSender<FrameBatch>) -> bool {
        report.batches += usize::from(batch.number >= self.done);
        batch.number < self.first || to.send(batch).is_ok()
    }

    /// A batcher at the first frame to read.
    fn batcher(&self) -> Batcher<Arc<InputFrame>> {
        let Settings { batching, lead_in, detect_shots, .. } = *self.settings;
        match self.shot {
            // The lead-in mirrors frames that come after it.
            shot if shot.frame < lead_in => Batcher::new(batching),
            // Shot detection depends on all frames since the start of the shot.
            shot if detect_shots => Batcher::starting_at(batching, shot, shot.batch),
            shot => Batcher::starting_at(batching, shot, self.first),
        }
    }

    /// The lead-in and the frames that it mirrors. Where reading starts later in the clip, skips to frame `from` and
    /// returns no frames.
    fn head(&self, source: &mut ClipFrames, from: usize) -> Result<Vec<Arc<InputFrame>>> {
        let lead_in = self.settings.lead_in;
        let mut first = Vec::new();
        if from > 0 {
            self.frames.set(match source {
                ClipFrames::Source(source) => source.skip(from - lead_in).map_err(Error::Input)?,
                ClipFrames::Device(frames) => frames.take(from - lead_in).count(),
            });
            return Ok(first);
        }
        while lead_in > 0 && first.len() <= lead_in {
            match self.next(source)? {
                Some(frame) => first.push(frame),
                None => break,
            }
        }
        Ok(if first.is_empty() { first } else { extend(&first, lead_in, End::Front) })
    }

    /// The next frame and whether a shot starts with it. The detector delays frames by one and returns the last frame
    /// for `None`.
    fn detect(
        &self,
        shots: &mut ShotDetector<Arc<InputFrame>>,
        frame: Option<Arc<InputFrame>>,
    ) -> Result<Option<(Arc<InputFrame>, bool)>> {
        Ok(match frame {
            Some(frame) if self.settings.detect_shots => {
                let signature = FrameSignature::new(frame.host()?);
                shots.push(frame, signature)
            }
            Some(frame) => Some((frame, false)),
            None => shots.finish(),
        })
    }

    /// Devices other than that of the frame read it from the host.
    fn on_its_device(&self, frame: DeviceInput) -> Result<Arc<InputFrame>> {
        Ok(Arc::new(if self.alone { frame.into() } else { frame.fetch()?.into() }))
    }

    fn next(&self, source: &mut ClipFrames) -> Result<Option<Arc<InputFrame>>> {
        let source = match source {
            ClipFrames::Source(source) => source,
            ClipFrames::Device(frames) => return frames.next().map(|frame| self.on_its_device(frame)).transpose(),
        };
        let Info { depth, size, .. } = *source.info();
        if let Some(free) = self.view.sample_pool().find(depth, 3 * size.pixels()) {
            source.reuse(free);
        }
        let Some(frame) = source.next().map_err(Error::Input)? else { return Ok(None) };
        let number = self.frames.replace(self.frames.get() + 1);
        check_numbers(&frame, number)?;
        Ok(Some(Arc::new(frame.into())))
    }
}

/// An error where frame `number` holds a value that is not a number: it would spread over the whole batch.
pub fn check_numbers(frame: &Frame, number: usize) -> Result<()> {
    let colour = frame.samples.first_nan().map(|at| (at / 3, at % 3));
    let alpha = || frame.alpha.as_ref().and_then(|alpha| alpha.first_nan()).map(|at| (at, 3));
    match colour.or_else(alpha) {
        Some((pixel, channel)) => {
            Err(Error::NotANumber { frame: number, at: [pixel / frame.size.w, pixel % frame.size.w, channel] })
        }
        None => Ok(()),
    }
}
