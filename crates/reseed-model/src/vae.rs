//! The causal video VAE: pictures to latents and back, slice by slice.

mod blocks;
mod decoder;
mod encoder;
mod parts;
mod state;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use state::State;

use reseed_ops::{Hw, Ops, Tensor};

use crate::config::Config;
use crate::error::Result;
use crate::load::Loader;
use crate::noise;
use crate::weights::{self, Network, Source};

/// One half of the VAE: a function of a slice and of the clip's cache.
pub trait Coder: Send + Sync {
    /// Channels of a slice.
    fn channels_in(&self) -> usize;
    /// Channels of what comes out.
    fn channels_out(&self) -> usize;
    /// Output frames for `frames` frames; a clip's first frame stands alone.
    fn frames_out(&self, frames: usize, starts: bool) -> usize;
    /// Size of the output plane.
    fn plane_out(&self, plane: Hw) -> Hw;
    /// Slots of layers, of which all or fewer keep a cache.
    fn slots(&self) -> usize;
    /// Runs one slice and moves the clip's state on.
    fn run(&self, ops: &dyn Ops, slice: Tensor, state: &mut State) -> Result<Tensor>;
    /// Where layers wait in the host's memory: the same half with all of them on their way to the device, into memory like
    /// that of tensors, for as long as it lives.
    fn prefetch(&self, ops: &dyn Ops) -> Result<Option<Box<dyn Coder>>>;
}

/// Encoder, decoder and their sizes.
pub struct Vae {
    /// The sizes.
    pub config: Config,
    /// Pictures to moments.
    pub encoder: Encoder,
    /// Latents to pictures.
    pub decoder: Decoder,
}

impl Vae {
    /// Loads both halves.
    pub fn load(ops: &dyn Ops, source: &dyn Source) -> Result<Vae> {
        Vae::load_halves([ops; 2], source)
    }

    /// Loads encoder and decoder for a device each.
    pub fn load_halves(ops: [&dyn Ops; 2], source: &dyn Source) -> Result<Vae> {
        Vae::loaded(ops, source, false)
    }

    /// Loads both halves to wait in the host's memory, from where [`Coder::prefetch`] brings them.
    pub fn load_offloaded(ops: &dyn Ops, source: &dyn Source) -> Result<Vae> {
        Vae::loaded([ops; 2], source, true)
    }

    fn loaded([encoder, decoder]: [&dyn Ops; 2], source: &dyn Source, offloaded: bool) -> Result<Vae> {
        let config = checked(source)?;
        let encoder = Encoder::load(&Loader::new(encoder, source, &config).offloaded(offloaded))?;
        let decoder = Decoder::load(&Loader::new(decoder, source, &config).offloaded(offloaded))?;
        Ok(Vae { config, encoder, decoder })
    }

    /// Loads the encoder alone; the whole file is checked all the same.
    pub fn load_encoder(ops: &dyn Ops, source: &dyn Source) -> Result<(Config, Encoder)> {
        let config = checked(source)?;
        let encoder = Encoder::load(&Loader::new(ops, source, &config))?;
        Ok((config, encoder))
    }

    /// Loads the decoder alone; the whole file is checked all the same.
    pub fn load_decoder(ops: &dyn Ops, source: &dyn Source) -> Result<(Config, Decoder)> {
        let config = checked(source)?;
        let decoder = Decoder::load(&Loader::new(ops, source, &config))?;
        Ok((config, decoder))
    }

    /// The latent's mean, as the transformer wants it.
    pub fn mean(&self, ops: &dyn Ops, moments: &Tensor) -> Result<Tensor> {
        Ok(ops.gaussian(moments, None, self.config.scaling_factor)?)
    }

    /// A draw from the latent's distribution, as the transformer wants it; the same seed gives the same noise.
    pub fn sample(&self, ops: &dyn Ops, moments: &Tensor, seed: u64) -> Result<Tensor> {
        let shape = reseed_ops::Shape::clip(moments.thw(), self.config.latent);
        let noise = ops.upload(shape, &noise::normal(seed, shape.count()))?;
        Ok(ops.gaussian(moments, Some(&noise), self.config.scaling_factor)?)
    }
}

fn checked(source: &dyn Source) -> Result<Config> {
    let config = Config::detect(source)?;
    weights::check(source, Network::Vae, &config.tensors(), &[])?;
    Ok(config)
}
