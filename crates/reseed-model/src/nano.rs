//! The embedded default model: a small model of the same family, trained for this engine (`training/`), for first tests
//! and small machines.
//!
//! Its files are part of the binary, packed by `tools/nano`. They are unpacked when the model is first opened. `sharp`
//! is a second setting of the same model: other weights of the decoder's fine levels, trained to draw texture.

mod packed;

use std::sync::LazyLock;

use crate::error::Result;
use crate::weights::replaced::Replaced;
use crate::weights::safetensors::Safetensors;

/// Name of the model.
pub const NAME: &str = "nano";
/// Name of the model in its setting `sharp`.
pub const SHARP_NAME: &str = "nano-sharp";
/// Bytes of the files of the VAE and the transformer.
pub const BYTES: usize = 15_495_496;
/// Bytes of the weights that `sharp` replaces.
pub const SHARP_BYTES: usize = 341_596;

static VAE: LazyLock<&[u8]> = LazyLock::new(|| packed::unpack(include_bytes!("../assets/nano/vae.safetensors.packed")));
static SHARP: LazyLock<&[u8]> =
    LazyLock::new(|| packed::unpack(include_bytes!("../assets/nano/sharp.safetensors.packed")));
static DIT: LazyLock<&[u8]> = LazyLock::new(|| packed::unpack(include_bytes!("../assets/nano/dit.safetensors.packed")));

/// The file of the VAE.
pub fn vae_file() -> &'static [u8] {
    &VAE
}

/// The file of the transformer. It includes the text embedding: see
/// [`TextEmbedding::from_weights`](crate::TextEmbedding::from_weights).
pub fn dit_file() -> &'static [u8] {
    &DIT
}

/// The file of the weights that `sharp` replaces in the VAE.
pub fn sharp_file() -> &'static [u8] {
    &SHARP
}

/// Opens the weights of the VAE.
pub fn vae() -> Result<Safetensors> {
    Safetensors::embedded("nano (VAE)", vae_file())
}

/// Opens the weights of the VAE in the setting `sharp`.
pub fn sharp_vae() -> Result<Replaced<Safetensors>> {
    let by = Safetensors::embedded("nano-sharp (VAE)", sharp_file())?;
    Ok(Replaced { base: vae()?, by })
}

/// Opens the weights of the transformer.
pub fn dit() -> Result<Safetensors> {
    Safetensors::embedded("nano (transformer)", dit_file())
}
