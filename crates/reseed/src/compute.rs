//! The third stage: the networks, in turns over windows of batches.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use reseed_model::plan::{TileInput, slices};
use reseed_model::{Coder, Config, SliceData, Stream};
use reseed_ops::{Device, FrameLoader, FrameOps, FrameSamples, Hw, PendingDownload, Thw};

use crate::batch_store::{BatchStore, Turn};
use crate::error::{Error, Result};
use crate::fallback::{Fallback, WideVae};
use crate::latent::Latent;
use crate::noise::{Noise, noised};
use crate::observer::{Event, EventQueue, Warning};
use crate::phase::{Phase, PhaseCell};
use crate::phase_times::PhaseTimes;
use crate::prepare::{Slice, padded_pixels};
use crate::read::FrameBatch;
use crate::report::timed;
use crate::restored::Restored;
use crate::run_plan::{Replanner, RunPlan};
use crate::settings::Settings;
use crate::slice_ends::{SliceInput, SliceOutput};
use crate::step::Model;
use crate::view::View;

/// Runs batches through the networks.
pub struct Compute<'a> {
    /// The decoder's device.
    pub ops: &'a dyn Device,
    pub encoder_ops: &'a dyn Device,
    /// Resizes frames on the encoder's device.
    pub loader: Option<&'a dyn FrameLoader>,
    /// Keeps restored frames on the decoder's device.
    pub frames: Option<&'a dyn FrameOps>,
    pub model: Model<'a>,
    pub settings: &'a Settings,
    pub noise: &'a Noise,
    pub view: &'a View,
    /// Batches that were computed before the job was resumed.
    pub done: usize,
    pub phase: &'a PhaseCell,
    pub stop: &'a AtomicBool,
    pub events: &'a EventQueue,
    /// How the networks run now.
    pub plan: RunPlan,
    pub replanner: Option<&'a dyn Replanner>,
    /// For batches whose values leave the range of the VAE's type.
    pub fallback: Option<&'a dyn Fallback>,
    /// Whether a batch of the job needed it.
    pub fell_back: &'a AtomicBool,
    /// Holds latents until the turn of the next network.
    pub store: Option<&'a dyn BatchStore>,
}

/// Batches between two networks.
type Window = VecDeque<(FrameBatch, Latent)>;

/// The batches of a window that are read so far; a batch can be encoded again after a replan.
struct Encoding {
    window: Window,
    /// The number of the next batch.
    next: usize,
    /// Slices of the batch in hand. Their pixels are empty once they are encoded.
    slices: Vec<Slice>,
    /// Whether the input has ended.
    ended: bool,
}

impl Encoding {
    /// The batch in hand is encoded.
    fn push(&mut self, batch: FrameBatch, latent: Latent) {
        self.window.push_back((batch, latent));
        self.slices.clear();
        self.next += 1;
    }
}

/// The batches of a window that are not decoded yet.
struct Decoding {
    window: Window,
    /// Slices of its first batch that are sent.
    sent: usize,
    /// Whether those do not count, because the batch is decoded again in another type.
    restarts: bool,
}

