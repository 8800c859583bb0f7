//! The networks of a model, ready to run.

use std::sync::{Arc, Mutex, PoisonError};

use reseed_model::dit::{DitPlan, Start};
use reseed_model::weights::Source;
use reseed_model::{Dit, TextEmbedding, Vae};
use reseed_ops::{CopyTime, Device, Shape, Thw};

use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::upscaler::Step;

/// What the VAEs of this family have in common: channels of a picture, pixels and frames a latent.
const VAE_FACTORS: (usize, usize, usize) = (3, 8, 4);

/// Where a network's weights are between its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkResidency {
    /// All of the VAE's stay on the device, and so many of the transformer's layers; the others come when they are wanted.
    Device(usize),
    /// In the host's memory, from where each network's come for its turn.
    Host,
}

/// The networks of a model on their devices. The two may be one device, or two types of one.
pub struct Networks {
    vae: Vae,
    dit: Dit,
    text: Arc<TextEmbedding>,
}

impl Networks {
    /// Loads the VAE's halves, encoder first, and the transformer for a device each. Weights wait for their turn only where
    /// both halves have one device. `text` is asked for once the width that the transformer needs is known.
    pub fn load(
        (halves, vae): ([&dyn Device; 2], &dyn Source),
        (dit_ops, dit): (&dyn Device, &dyn Source),
        between: NetworkResidency,
        text: impl FnOnce(usize) -> reseed_model::Result<TextEmbedding>,
    ) -> Result<Networks> {
        let config = reseed_model::Config::detect(vae)?;
        if (config.image, config.spatial_factor(), config.temporal_factor()) != VAE_FACTORS {
            return Err(Error::OtherVae { path: vae.path().into() });
        }
        let sizes = reseed_model::dit::Config::detect(dit)?;
        if config.latent != sizes.latent {
            let (vae, dit) = (vae.path().into(), dit.path().into());
            return Err(Error::Strangers { vae, vae_channels: config.latent, dit, dit_channels: sizes.latent });
        }
        let text = Arc::new(text(sizes.text_width)?);
        let (vae, resident) = match between {
            NetworkResidency::Device(layers) => (Vae::load_on(halves, vae)?, layers),
            NetworkResidency::Host => (Vae::load_offloaded(halves[0], vae)?, 0),
        };
        Ok(Networks { vae, dit: Dit::load_streamed(dit_ops, dit, resident)?, text })
    }

    /// Pictures to latents and back.
    pub fn vae(&self) -> &Vae {
        &self.vae
    }

    /// Latents to restored ones, on the device that the transformer was loaded for, or on one that stands before it, such as
    /// a profiler.
    pub fn transformer<'a>(&self, ops: &'a dyn Device) -> Transformer<'a> {
        Transformer { ops, dit: self.dit.clone(), text: self.text.clone(), plan: Arc::default() }
    }
}

/// A size of latent and its plan.
type Planned = (Thw, Arc<DitPlan>);

/// The diffusion transformer on a device, with the text that steers it.
pub struct Transformer<'a> {
    ops: &'a dyn Device,
    dit: Dit,
    text: Arc<TextEmbedding>,
    /// Of the last latent's size: most batches of a job have one size.
    plan: Arc<Mutex<Option<Planned>>>,
}

impl<'a> Transformer<'a> {
    /// A loaded transformer.
    pub fn new(ops: &'a dyn Device, dit: Dit, text: TextEmbedding) -> Transformer<'a> {
        Transformer { ops, dit, text: Arc::new(text), plan: Arc::default() }
    }

    fn plan(&self, thw: Thw) -> reseed_model::Result<Arc<DitPlan>> {
        let mut last = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((size, plan)) if *size == thw => Ok(plan.clone()),
            _ => {
                // The old one goes first, so that there is never room needed for two.
                *last = None;
                let plan = Arc::new(self.dit.plan(self.ops, thw, self.text.shape.dims()[0])?);
                *last = Some((thw, plan.clone()));
                Ok(plan)
            }
        }
    }
}

impl Step for Transformer<'_> {
    fn run(&self, condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent> {
        let thw = condition.thw;
        let plan = self.plan(thw)?;
        let both = Shape::clip(Thw { t: 2 * thw.t, ..thw }, condition.channels());
        let start = match self.dit.config.start {
            Start::Noise => noise,
            Start::Condition => condition,
        };
        let latents = self.ops.upload(both, &[&start.values[..], &condition.values].concat())?;
        // A few kilobytes a batch, so that between batches all of the device's memory is the autoencoder's.
        let text = self.ops.upload(self.text.shape, &self.text.values)?;
        let restored = self.dit.sample(self.ops, &latents, &text, &plan)?;
        Ok(Latent { thw, values: self.ops.download(&restored)? })
    }

    fn fetch_layers(&self, layers: usize) -> reseed_model::Result<Option<Box<dyn Step + '_>>> {
        if layers == 0 {
            return Ok(None);
        }
        let dit = self.dit.prefetch_layers(self.ops, layers)?;
        let (text, plan) = (self.text.clone(), self.plan.clone());
        Ok(Some(Box::new(Transformer { ops: self.ops, dit, text, plan })))
    }

    fn copy_time(&self) -> reseed_model::Result<CopyTime> {
        Ok(self.ops.copy_time()?)
    }
}
