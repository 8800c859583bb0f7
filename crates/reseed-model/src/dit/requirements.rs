//! Memory and time that a transformer requires on a device, estimated on a tracing device.

use reseed_ops::{Cost, Shape, Thw, Timing, TraceOps, TraceReport, Transfer};

use super::Dit;
use super::config::{Config, Start};
use crate::error::Result;
use crate::weights::Source;

/// A transformer, a latent size and a number of text tokens.
#[derive(Clone, Copy)]
pub struct DitWorkload<'a> {
    /// Weights of the transformer.
    pub source: &'a dyn Source,
    /// Frames, rows and columns of the latent.
    pub latent: Thw,
    /// Number of text tokens.
    pub text_tokens: usize,
}

/// Placement of the layers. Layers that are neither resident nor prefetched are streamed: every batch copies each of
/// them while the layer before it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerPlacement {
    /// This many layers stay on the device; the others are streamed.
    Resident(usize),
    /// All layers are in host memory. This many are prefetched into the arena for several batches in a row; the others
    /// are streamed.
    Prefetched(usize),
}

/// Memory and time of one step for a placement of the layers.
#[derive(Clone, Copy, Debug)]
pub struct DitRequirements {
    /// Number of layers.
    pub layers: usize,
    /// Number of resident or prefetched layers.
    pub resident: usize,
    /// Bytes of weights on the device.
    pub weights: usize,
    /// Bytes of weights in host memory.
    pub host_weights: usize,
    /// Bytes of the arena, which holds tensors, prefetched layers and streamed layers.
    pub arena: usize,
    /// Peak bytes in use in the arena.
    pub peak: usize,
    /// Arithmetic and memory traffic.
    pub cost: Cost,
    /// Nanoseconds to prefetch the layers of [`LayerPlacement::Prefetched`].
    pub prefetch_time: u64,
    /// Nanoseconds of a step, without the prefetch time.
    pub time: u64,
    /// Nanoseconds of a step that wait for streamed layers.
    pub waited: u64,
}

impl DitWorkload<'_> {
    /// Requirements of one step with this placement.
    pub fn requirements(&self, trace: &TraceOps, placement: LayerPlacement) -> Result<DitRequirements> {
        let (resident, prefetched) = match placement {
            LayerPlacement::Resident(count) => (count, 0),
            LayerPlacement::Prefetched(count) => (0, count),
        };
        let streamed = Dit::load_streamed(trace, self.source, resident)?;
        let dit = streamed.prefetch_layers(trace, prefetched)?;
        trace.finish()?;
        let prefetch_time = trace.report().time;
        let layers = dit.config.layers;
        let plan = dit.plan(trace, self.latent, self.text_tokens)?;
        let latent = || trace.upload(Shape::clip(self.latent, dit.config.latent), &[]);
        let noise = (dit.config.start == Start::Noise).then(latent).transpose()?;
        let latents = Dit::joined(trace, noise, latent()?)?;
        let text = trace.upload(Shape::from([self.text_tokens, dit.config.text_width]), &[])?;
        dit.sample(trace, &latents, &text, &plan)?;
        let TraceReport { weights, hosted: host_weights, arena, peak, cost, time, waited, .. } = trace.report();
        let resident = (resident + prefetched).min(layers);
        let (time, waited) = (time - prefetch_time, waited - prefetch_time);
        Ok(DitRequirements { layers, resident, weights, host_weights, arena, peak, cost, prefetch_time, time, waited })
    }

    /// Requirements with the largest number of layers that `fits` accepts, or `None` when it does not accept zero.
    pub fn max_layers(
        &self,
        trace: &dyn Fn() -> TraceOps,
        placement: fn(usize) -> LayerPlacement,
        fits: impl Fn(&DitRequirements) -> bool,
    ) -> Result<Option<DitRequirements>> {
        let layers = Config::detect(self.source)?.layers;
        for count in (0..=layers).rev() {
            let requirements = self.requirements(&trace(), placement(count))?;
            if fits(&requirements) {
                return Ok(Some(requirements));
            }
        }
        Ok(None)
    }
}
