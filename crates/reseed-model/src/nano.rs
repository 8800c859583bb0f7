//! The model that travels inside the library: a small one of the same family, trained for this engine (`training/`), for a
//! first look and for machines that a large one is too much for.
//!
//! Its files are part of the program and stay where they are: nothing is read from them before a tensor is wanted.

use crate::error::Result;
use crate::weights::safetensors::Safetensors;

/// What it is called.
pub const NAME: &str = "nano";

/// The VAE's file.
pub static VAE: &[u8] = include_bytes!("../assets/nano/vae.safetensors");
/// The transformer's file, which holds its text as well ([`Text::within`](crate::Text::within)).
pub static DIT: &[u8] = include_bytes!("../assets/nano/dit.safetensors");

/// The VAE's weights.
pub fn vae() -> Result<Safetensors> {
    Safetensors::embedded("nano (VAE)", VAE)
}

/// The transformer's weights.
pub fn dit() -> Result<Safetensors> {
    Safetensors::embedded("nano (transformer)", DIT)
}
