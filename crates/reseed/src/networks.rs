//! The networks of a model, ready to run.

use std::sync::{Arc, Mutex, PoisonError};

use reseed_model::dit::{DitPlan, Start};
use reseed_model::weights::Source;
use reseed_model::{Config, Dit, TextEmbedding, Vae};
use reseed_ops::{CopyTime, Device, Shape, Thw};

use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::step::Step;

/// The VAEs of this family: channels of a frame, pixels and frames per latent.
const VAE_FACTORS: (usize, usize, usize) = (3, 8, 4);

/// The configuration of a VAE of this family; an error before anything is planned for another one, because a frame has
/// three channels and jobs pad to its factors.
pub fn check_family(vae: &dyn Source) -> Result<Config> {
    let config = Config::detect(vae)?;
    match (config.image, config.spatial_factor(), config.temporal_factor()) == VAE_FACTORS {
        true => Ok(config),
        false => Err(Error::OtherVae { path: vae.path().into() }),
    }
}

/// Where the weights of networks are between their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkResidency {
    /// The VAE and so many layers of the transformer are on the device; the other layers are streamed from host memory.
    Device(usize),
    /// In host memory; each network is prefetched for its turn.
    Host,
}

/// The networks of a model on their devices.
pub struct Networks {
    vae: Vae,
    dit: Dit,
    text: Arc<TextEmbedding>,
}

impl Networks {
    /// Loads encoder, decoder and transformer, each on its device. Weights can be in host memory only where encoder and
    /// decoder share a device. `text` gets the width that the transformer needs.
    pub fn load(
        (coders, vae): ([&dyn Device; 2], &dyn Source),
        (dit_ops, dit): (&dyn Device, &dyn Source),
        residency: NetworkResidency,
        text: impl FnOnce(usize) -> reseed_model::Result<TextEmbedding>,
    ) -> Result<Networks> {
        let config = check_family(vae)?;
        let sizes = reseed_model::dit::Config::detect(dit)?;
        if config.latent != sizes.latent {
            let (vae, dit) = (vae.path().into(), dit.path().into());
            return Err(Error::Mismatch { vae, vae_channels: config.latent, dit, dit_channels: sizes.latent });
        }
        let text = Arc::new(text(sizes.text_width)?);
        let (vae, resident) = match residency {
            NetworkResidency::Device(layers) => (Vae::load_on(coders, vae)?, layers),
            NetworkResidency::Host => (Vae::load_offloaded(coders[0], vae)?, 0),
        };
        Ok(Networks { vae, dit: Dit::load_streamed(dit_ops, dit, resident)?, text })
    }

    /// The VAE.
    pub fn vae(&self) -> &Vae {
        &self.vae
    }

    /// The transformer on the device that it was loaded on, or on a wrapper of that, such as a profiler.
    pub fn transformer<'a>(&self, ops: &'a dyn Device) -> Transformer<'a> {
        Transformer { ops, dit: self.dit.clone(), text: self.text.clone(), plan: Arc::default() }
    }
}

/// The size of a latent and its plan.
type Planned = (Thw, Arc<DitPlan>);

/// The diffusion transformer on a device, with its text embedding.
pub struct Transformer<'a> {
    ops: &'a dyn Device,
    dit: Dit,
    text: Arc<TextEmbedding>,
    /// For the size of the last latent: most batches of a job have one size.
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
                // Dropped first, so that two plans never need memory at once.
                *last = None;
                let plan = Arc::new(self.dit.plan(self.ops, thw, self.text.shape.dims()[0])?);
                *last = Some((thw, plan.clone()));
                Ok(plan)
            }
        }
    }
}

impl Step for Transformer<'_> {
    fn run(&self, condition: &Latent, start: &Latent) -> reseed_model::Result<Latent> {
        let thw = condition.thw;
        let plan = self.plan(thw)?;
        let upload = |latent: &Latent| self.ops.upload(Shape::clip(thw, latent.channels()), &latent.values);
        let noise = self.starts_from_noise().then(|| upload(start)).transpose()?;
        let latents = Dit::joined(self.ops, noise, upload(condition)?)?;
        // A few kilobytes per batch, so that the VAE has all device memory between steps.
        let text = self.ops.upload(self.text.shape, &self.text.values)?;
        let restored = self.dit.sample(self.ops, &latents, &text, &plan)?;
        Ok(Latent { thw, values: self.ops.download(&restored)? })
    }

    fn starts_from_noise(&self) -> bool {
        self.dit.config.start == Start::Noise
    }

    fn prefetch_layers(&self, layers: usize) -> reseed_model::Result<Option<Box<dyn Step + '_>>> {
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
