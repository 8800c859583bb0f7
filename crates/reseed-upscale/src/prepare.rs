//! The second stage: frames as the encoder wants them, slice by slice.

use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use rayon::prelude::*;
use reseed_model::plan::slices;

use crate::read::FrameBatch;
use crate::report::timed;
use crate::view::View;

/// Frames a latent frame, behind the first.
const FRAMES_A_LATENT: usize = 4;

/// A slice of a batch on its way through the VAE.
pub struct Slice {
    /// Pictures `[T, H, W, 3]` in [-1, 1], padded.
    pub pictures: Vec<f32>,
    /// With the last slice of a batch comes the batch.
    pub batch: Option<FrameBatch>,
}

/// Resizes batches, in slices of `latents` latent frames, until there are none or nobody wants more. Gives the time.
pub fn prepare(view: &View, latents: usize, from: Receiver<FrameBatch>, to: SyncSender<Slice>) -> Duration {
    let mut time = Duration::ZERO;
    let picture = 3 * view.geometry().padded.pixels();
    for batch in from {
        let count = batch.seen.len();
        let mut batch = Some(batch);
        for range in slices(count, latents * FRAMES_A_LATENT) {
            let frames = batch.as_ref().map_or(&[][..], |batch| &batch.seen[range.clone()]);
            let mut pictures = vec![0.0; frames.len() * picture];
            timed(&mut time, || {
                let canvases = pictures.par_chunks_exact_mut(picture);
                canvases.zip(frames).for_each(|(canvas, frame)| view.padded_into(frame, canvas));
            });
            let batch = if range.end == count { batch.take() } else { None };
            if to.send(Slice { pictures, batch }).is_err() {
                return time;
            }
        }
    }
    time
}
