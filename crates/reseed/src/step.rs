//! The networks of a job as the pipeline calls them.

use reseed_model::Vae;
use reseed_ops::CopyTime;

use crate::latent::Latent;

/// One step of the diffusion transformer on any device.
pub trait Step: Send + Sync {
    /// The restored latent of a batch: `condition` is its encoded frames, `start` is what the step starts from. All
    /// three have one shape.
    fn run(&self, condition: &Latent, start: &Latent) -> reseed_model::Result<Latent>;

    /// Whether the step starts from noise. If not, it starts from the condition.
    fn starts_from_noise(&self) -> bool {
        true
    }

    /// The same step with `layers` layers prefetched from host memory for as long as it lives, for several batches.
    fn prefetch_layers(&self, _layers: usize) -> reseed_model::Result<Option<Box<dyn Step + '_>>> {
        Ok(None)
    }

    /// Time of copies between host and device since the last call.
    fn copy_time(&self) -> reseed_model::Result<CopyTime> {
        Ok(CopyTime::default())
    }
}

impl<F: Fn(&Latent, &Latent) -> reseed_model::Result<Latent> + Send + Sync> Step for F {
    fn run(&self, condition: &Latent, start: &Latent) -> reseed_model::Result<Latent> {
        self(condition, start)
    }
}

/// The networks of a job.
#[derive(Clone, Copy)]
pub struct Model<'a> {
    /// Frames to latents and back.
    pub vae: &'a Vae,
    /// Latents to restored latents.
    pub step: &'a dyn Step,
}
