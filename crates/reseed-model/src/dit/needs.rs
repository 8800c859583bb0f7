//! What a transformer takes of a device, before it is there.

use reseed_ops::{Cost, Ops, Shape, Thw, TraceOps};

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

/// What one step takes with some of the layers on the device.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// All layers.
    pub layers: usize,
    /// Those that stay on the device.
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
}

impl Case<'_> {
    /// With `resident` layers on the device.
    pub fn needs(&self, trace: &TraceOps, resident: usize) -> Result<Needs> {
        let dit = Dit::load_keeping(trace, self.source, resident)?;
        let layers = dit.config.layers;
        let both = Shape::clip(Thw { t: 2 * self.latent.t, ..self.latent }, dit.config.latent);
        let plan = dit.plan(trace, self.latent, self.text)?;
        let latents = trace.upload(both, &[])?;
        let text = trace.upload(Shape::from([self.text, dit.config.text_width]), &[])?;
        dit.sample(trace, &latents, &text, &plan)?;
        let ledger = trace.ledger();
        let (weights, hosted, arena, peak, cost) =
            (ledger.weights, ledger.hosted, ledger.arena, ledger.peak, ledger.cost);
        Ok(Needs { layers, resident: resident.min(layers), weights, hosted, arena, peak, cost })
    }

    /// With as many layers on the device as `fits` allows; `None` where it allows not even none.
    pub fn most(&self, trace: &dyn Fn() -> TraceOps, fits: impl Fn(&Needs) -> bool) -> Result<Option<Needs>> {
        let layers = Config::detect(self.source)?.layers;
        for resident in (0..=layers).rev() {
            let needs = self.needs(&trace(), resident)?;
            if fits(&needs) {
                return Ok(Some(needs));
            }
        }
        Ok(None)
    }
}
