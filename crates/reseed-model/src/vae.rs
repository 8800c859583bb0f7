//! The causal video VAE: frames to latents and back, slice by slice.

mod blocks;
mod decoder;
mod encoder;
mod parts;
mod prefetch;
mod state;
mod steps;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use state::State;

use reseed_ops::{Device, Hw, Tensor};

use crate::config::Config;
use crate::error::Result;
use crate::load::Loader;
use crate::weights::{self, Network, Source};

/// The encoder or the decoder: a function of a slice and of the clip's temporal caches.
pub trait Coder: Send + Sync {
    /// Channels of a slice.
    fn channels_in(&self) -> usize;
    /// Channels of the output.
    fn channels_out(&self) -> usize;
    /// Output frames for `frames` frames; the first frame of a clip has its own latent.
    fn frames_out(&self, frames: usize, starts: bool) -> usize;
    /// Size of the output plane.
    fn plane_out(&self, plane: Hw) -> Hw;
    /// Number of cache slots: one for each layer that can have a temporal cache.
    fn slots(&self) -> usize;
    /// Runs one slice and updates the clip's state.
    fn run(&self, ops: &dyn Device, slice: Tensor, state: &mut State) -> Result<Tensor>;
    /// A copy whose weights are prefetched, or `None` if the weights are on the device already. The prefetched weights
    /// use the memory of tensors until the copy is dropped.
    fn prefetch(&self, ops: &dyn Device) -> Result<Option<Box<dyn Coder>>>;
}

/// Encoder, decoder and their sizes.
pub struct Vae {
    /// The sizes.
    pub config: Config,
    /// Frames to moments.
    pub encoder: Encoder,
    /// Latents to frames.
    pub decoder: Decoder,
}

impl Vae {
    /// Loads encoder and decoder.
    pub fn load(ops: &dyn Device, source: &dyn Source) -> Result<Vae> {
        Vae::load_on([ops; 2], source)
    }

    /// Loads the encoder for the first device and the decoder for the second.
    pub fn load_on(ops: [&dyn Device; 2], source: &dyn Source) -> Result<Vae> {
        Vae::loaded(ops, source, false)
    }

    /// Loads encoder and decoder with their weights offloaded; see [`Coder::prefetch`].
    pub fn load_offloaded(ops: &dyn Device, source: &dyn Source) -> Result<Vae> {
        Vae::loaded([ops; 2], source, true)
    }

    fn loaded([encoder, decoder]: [&dyn Device; 2], source: &dyn Source, offloaded: bool) -> Result<Vae> {
        let config = checked(source)?;
        let encoder = Encoder::load(&Loader::new(encoder, source, &config).offloaded(offloaded))?;
        let decoder = Decoder::load(&Loader::new(decoder, source, &config).offloaded(offloaded))?;
        Ok(Vae { config, encoder, decoder })
    }

    /// Loads only the encoder; the whole file is checked.
    pub fn load_encoder(ops: &dyn Device, source: &dyn Source) -> Result<(Config, Encoder)> {
        let config = checked(source)?;
        let encoder = Encoder::load(&Loader::new(ops, source, &config))?;
        Ok((config, encoder))
    }

    /// Loads only the decoder; the whole file is checked.
    pub fn load_decoder(ops: &dyn Device, source: &dyn Source) -> Result<(Config, Decoder)> {
        let config = checked(source)?;
        let decoder = Decoder::load(&Loader::new(ops, source, &config))?;
        Ok((config, decoder))
    }
}

fn checked(source: &dyn Source) -> Result<Config> {
    let config = Config::detect(source)?;
    weights::check(source, Network::Vae, &config.tensors(), &[])?;
    Ok(config)
}
