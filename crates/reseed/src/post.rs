//! The fourth stage: batches joined, their alpha and colours, and frames again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use rayon::prelude::*;
use reseed_media::{Depth, Frame, Samples, Size};

use crate::alpha;
use crate::batch::{Batch, Start};
use crate::checkpoint::Checkpoint;
use crate::color::Color;
use crate::join::{self, Joiner};
use crate::low_band;
use crate::prepare::Slice;
use crate::report::timed;
use crate::settings::Settings;
use crate::view::{BLACK, View, WHITE};

/// What comes out of post-processing.
pub enum Done {
    /// A frame, ready to be written.
    Frame(Frame),
    /// All frames of a batch that can be ready are.
    Batch(Checkpoint),
}

/// Makes frames of what the networks made.
pub struct Post<'a> {
    settings: &'a Settings,
    view: &'a View,
    depth: Depth,
    joiner: Joiner<Vec<Arc<Frame>>>,
    /// Batches that were done before the job went on, and what of them is still held.
    done: usize,
    held: VecDeque<Vec<Vec<f32>>>,
    /// Batches that came last, and their shots.
    shots: VecDeque<(usize, Start)>,
    /// Where the job stands; `held` stays empty here.
    point: Checkpoint,
    /// Whether points are told.
    tells: bool,
    stop: &'a AtomicBool,
}

impl<'a> Post<'a> {
    /// Results of this depth. Once `stop` is set, an end is not the clip's.
    pub fn new(settings: &'a Settings, view: &'a View, depth: Depth, stop: &'a AtomicBool) -> Post<'a> {
        let joiner = Joiner::new(settings.overlap, settings.batching.shared());
        let (held, point) = (VecDeque::new(), Checkpoint::default());
        let shots = VecDeque::new();
        Post { settings, view, depth, joiner, done: 0, held, shots, point, tells: false, stop }
    }

    /// From a point on, with points told behind every batch where they are wanted.
    pub fn from(self, point: Checkpoint, tells: bool) -> Post<'a> {
        let Checkpoint { batches: done, held, .. } = point;
        Post { done, held: held.into(), point: Checkpoint { held: Vec::new(), ..point }, tells, ..self }
    }

    /// Takes restored pictures and sends frames, until there are none or nobody wants more. Gives the time.
    pub fn run(mut self, from: &Receiver<Slice>, to: &SyncSender<Done>) -> Duration {
        let mut time = Duration::ZERO;
        let mut pictures = Vec::new();
        for slice in from {
            timed(&mut time, || self.crop(slice.pictures, &mut pictures));
            let Some(Batch { number, frames, shared, seen, shot }) = slice.batch else { continue };
            let inputs = frames[shared..].to_vec();
            self.shots.push_back((number, shot));
            if number < self.done {
                let held = self.held.pop_front().expect("only batches of which something is held come again");
                self.joiner.restore(held, inputs);
                continue;
            }
            let mut whole = std::mem::take(&mut pictures);
            whole.truncate(frames.len());
            // Only the joiner has them now, and gives their memory back when it is done.
            drop((frames, seen, slice.frames));
            let slices = timed(&mut time, || self.joiner.add(whole, shared, inputs));
            if !self.send(slices, &mut time, to) || !self.tell(to) {
                return time;
            }
        }
        // What is held at the end of a clip is final; where a job stops, batches that would change it are yet to come.
        if !self.stop.load(Ordering::Relaxed) {
            let slices = self.joiner.finish();
            self.send(slices, &mut time, to);
        }
        time
    }

    /// Whether somebody wants more.
    fn send(&mut self, slices: Vec<join::Slice<Vec<Arc<Frame>>>>, time: &mut Duration, to: &SyncSender<Done>) -> bool {
        for slice in slices {
            let frames = timed(time, || self.finish(slice));
            for frame in frames {
                if self.point.lead_in < self.settings.lead_in {
                    self.point.lead_in += 1;
                } else if to.send(Done::Frame(frame)).is_err() {
                    return false;
                } else {
                    self.point.frames += 1;
                }
            }
        }
        true
    }

