//! The first stage: frames, cut into shots and batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use reseed_media::{Frame, Info, Source};

use crate::batch::{Batch, Batcher, End, Start, extend};
use crate::error::{Error, Result};
use crate::report::timed;
use crate::settings::Settings;
use crate::shot::{Look, Shots};
use crate::view::View;

/// A batch of whole frames.
pub type FrameBatch = Batch<Arc<Frame>>;

/// What the reader counted.
#[derive(Default)]
pub struct Read {
    pub shots: usize,
    pub batches: usize,
    pub time: Duration,
}

/// Reads a clip.
pub struct Reader<'a> {
    pub settings: &'a Settings,
    /// Batches that were done before the job went on, and the first that something is still to come of.
    pub done: usize,
    pub first: usize,
    /// A shot at or before that.
    pub shot: Start,
    pub view: &'a View,
    pub stop: &'a AtomicBool,
}

impl Reader<'_> {
    /// Sends the batches of a clip until it ends, or until nobody wants more. Where the job goes on from a point, frames are
    /// read and judged again from the start of a shot, so that shots and batches are those of the first time, but only
    /// batches that something is still to come of are sent.
    pub fn run(&self, source: &mut dyn Source, to: &SyncSender<FrameBatch>) -> Result<Read> {
        let mut done = Read::default();
        let mut batcher = self.batcher();
        let mut shots = Shots::default();
        let mut head = timed(&mut done.time, || self.head(source, batcher.count()))?.into_iter();
        let mut more = true;
        while more && !self.stop.load(Ordering::Relaxed) {
            let frame = match head.next() {
                Some(frame) => Some(frame),
                None => timed(&mut done.time, || self.next(source))?,
            };
            more = frame.is_some();
            let judged = timed(&mut done.time, || self.judge(&mut shots, frame));
            let Some((frame, cut)) = judged else { continue };
            let ended = if cut { batcher.end_shot() } else { None };
            done.shots += usize::from(cut || done.shots == 0);
            for batch in ended.into_iter().chain(batcher.push(frame)) {
                more &= self.send(batch, &mut done, to);
            }
        }
        if let Some(batch) = batcher.end_shot().filter(|_| !self.stop.load(Ordering::Relaxed)) {
            // Whoever no longer listens has a reason that is told elsewhere.
            self.send(batch, &mut done, to);
        }
        Ok(done)
    }

    /// Whether somebody wants more.
    fn send(&self, batch: FrameBatch, done: &mut Read, to: &SyncSender<FrameBatch>) -> bool {
        done.batches += usize::from(batch.number >= self.done);
        batch.number < self.first || to.send(batch).is_ok()
    }

    /// Before the first frame that is to be read.
    fn batcher(&self) -> Batcher<Arc<Frame>> {
        let Settings { batching, lead_in, detect_shots, .. } = *self.settings;
        match self.shot {
            // A lead-in is made of frames that come later.
            shot if shot.frame < lead_in => Batcher::new(batching),
            // What comes is judged by what came since the shot began.
            shot if detect_shots => Batcher::within(batching, shot, shot.batch),
            shot => Batcher::within(batching, shot, self.first),
        }
    }

    /// The first frames, with the lead-in before them; none where the clip is not read from its start.
    fn head(&self, source: &mut dyn Source, from: usize) -> Result<Vec<Arc<Frame>>> {
        let lead_in = self.settings.lead_in;
        let mut first = Vec::new();
        if from > 0 {
            source.skip(from - lead_in).map_err(Error::Input)?;
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

    /// A frame, and whether a shot starts with it. Behind the last frame comes the one that the detector holds.
    fn judge(&self, shots: &mut Shots<Arc<Frame>>, frame: Option<Arc<Frame>>) -> Option<(Arc<Frame>, bool)> {
        match frame {
            Some(frame) if self.settings.detect_shots => {
                let look = Look::of(&frame);
                shots.push(frame, look)
            }
            Some(frame) => Some((frame, false)),
            None => shots.finish(),
        }
    }

    fn next(&self, source: &mut dyn Source) -> Result<Option<Arc<Frame>>> {
        let Info { depth, size, .. } = *source.info();
        if let Some(idle) = self.view.frames().find(depth, 3 * size.pixels()) {
            source.reuse(idle);
        }
        Ok(source.next().map_err(Error::Input)?.map(Arc::new))
    }
}
