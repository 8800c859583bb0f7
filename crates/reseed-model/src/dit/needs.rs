//! What a transformer takes of a device, before it is there.

use reseed_ops::{Cost, Shape, Thw, Timing, TraceOps, TraceReport, Transfer};

use super::Dit;
use super::config::Config;
use crate::error::Result;
use crate::weights::Source;

/// A transformer, a size of latent and a number of tokens of text.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The transformer.
    pub source: &'a dyn Source,
    /// Frames, rows and columns of the latent.
    pub latent: Thw,
    /// Tokens of text.
    pub text: usize,
}

/// Layers that do not come anew for every batch; the others do, each while the one before it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// So many stay on the device.
    Stay(usize),
    /// All wait in the host's memory. So many come into the tensors' memory for several batches in a row.
    Come(usize),
}

/// What one step takes with some of the layers on the device.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// All layers.
    pub layers: usize,
    /// Those that are on the device, for ever or for several batches.
    pub resident: usize,
    /// Bytes of weights on the device.
    pub weights: usize,
    /// Bytes of weights in the host's memory.
    pub hosted: usize,
    /// Bytes of one piece of memory that holds all else, layers that come and go included.
    pub arena: usize,
    /// Most bytes of it in use at once.
    pub peak: usize,
    /// Arithmetic and traffic.
    pub cost: Cost,
    /// Nanoseconds until the layers are there that come for several batches.
    pub coming: u64,
    /// Nanoseconds of a step behind that.
    pub time: u64,
    /// Nanoseconds of these that it waits for layers.
    pub waited: u64,
}

impl Case<'_> {
    /// With these layers on the device.
    pub fn needs(&self, trace: &TraceOps, on_device: Layers) -> Result<Needs> {
        let (stay, come) = match on_device {
            Layers::Stay(count) => (count, 0),
            Layers::Come(count) => (0, count),
        };
        let waiting = Dit::load_keeping(trace, self.source, stay)?;
        let dit = waiting.fetch_layers(trace, come)?;
        trace.finish()?;
        let coming = trace.report().time;
        let layers = dit.config.layers;
        let both = Shape::clip(Thw { t: 2 * self.latent.t, ..self.latent }, dit.config.latent);
        let plan = dit.plan(trace, self.latent, self.text)?;
        let latents = trace.upload(both, &[])?;
        let text = trace.upload(Shape::from([self.text, dit.config.text_width]), &[])?;
        dit.sample(trace, &latents, &text, &plan)?;
        let TraceReport { weights, hosted, arena, peak, cost, time, waited, .. } = trace.report();
        let resident = (stay + come).min(layers);
        let (time, waited) = (time - coming, waited - coming);
        Ok(Needs { layers, resident, weights, hosted, arena, peak, cost, coming, time, waited })
    }

    /// With as many layers on the device as `fits` allows; `None` where it allows not even none.
    pub fn most(
        &self,
        trace: &dyn Fn() -> TraceOps,
        on_device: fn(usize) -> Layers,
        fits: impl Fn(&Needs) -> bool,
    ) -> Result<Option<Needs>> {
        let layers = Config::detect(self.source)?.layers;
        for count in (0..=layers).rev() {
            let needs = self.needs(&trace(), on_device(count))?;
            if fits(&needs) {
                return Ok(Some(needs));
            }
        }
        Ok(None)
    }
}