    /// Tells that a batch is done. Whether somebody wants more.
    fn tell(&mut self, to: &SyncSender<Done>) -> bool {
        self.point.batches += 1;
        if !self.tells {
            return true;
        }
        let held = self.joiner.held();
        // The next batch may not have come yet; the shot of the last is as good a place to start.
        let first = (self.point.batches - held.len()).min(self.point.batches - 1);
        self.shots.retain(|(batch, _)| *batch >= first);
        self.point.shot = self.shots.front().map_or(self.point.shot, |(_, shot)| *shot);
        to.send(Done::Batch(Checkpoint { held, ..self.point.clone() })).is_ok()
    }

    /// The top left of padded pictures. One alone stays where it is.
    fn crop(&self, mut padded: Vec<f32>, pictures: &mut Vec<Vec<f32>>) {
        let (from, to) = (self.view.geometry().padded, self.view.geometry().output);
        let (line, kept) = (3 * from.w, 3 * to.w);
        if padded.len() == 3 * from.pixels() {
            (1..to.h).filter(|_| kept < line).for_each(|y| padded.copy_within(y * line..y * line + kept, y * kept));
            padded.truncate(3 * to.pixels());
            return pictures.push(padded);
        }
        let crop = |picture: &[f32]| {
            let mut cropped = self.view.pool().take(3 * to.pixels());
            let lines = picture.chunks_exact(line).zip(cropped.chunks_exact_mut(kept));
            lines.for_each(|(line, cropped)| cropped.copy_from_slice(&line[..kept]));
            cropped
        };
        pictures.par_extend(padded.par_chunks_exact(3 * from.pixels()).map(crop));
    }

    /// Alpha is guided by the pictures before their colours are corrected.
    fn finish(&self, slice: join::Slice<Vec<Arc<Frame>>>) -> Vec<Frame> {
        let (mut pictures, inputs) = (slice.frames, slice.payload);
        if pictures.is_empty() {
            return inputs.into_iter().map(|frame| self.hand_on(frame)).collect();
        }
        let size = self.view.geometry().output;
        low_band::apply(self.settings.low_band, &mut pictures, &inputs, self.view.geometry());
        let alphas = self.alphas(&pictures, &inputs, size);
        if self.settings.color != Color::None {
            let style = inputs.par_iter().map(|frame| self.view.cropped(frame)).collect();
            self.settings.color.apply(&mut pictures, style, size);
        }
        let done = inputs.into_iter().filter_map(Arc::into_inner);
        done.for_each(|frame| self.view.frames().give(frame.samples));
        pictures.into_par_iter().zip(alphas).map(|(picture, alpha)| self.frame(picture, alpha)).collect()
    }

    fn frame(&self, picture: Vec<f32>, alpha: Option<Vec<f32>>) -> Frame {
        let idle = self.view.frames().find(self.depth, picture.len());
        let mut samples = idle.unwrap_or_else(|| Samples::black(self.depth, picture.len()));
        samples.set_between(&picture, [BLACK, WHITE]);
        self.view.pool().give(picture);
        let alpha = alpha.map(|alpha| Samples::from_unit(&alpha, self.depth));
        Frame { size: self.view.geometry().output, samples, alpha }
    }

    /// A frame that nobody computed with: what its picture would come to, and without one where it has the right size and
    /// depth.
    fn hand_on(&self, frame: Arc<Frame>) -> Frame {
        match (frame.size, frame.depth()) == (self.view.geometry().output, self.depth) {
            true => Arc::unwrap_or_clone(frame),
            false => self.frame(self.view.cropped(&frame), None),
        }
    }

    /// The alpha of every frame whose input has one.
    fn alphas(&self, pictures: &[Vec<f32>], inputs: &[Arc<Frame>], size: Size) -> Vec<Option<Vec<f32>>> {
        let (places, originals): (Vec<usize>, Vec<&Samples>) =
            inputs.iter().enumerate().filter_map(|(i, frame)| Some((i, frame.alpha.as_ref()?))).unzip();
        let mut resized: Vec<Vec<f32>> = originals.iter().map(|alpha| self.view.alpha(alpha)).collect();
        let guides: Vec<&[f32]> = places.iter().map(|&i| &pictures[i][..]).collect();
        alpha::refine(&mut resized, &originals, &guides, size, self.settings.alpha_range);
        let mut alphas = vec![None; inputs.len()];
        places.into_iter().zip(resized).for_each(|(i, alpha)| alphas[i] = Some(alpha));
        alphas
    }
}
