//! The second stage: frames as the encoder wants them, slice by slice.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use rayon::prelude::*;
use reseed_media::Frame;
use reseed_model::plan::slices;

use crate::read::FrameBatch;
use crate::report::timed;
use crate::view::View;

/// Frames a latent frame, behind the first.
const FRAMES_A_LATENT: usize = 4;

/// A slice of a batch on its way through the VAE. A batch that was done before the job went on is one without pictures, and so
/// is every slice of a job that computes nothing.
pub struct Slice {
    /// Pictures `[T, H, W, 3]` in [-1, 1], padded.
    pub pictures: Vec<f32>,
    /// What they were made of.
    pub frames: Vec<Arc<Frame>>,
    /// With the last slice of a batch comes the batch.
    pub batch: Option<FrameBatch>,
}

/// Makes slices of batches.
pub struct Prepare<'a> {
    pub view: &'a View,
    /// Latent frames a slice. Where there are no latents, every picture goes by itself.
    pub latents: Option<usize>,
    /// Whether anything is computed. Frames of a job that hands them on as they are need no pictures.
    pub draws: bool,
    /// Batches that were done before the job went on.
    pub done: usize,
}

impl Prepare<'_> {
    /// Resizes batches until there are none or nobody wants more. Gives the time.
    pub fn run(&self, from: Receiver<FrameBatch>, to: SyncSender<Slice>) -> Duration {
        let mut time = Duration::ZERO;
        for batch in from {
            let wanted = match batch.number < self.done {
                true => to.send(Slice { pictures: Vec::new(), frames: Vec::new(), batch: Some(batch) }).is_ok(),
                false => self.resize(batch, &mut time, &to),
            };
            if !wanted {
                break;
            }
        }
        time
    }

    /// Whether somebody wants more.
    fn resize(&self, batch: FrameBatch, time: &mut Duration, to: &SyncSender<Slice>) -> bool {
        let count = batch.seen.len();
        let mut batch = Some(batch);
        self.ranges(count).into_iter().all(|range| {
            let frames = batch.as_ref().map_or(&[][..], |batch| &batch.seen[range.clone()]).to_vec();
            let pictures = if self.draws { timed(time, || pictures(self.view, &frames)) } else { Vec::new() };
            let batch = if range.end == count { batch.take() } else { None };
            to.send(Slice { pictures, frames, batch }).is_ok()
        })
    }

    /// The slices of a batch.
    fn ranges(&self, frames: usize) -> Vec<Range<usize>> {
        match self.latents {
            Some(latents) => slices(frames, latents * FRAMES_A_LATENT),
            None => (0..frames).map(|i| i..i + 1).collect(),
        }
    }
}

/// Frames as the encoder wants them.
pub fn pictures(view: &View, frames: &[Arc<Frame>]) -> Vec<f32> {
    let picture = 3 * view.geometry().padded.pixels();
    let mut pictures = view.pool().take(frames.len() * picture);
    let canvases = pictures.par_chunks_exact_mut(picture);
    canvases.zip(frames).for_each(|(canvas, frame)| view.padded_into(frame, canvas));
    pictures
}
