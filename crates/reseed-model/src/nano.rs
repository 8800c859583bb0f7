//! The embedded default model: a small model of the same family, trained for this engine (`training/`), for first tests
//! and small machines.
//!
//! Its files are part of the binary. Opening them reads only the headers; a tensor is read on request.

use crate::error::Result;
use crate::weights::safetensors::Safetensors;

/// Name of the model.
pub const NAME: &str = "nano";

/// Bytes of the VAE file.
pub static VAE: &[u8] = include_bytes!("../assets/nano/vae.safetensors");
/// Bytes of the transformer file. It includes the text embedding: see
/// [`TextEmbedding::from_weights`](crate::TextEmbedding::from_weights).
pub static DIT: &[u8] = include_bytes!("../assets/nano/dit.safetensors");

/// Opens the weights of the VAE.
pub fn vae() -> Result<Safetensors> {
    Safetensors::embedded("nano (VAE)", VAE)
}

/// Opens the weights of the transformer.
pub fn dit() -> Result<Safetensors> {
    Safetensors::embedded("nano (transformer)", DIT)
}
