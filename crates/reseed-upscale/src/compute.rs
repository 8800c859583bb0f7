//! The third stage: the networks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use reseed_model::plan::{Cut, slices};
use reseed_model::{Half, Stream};
use reseed_ops::{CopyTime, Hw, Ops, Thw};

use crate::error::Result;
use crate::keep::Outlet;
use crate::latent::Latent;
use crate::noise::noised_condition;
use crate::phase::{Phase, PhaseCell};
use crate::prepare::Slice;
use crate::report::timed;
use crate::settings::Settings;
use crate::upscaler::Model;
use crate::view::View;

/// Time that the networks took.
#[derive(Default)]
pub struct PhaseTimes {
    pub encode: Duration,
    pub upscale: Duration,
    pub decode: Duration,
    pub streaming: CopyTime,
}

/// Sends slices on as they are, until there are none or nobody wants more.
pub fn pass(from: &Receiver<Slice>, to: &Outlet) -> PhaseTimes {
    for slice in from {
        if to.send(slice).is_err() {
            break;
        }
    }
    PhaseTimes::default()
}

/// Runs batches through the networks.
pub struct Compute<'a> {
    pub ops: &'a dyn Ops,
    pub model: Model<'a>,
    pub settings: &'a Settings,
    pub view: &'a View,
    /// Batches that were done before the job went on.
    pub done: usize,
    pub phase: &'a PhaseCell,
    pub stop: &'a AtomicBool,
}

impl Compute<'_> {
    /// Takes slices and sends their restored pictures, until there are none or nobody wants more.
    pub fn run(&self, from: &Receiver<Slice>, to: &Outlet) -> Result<PhaseTimes> {
        let mut times = PhaseTimes::default();
        let mut encoder = self.encoder();
        let mut latent = Vec::new();
        for Slice { pictures, batch } in self.waiting(from) {
            if self.stopped() {
                break;
            }
            if let Some(batch) = batch.as_ref().filter(|batch| batch.number < self.done) {
                let batch = Some(batch.clone());
                if to.send(Slice { pictures, batch }).is_err() {
                    break;
                }
                continue;
            }
            self.phase.set(Phase::Encode);
            latent.extend(timed(&mut times.encode, || self.encode(&mut encoder, &pictures, batch.is_some()))?);
            self.view.pool().give(pictures);
            let Some(batch) = batch else { continue };
            let condition = self.latent(std::mem::take(&mut latent));
            encoder = self.encoder();
            if self.stopped() {
                break;
            }
            self.phase.set(Phase::Upscale);
            self.model.step.copy_time()?;
            let restored = timed(&mut times.upscale, || self.step(batch.number, condition))?;
            times.streaming += self.model.step.copy_time()?;
            self.phase.set(Phase::Decode);
            let mut batch = Some(batch);
            let mut decoder = self.decoder(restored.thw);
            for range in slices(restored.thw.t, self.settings.vae.slice) {
                if self.stopped() {
                    return Ok(times);
                }
                let last = range.end == restored.thw.t;
                let frame = restored.values.len() / restored.thw.t;
                let values = &restored.values[range.start * frame..range.end * frame];
                let pictures = timed(&mut times.decode, || decoder.step(values, last))?;
                let batch = if last { batch.take() } else { None };
                if to.send(Slice { pictures, batch }).is_err() {
                    return Ok(times);
                }
            }
        }
        Ok(times)
    }

    /// What comes, with the phase set while nothing does.
    fn waiting<'s>(&'s self, from: &'s Receiver<Slice>) -> impl Iterator<Item = Slice> + 's {
        std::iter::from_fn(|| {
            self.phase.set(Phase::Wait);
            from.recv().ok()
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Pictures to what the transformer is shown: the mean of their latents' distribution, scaled.
    fn encode(&self, encoder: &mut Stream, pictures: &[f32], last: bool) -> Result<Vec<f32>> {
        let config = &self.model.vae.config;
        let moments = encoder.step(pictures, last)?;
        let means = moments.chunks_exact(2 * config.latent).flat_map(|moments| &moments[..config.latent]);
        Ok(means.map(|mean| mean * config.scaling_factor).collect())
    }

    /// The transformer's step, scaled back for the decoder.
    fn step(&self, batch: usize, mut condition: Latent) -> Result<Latent> {
        let config = &self.model.vae.config;
        let scale = self.settings.latent_noise;
        let (noise, second) = self.settings.noise.draw(batch, condition.thw, config.latent, scale > 0.0)?;
        if let Some(second) = second {
            noised_condition(&mut condition, &noise, &second, scale);
        }
        let mut restored = self.model.step.run(&condition, &noise)?;
        assert_eq!(restored.thw, condition.thw, "a step keeps the latent's shape");
        restored.values.iter_mut().for_each(|value| *value /= config.scaling_factor);
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

    fn encoder(&self) -> Stream<'_> {
        self.stream(&self.model.vae.encoder, Cut::Pictures, self.padded())
    }

    fn decoder(&self, thw: Thw) -> Stream<'_> {
        self.stream(&self.model.vae.decoder, Cut::Latents, Hw::new(thw.h, thw.w))
    }

    fn stream<'s>(&'s self, half: &'s dyn Half, cut: Cut, plane: Hw) -> Stream<'s> {
        let plan = &self.settings.vae;
        let tiles = plan.tiling.and_then(|tiling| tiling.tiles(cut, plane, self.model.vae.config.spatial_factor()));
        let keeping = if cut == Cut::Pictures { &plan.encode } else { &plan.decode };
        Stream::new(self.ops, half, plane, keeping).tiled(tiles, plan.workers)
    }
}
