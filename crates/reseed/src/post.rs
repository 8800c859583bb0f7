//! The fourth stage: joins batches and finishes their frames.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use rayon::prelude::*;
use reseed_media::{Depth, Frame};
use reseed_ops::{DeviceResult, FrameOps, FrameValues};

use crate::batch::{Batch, ShotStart};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::finish::Finisher;
use crate::input_frame::InputFrame;
use crate::join::{JoinedSlice, Joiner};
use crate::low_band::LowBand;
use crate::prepare::Slice;
use crate::report::timed;
use crate::settings::Settings;
use crate::view::View;

/// Output of post-processing.
pub enum PostOutput<'a> {
    /// A frame for the sink.
    Frame(Frame),
    /// A frame that is finished in its place on a device.
    InPlace(&'a dyn DeviceResult),
    /// A batch is complete: all its final frames were sent.
    Checkpoint(Checkpoint),
}

/// Converts the output of the networks to frames.
pub struct Post<'a> {
    settings: &'a Settings,
    view: &'a View,
    finisher: Finisher<'a>,
    joiner: Joiner<Vec<Arc<InputFrame>>>,
    /// Batches that an earlier run completed, and their frames that a later batch can still change.
    done: usize,
    held: VecDeque<Vec<Vec<f32>>>,
    /// The last batches and the starts of their shots.
    shots: VecDeque<(usize, ShotStart)>,
    /// Progress of the job; its `held` is empty.
    checkpoint: Checkpoint,
    /// Whether checkpoints hold what a resumed job needs.
    resumable: bool,
    /// The batch whose slice is next, and the one after the last whose slice is sent.
    slices: Range<usize>,
    /// Where finished frames go instead of the sink, in their order.
    places: &'a [Box<dyn DeviceResult>],
    stop: &'a AtomicBool,
}

