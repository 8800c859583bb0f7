//! The second stage: resizes and pads frames for the encoder, slice by slice.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use rayon::prelude::*;
use reseed_model::plan::slices;
use reseed_ops::{FrameValues, Result};

use crate::input_frame::InputFrame;
use crate::read::FrameBatch;
use crate::report::timed;
use crate::view::View;

/// Frames per latent frame after the first, which is a single frame.
const FRAMES_PER_LATENT: usize = 4;

/// A slice of a batch. `pixels` is empty for a batch that an earlier run completed, where a device resizes the frames,
/// and in a job that computes nothing.
#[derive(Default)]
pub struct Slice {
    /// Padded values `[T, H, W, 3]` in [-1, 1].
    pub pixels: Vec<f32>,
    /// Restored frames that stayed on a device, in place of `pixels`.
    pub kept: Vec<FrameValues>,
    /// The frames of `pixels`.
    pub frames: Vec<Arc<InputFrame>>,
    /// The whole batch, in its last slice only.
    pub batch: Option<FrameBatch>,
    /// Whether its batch begins again: the slices of it that were sent before do not count.
    pub restarts: bool,
}

impl Slice {
    /// The only slice of a batch that an earlier run completed.
    fn of_done(batch: FrameBatch) -> Slice {
        Slice { batch: Some(batch), ..Slice::default() }
    }
}

/// Splits batches into slices.
pub struct Prepare<'a> {
    pub view: &'a View,
    /// Latent frames per slice; `None` in a job without networks, whose slices have one frame.
    pub latents: Option<usize>,
    /// Whether slices need `pixels`; false where devices resize the frames and in a job that passes them through.
    pub needs_pixels: bool,
    /// Batches that an earlier run completed.
    pub done: usize,
}

impl Prepare<'_> {
    /// Receives batches and sends slices until the input ends or the receiver hangs up. Returns the time spent.
    pub fn run(&self, from: &Receiver<FrameBatch>, to: &SyncSender<Slice>) -> Duration {
        let mut time = Duration::ZERO;
        for batch in from {
            let sent = match batch.number < self.done {
                true => to.send(Slice::of_done(batch)).is_ok(),
                false => self.resize(batch, &mut time, to),
            };
            if !sent {
                break;
            }
        }
        time
    }

    /// Sends the slices of a batch; `false` when the receiver has hung up.
    fn resize(&self, batch: FrameBatch, time: &mut Duration, to: &SyncSender<Slice>) -> bool {
        let count = batch.seen.len();
        let mut batch = Some(batch);
        self.ranges(count).into_iter().all(|range| {
            let frames = batch.as_ref().map_or(&[][..], |batch| &batch.seen[range.clone()]).to_vec();
            // Where frames cannot be fetched here, the next stage tries again and reports why.
            let pixels = match self.needs_pixels {
                true => timed(time, || padded_pixels(self.view, &frames)).unwrap_or_default(),
                false => Vec::new(),
            };
            let batch = if range.end == count { batch.take() } else { None };
            to.send(Slice { pixels, frames, batch, ..Slice::default() }).is_ok()
        })
    }

    /// The frame ranges of the slices of a batch.
    fn ranges(&self, frames: usize) -> Vec<Range<usize>> {
        match self.latents {
            Some(latents) => slices(frames, latents * FRAMES_PER_LATENT),
            None => (0..frames).map(|i| i..i + 1).collect(),
        }
    }
}

/// Frames as encoder input: resized and padded values `[T, H, W, 3]` in [-1, 1].
pub fn padded_pixels(view: &View, frames: &[Arc<InputFrame>]) -> Result<Vec<f32>> {
    let frames = frames.iter().map(|frame| frame.host()).collect::<Result<Vec<_>>>()?;
    let frame_len = 3 * view.geometry().padded.pixels();
    let mut pixels = view.pixel_pool().take(frames.len() * frame_len);
    let canvases = pixels.par_chunks_exact_mut(frame_len);
    canvases.zip(frames).for_each(|(canvas, frame)| view.padded_into(frame, canvas));
    Ok(pixels)
}