impl Compute<'_> {
    /// Receives slices and sends restored ones until there are none or the receiver is gone.
    pub fn run(&mut self, from: &dyn SliceInput, to: &dyn SliceOutput) -> Result<PhaseTimes> {
        let (mut times, mut next) = (PhaseTimes::default(), self.done);
        loop {
            let mut encoding = Encoding { window: Window::new(), next, slices: Vec::new(), ended: false };
            self.within(&mut times, |compute, wide, times| {
                compute.encode_window(&mut encoding, (from, to), wide, times).map(|()| true)
            })?;
            let Encoding { window: mut conditions, ended, .. } = encoding;
            next = encoding.next;
            let mut restored = Window::new();
            self.model.step.copy_time()?;
            self.within(&mut times, |compute, _, times| {
                compute.step_window(&mut conditions, &mut restored, times).map(|()| true)
            })?;
            times.streaming += self.model.step.copy_time()?;
            let mut decoding = Decoding { window: restored, sent: 0, restarts: false };
            let wanted =
                self.within(&mut times, |compute, wide, times| compute.decode_window(&mut decoding, to, wide, times))?;
            if ended || !wanted || self.stopped() {
                return Ok(times);
            }
        }
    }

    /// Does `work`, and again with a smaller plan whenever the device runs out of memory. Where values of a batch leave
    /// the range of the VAE's type, `work` does that batch alone with the wide VAE, and then the rest. It frees its
    /// device memory when it returns, and returns `false` when its results are not wanted any more.
    fn within(
        &mut self,
        times: &mut PhaseTimes,
        mut work: impl FnMut(&Self, Option<&WideVae>, &mut PhaseTimes) -> Result<bool>,
    ) -> Result<bool> {
        let mut wide: Option<Arc<WideVae>> = None;
        loop {
            match work(self, wide.as_deref(), times) {
                Ok(true) if wide.is_some() => wide = None,
                Err(Error::Model(error @ reseed_model::Error::Device(reseed_ops::Error::OutOfMemory { .. }))) => {
                    let Some(replan) = self.replanner.and_then(Replanner::smaller) else { return Err(error.into()) };
                    (self.plan.vae, self.plan.layers) = (replan.vae, replan.layers);
                    self.events.push(Event::Replanned { device: replan.device, bytes: replan.bytes });
                }
                Err(error) if wide.is_none() && error.is_out_of_range() => wide = Some(self.fall_back(error)?),
                done => return done,
            }
        }
    }

    /// The wide VAE for the batch in hand. The first such batch of a job is reported.
    fn fall_back(&self, error: Error) -> Result<Arc<WideVae>> {
        let Some(fallback) = self.fallback else { return Err(error) };
        let wide = fallback.open()?;
        let (reason, precision) = (error.to_string(), wide.ops.precision());
        tracing::debug!(reason, %precision, "a batch is computed in a wider type");
        if !self.fell_back.swap(true, Ordering::Relaxed) {
            self.events.push(Event::Warning(Warning::WiderType { reason, precision }));
        }
        Ok(wide)
    }

    /// Encodes batches until the window is full, or one batch with the wide VAE. Batches that an earlier run computed
    /// are forwarded.
    fn encode_window(
        &self,
        encoding: &mut Encoding,
        (from, to): (&dyn SliceInput, &dyn SliceOutput),
        wide: Option<&WideVae>,
        times: &mut PhaseTimes,
    ) -> Result<()> {
        let (ops, encoder) =
            wide.map_or((self.encoder_ops, &self.model.vae.encoder), |wide| (&*wide.ops, &wide.vae.encoder));
        let full = if wide.is_some() { encoding.window.len() + 1 } else { self.plan.window };
        let prefetched = encoder.prefetch(ops)?;
        let coder = prefetched.as_deref().unwrap_or(encoder);
        let stream = || self.stream(ops, coder, TileInput::Frames, self.padded());
        let mut encoder = stream();
        let (mut latent, mut moments, mut next, mut running) = (Vec::new(), Vec::new(), 0, None);
        while encoding.window.len() < full {
            if encoding.slices.is_empty() && self.recall(encoding, from, to) {
                continue;
            }
            if next == encoding.slices.len() && !self.read(encoding, from, to) {
                break;
            }
            self.phase.set(Phase::Encode);
            let slice = &mut encoding.slices[next];
            next += 1;
            let last = slice.batch.is_some();
            let loader = self.loader.filter(|_| wide.is_none());
            let started = timed(&mut times.encode, || self.encode(ops, &mut encoder, slice, loader))?;
            if let Some(before) = running.replace(started) {
                timed(&mut times.encode, || self.append_means(&mut latent, before, &mut moments))?;
            }
            if last {
                let before = running.take().expect("a slice was just started");
                timed(&mut times.encode, || self.append_means(&mut latent, before, &mut moments))?;
                let batch = slice.batch.take().expect("the last slice has the batch");
                self.store.inspect(|store| store.put_latent(Turn::Encode, batch.number, &latent));
                encoding.push(batch, self.latent(std::mem::take(&mut latent)));
                next = 0;
                encoder = stream();
            }
        }
        Ok(())
    }

    /// Starts to encode a slice. A slice without pixels is resized by the loader, or else here.
    fn encode(
        &self,
        ops: &dyn Device,
        encoder: &mut Stream,
        slice: &mut Slice,
        loader: Option<&dyn FrameLoader>,
    ) -> Result<Box<dyn PendingDownload>> {
        let (mut pixels, last) = (std::mem::take(&mut slice.pixels), slice.batch.is_some());
        let moments = match loader.filter(|_| pixels.is_empty()) {
            Some(loader) => {
                let samples: Vec<FrameSamples> = slice.frames.iter().map(|frame| frame.samples()).collect();
                let load = |rows, columns| loader.load(&samples, rows, columns);
                encoder.run(SliceData::Device(samples.len(), &load), last)?
            }
            None => {
                if pixels.is_empty() {
                    pixels = padded_pixels(self.view, &slice.frames)?;
                }
                let moments = encoder.run(SliceData::Values(&pixels), last)?;
                self.view.pixel_pool().recycle(pixels);
                moments
            }
        };
        Ok(ops.start_download(&moments).map_err(reseed_model::Error::from)?)
    }

    /// Takes the next batch with the latent that an earlier run stored; `false` if there is none.
    fn recall(&self, encoding: &mut Encoding, from: &dyn SliceInput, to: &dyn SliceOutput) -> bool {
        let Some(latent) = self.store.and_then(|store| store.get_latent(Turn::Encode, encoding.next)) else {
            return false;
        };
        while self.read(encoding, from, to) {
            let Slice { pixels, batch, .. } = encoding.slices.pop().expect("a slice was just read");
            self.view.pixel_pool().recycle(pixels);
            if let Some(batch) = batch {
                encoding.push(batch, self.latent(latent));
                return true;
            }
        }
        false
    }

    /// Waits for a slice to encode; `false` when there are no more.
    fn read(&self, encoding: &mut Encoding, from: &dyn SliceInput, to: &dyn SliceOutput) -> bool {
        self.phase.set(Phase::Wait);
        loop {
            let slice = if self.stopped() { None } else { from.next() };
            let Some(slice) = slice.filter(|_| !self.stopped()) else { break };
            match slice.batch.as_ref().is_some_and(|batch| batch.number < self.done) {
                false => {
                    encoding.slices.push(slice);
                    return true;
                }
                true if !to.send(slice) => break,
                true => {}
            }
        }
        encoding.ended = true;
        false
    }

    /// The transformer over the whole window.
    fn step_window(&self, from: &mut Window, to: &mut Window, times: &mut PhaseTimes) -> Result<()> {
        if from.is_empty() || self.stopped() {
            return Ok(());
        }
        self.phase.set(Phase::Upscale);
        let prefetched = timed(&mut times.upscale, || self.model.step.prefetch_layers(self.plan.layers))?;
        let model = Model { step: prefetched.as_deref().unwrap_or(self.model.step), ..self.model };
        while let Some((batch, condition)) = from.front().filter(|_| !self.stopped()) {
            let stored = self.store.and_then(|store| store.get_latent(Turn::Step, batch.number));
            let restored = match stored {
                Some(values) => Latent { values, ..*condition },
                None => timed(&mut times.upscale, || self.step(model, batch.number, condition))?,
            };
            to.extend(from.pop_front().map(|(batch, _)| (batch, restored)));
        }
        Ok(())
    }

    /// Decodes the window, or its first batch with the wide VAE, and sends its slices; `false` when the receiver is
    /// gone.
    fn decode_window(
        &self,
        decoding: &mut Decoding,
        to: &dyn SliceOutput,
        wide: Option<&WideVae>,
        times: &mut PhaseTimes,
    ) -> Result<bool> {
        if decoding.window.is_empty() {
            return Ok(true);
        }
        self.phase.set(Phase::Decode);
        let (ops, decoder) = wide.map_or((self.ops, &self.model.vae.decoder), |wide| (&*wide.ops, &wide.vae.decoder));
        let prefetched = decoder.prefetch(ops)?;
        let coder = prefetched.as_deref().unwrap_or(decoder);
        if wide.is_some() && decoding.sent > 0 {
            (decoding.sent, decoding.restarts) = (0, true);
        }
        while let Some((batch, restored)) = decoding.window.front_mut() {
            let thw = restored.thw;
            let mut decoder = self.stream(ops, coder, TileInput::Latents, Hw::new(thw.h, thw.w));
            let (ranges, frame) = (slices(thw.t, self.plan.vae.slice), restored.values.len() / thw.t);
            let mut running: Option<Restored> = None;
            for i in 0..=ranges.len() {
                if self.stopped() {
                    return Ok(false);
                }
                let start = |range: &Range<usize>| {
                    let values = &restored.values[range.start * frame..range.end * frame];
                    timed(&mut times.decode, || -> reseed_model::Result<_> {
                        let decoded = decoder.run(SliceData::Values(values), range.end == thw.t)?;
                        let frames = self.frames.filter(|_| wide.is_none() && !to.stores());
                        Ok(Restored::start(ops, &decoded, frames)?)
                    })
                };
                let started = ranges.get(i).map(start).transpose()?;
                let Some(before) = std::mem::replace(&mut running, started) else { continue };
                let (pixels, kept) = timed(&mut times.decode, || before.wait()).map_err(reseed_model::Error::from)?;
                if i <= decoding.sent {
                    continue;
                }
                let batch = (i == ranges.len()).then(|| batch.clone());
                let restarts = std::mem::take(&mut decoding.restarts);
                if !to.send(Slice { pixels, kept, batch, restarts, ..Slice::default() }) {
                    return Ok(false);
                }
                decoding.sent += 1;
            }
            decoding.window.pop_front();
            decoding.sent = 0;
            if wide.is_some() {
                break;
            }
        }
        Ok(true)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Appends the condition of a slice that is being encoded: the mean of its latents' distribution, scaled. `moments`
    /// is memory for the download.
    fn append_means(
        &self,
        latent: &mut Vec<f32>,
        encoded: Box<dyn PendingDownload>,
        moments: &mut Vec<f32>,
    ) -> Result<()> {
        const PIXELS: usize = 1024; // of a part
        let Config { latent: channels, scaling_factor, .. } = self.model.vae.config;
        encoded.wait(moments).map_err(reseed_model::Error::from)?;
        let before = latent.len();
        latent.resize(before + moments.len() / 2, 0.0);
        let parts = latent[before..].par_chunks_mut(PIXELS * channels).zip(moments.par_chunks(2 * PIXELS * channels));
        parts.for_each(|(means, moments)| {
            for (means, moments) in means.chunks_exact_mut(channels).zip(moments.chunks_exact(2 * channels)) {
                means.iter_mut().zip(moments).for_each(|(to, mean)| *to = mean * scaling_factor);
            }
        });
        Ok(())
    }

    /// The transformer's step, scaled back for the decoder.
    fn step(&self, model: Model, batch: usize, condition: &Latent) -> Result<Latent> {
        let (config, scale) = (&model.vae.config, self.settings.latent_noise);
        let draw = || self.noise.draw(batch, condition.thw, config.latent, scale > 0.0);
        let from_noise = model.step.starts_from_noise();
        let draw = (scale > 0.0 || from_noise).then(draw).transpose()?;
        let noised = draw.as_ref().and_then(|draw| Some(noised(condition, &draw.first, draw.second.as_ref()?, scale)));
        let condition = noised.as_ref().unwrap_or(condition);
        let start = draw.as_ref().filter(|_| from_noise).map_or(condition, |draw| &draw.first);
        let mut restored = model.step.run(condition, start)?;
        assert_eq!(restored.thw, condition.thw, "a step keeps the latent's shape");
        restored.values.par_iter_mut().for_each(|value| *value /= config.scaling_factor);
        self.store.inspect(|store| store.put_latent(Turn::Step, batch, &restored.values));
        Ok(restored)
    }

    fn latent(&self, values: Vec<f32>) -> Latent {
        let plane = self.model.vae.encoder.plane_out(self.padded());
        let t = values.len() / (plane.count() * self.model.vae.config.latent);
        Latent { thw: Thw::new(t, plane.h, plane.w), values }
    }

    fn padded(&self) -> Hw {
        let size = self.view.geometry().padded;
        Hw::new(size.h, size.w)
    }

    fn stream<'s>(&'s self, ops: &'s dyn Device, coder: &'s dyn Coder, input: TileInput, plane: Hw) -> Stream<'s> {
        let plan = &self.plan.vae;
        let (caches, tiling) = match input {
            TileInput::Frames => (&plan.encode, plan.encode_tiling),
            TileInput::Latents => (&plan.decode, plan.decode_tiling),
        };
        let tiles = tiling.and_then(|tiling| tiling.tiles(input, plane, self.model.vae.config.spatial_factor()));
        Stream::new(ops, coder, plane, caches).tiled(tiles, plan.workers)
    }
}