impl<'a> Post<'a> {
    /// Post-processing for output of this depth. When `stop` is set, the end of the input is not the end of the clip.
    pub fn new(settings: &'a Settings, view: &'a View, depth: Depth, stop: &'a AtomicBool) -> Post<'a> {
        let joiner = Joiner::new(settings.overlap, settings.batching.shared());
        let (held, checkpoint) = (VecDeque::new(), Checkpoint::default());
        let shots = VecDeque::new();
        let (resumable, slices) = (false, 0..usize::MAX);
        let finisher = Finisher::new(settings, view, depth);
        Post {
            settings,
            view,
            finisher,
            joiner,
            done: 0,
            held,
            shots,
            checkpoint,
            resumable,
            slices,
            places: &[],
            stop,
        }
    }

    /// Finishes frames on a device, with or without alpha.
    pub fn on(self, device: Option<&'a dyn FrameOps>, alpha: bool) -> Post<'a> {
        Post { finisher: self.finisher.on(device, alpha), ..self }
    }

    /// With another low band than that of the settings.
    pub fn with_low_band(self, low_band: Option<LowBand<'a>>) -> Post<'a> {
        match low_band {
            Some(low_band) => Post { finisher: self.finisher.with_low_band(low_band), ..self },
            None => self,
        }
    }

    /// To places in the memory of a device.
    pub fn to(self, places: &'a [Box<dyn DeviceResult>]) -> Post<'a> {
        Post { places, ..self }
    }

    /// Resumes from a checkpoint; `resumable` asks for checkpoints that hold what a resumed job needs.
    pub fn resume_from(self, checkpoint: Checkpoint, resumable: bool) -> Post<'a> {
        let first = checkpoint.first_held();
        let Checkpoint { batches: done, held, .. } = checkpoint;
        let checkpoint = Checkpoint { held: Vec::new(), ..checkpoint };
        Post { done, held: held.into(), checkpoint, resumable, slices: first..self.slices.end, ..self }
    }

    /// Sends no frames of the batches from `end` on, which are here for the cross-fade only.
    pub fn until(self, end: usize) -> Post<'a> {
        Post { slices: self.slices.start..end, ..self }
    }

    /// Receives decoded slices and sends frames until the input ends or the receiver hangs up. Returns the time spent.
    /// An error is one of the device that has the frames.
    pub fn run(mut self, from: &Receiver<Slice>, to: &SyncSender<PostOutput<'a>>) -> Result<Duration> {
        let mut time = Duration::ZERO;
        let mut decoded = Vec::new();
        for mut slice in from {
            if slice.restarts {
                decoded.clear();
            }
            decoded.append(&mut slice.kept);
            timed(&mut time, || self.crop(slice.pixels, &mut decoded));
            let Some(Batch { number, frames, shared, seen, shot }) = slice.batch else { continue };
            let inputs = frames[shared..].to_vec();
            self.shots.push_back((number, shot));
            if number < self.done {
                let held = self.held.pop_front().expect("the reader repeats only batches with held frames");
                self.joiner.restore(held, inputs);
                continue;
            }
            let mut batch_frames = std::mem::take(&mut decoded);
            batch_frames.truncate(frames.len());
            // `inputs` must be the last reference to the frames, so that their memory returns to the pool.
            drop((frames, seen, slice.frames));
            let slices = timed(&mut time, || self.joiner.add(batch_frames, shared, inputs))?;
            if !self.send(slices, &mut time, to)? || !self.send_checkpoint(to)? {
                return Ok(time);
            }
        }
        // At the end of the clip the held frames are final. In a stopped job a later batch would still change them.
        if !self.stop.load(Ordering::Relaxed) {
            let slices = self.joiner.finish();
            self.send(slices, &mut time, to)?;
        }
        Ok(time)
    }

    /// Sends the frames of final slices; `false` when the receiver has hung up.
    fn send(
        &mut self,
        slices: Vec<JoinedSlice<Vec<Arc<InputFrame>>>>,
        time: &mut Duration,
        to: &SyncSender<PostOutput<'a>>,
    ) -> Result<bool> {
        for slice in slices {
            if self.slices.next().is_none() {
                return Ok(true);
            }
            for frame in timed(time, || self.finish(slice))? {
                if self.checkpoint.lead_in < self.settings.lead_in {
                    self.checkpoint.lead_in += 1;
                } else if to.send(frame).is_err() {
                    return Ok(false);
                } else {
                    self.checkpoint.frames += 1;
                }
            }
        }
        Ok(true)
    }

    /// Finishes a slice, in the places of its frames where there are any.
    fn finish(&mut self, slice: JoinedSlice<Vec<Arc<InputFrame>>>) -> Result<Vec<PostOutput<'a>>> {
        let JoinedSlice { frames, payload } = slice;
        if self.places.is_empty() {
            return Ok(self.finisher.run(frames, payload)?.into_iter().map(PostOutput::Frame).collect());
        }
        // Frames of the lead-in are written where the first frame will be.
        let lead_in = self.settings.lead_in - self.checkpoint.lead_in;
        let place = |i: usize| &*self.places[self.checkpoint.frames + i.saturating_sub(lead_in)];
        let places: Vec<&dyn DeviceResult> = (0..payload.len()).map(place).collect();
        self.finisher.run_in_place(&places, frames, payload)?;
        Ok(places.into_iter().map(PostOutput::InPlace).collect())
    }

    /// Counts a complete batch and sends its checkpoint; `false` when the receiver has hung up.
    fn send_checkpoint(&mut self, to: &SyncSender<PostOutput<'a>>) -> Result<bool> {
        self.checkpoint.batches += 1;
        if !self.resumable {
            return Ok(to.send(PostOutput::Checkpoint(self.checkpoint.clone())).is_ok());
        }
        let held = self.joiner.held()?;
        // The next batch may not have arrived yet; then reading can start at the shot of the last batch.
        let first = (self.checkpoint.batches - held.len()).min(self.checkpoint.batches - 1);
        self.shots.retain(|(batch, _)| *batch >= first);
        self.checkpoint.shot = self.shots.front().map_or(self.checkpoint.shot, |(_, shot)| *shot);
        Ok(to.send(PostOutput::Checkpoint(Checkpoint { held, ..self.checkpoint.clone() })).is_ok())
    }

    /// Appends the top left of each padded frame to `frames`. A single frame is cropped in place.
    fn crop(&self, mut padded: Vec<f32>, frames: &mut Vec<FrameValues>) {
        let (from, to) = (self.view.geometry().padded, self.view.geometry().output);
        let (line, kept) = (3 * from.w, 3 * to.w);
        if padded.len() == 3 * from.pixels() {
            (1..to.h).filter(|_| kept < line).for_each(|y| padded.copy_within(y * line..y * line + kept, y * kept));
            padded.truncate(3 * to.pixels());
            return frames.push(FrameValues::Host(padded));
        }
        let crop = |frame: &[f32]| {
            let mut cropped = self.view.pixel_pool().take(3 * to.pixels());
            let lines = frame.chunks_exact(line).zip(cropped.chunks_exact_mut(kept));
            lines.for_each(|(line, cropped)| cropped.copy_from_slice(&line[..kept]));
            FrameValues::Host(cropped)
        };
        frames.par_extend(padded.par_chunks_exact(3 * from.pixels()).map(crop));
    }
}
