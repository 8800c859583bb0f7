//! The embedded default model: a small model of the same family, trained for this engine (`training/`), for first tests
//! and small machines.
//!
//! Its files are part of the binary, packed by `tools/nano`. A tensor is unpacked when it is read. `sharp`
//! is a second setting of the same model: other weights of the decoder's fine levels, trained to draw texture.

mod codes;
mod packed;

use std::path::Path;

use crate::error::Result;
use crate::weights::replaced::Replaced;
use crate::weights::safetensors::{Content, Safetensors};
use packed::Packed;

/// Name of the model.
pub const NAME: &str = "nano";
/// Name of the model in its setting `sharp`.
pub const SHARP_NAME: &str = "nano-sharp";
/// Bytes of the files of the VAE and the transformer.
pub const BYTES: usize = 18_529_208;
/// Bytes of the weights that `sharp` replaces.
pub const SHARP_BYTES: usize = 341_596;

const VAE: &[u8] = include_bytes!("../assets/nano/vae.safetensors.packed");
const SHARP: &[u8] = include_bytes!("../assets/nano/sharp.safetensors.packed");
const DIT: &[u8] = include_bytes!("../assets/nano/dit.safetensors.packed");

/// The packed files of a setting: its content, for those who compare models.
pub fn packed(sharp: bool) -> Vec<&'static [u8]> {
    let sharp = sharp.then_some(SHARP);
    [VAE, DIT].into_iter().chain(sharp).collect()
}

/// The file of the VAE.
pub fn vae_file() -> Vec<u8> {
    Packed::new(VAE).unpacked()
}

/// The file of the transformer. It includes the text embedding: see
/// [`TextEmbedding::from_weights`](crate::TextEmbedding::from_weights).
pub fn dit_file() -> Vec<u8> {
    Packed::new(DIT).unpacked()
}

/// The file of the weights that `sharp` replaces in the VAE.
pub fn sharp_file() -> Vec<u8> {
    Packed::new(SHARP).unpacked()
}

/// Opens the weights of the VAE.
pub fn vae() -> Result<Safetensors> {
    open("nano (VAE)", VAE)
}

/// Opens the weights of the VAE in the setting `sharp`.
pub fn sharp_vae() -> Result<Replaced<Safetensors>> {
    let by = open("nano-sharp (VAE)", SHARP)?;
    Ok(Replaced { base: vae()?, by })
}

/// Opens the weights of the transformer.
pub fn dit() -> Result<Safetensors> {
    open("nano (transformer)", DIT)
}

/// Opens a packed file. `name` identifies it in errors.
fn open(name: &'static str, file: &'static [u8]) -> Result<Safetensors> {
    let packed = Packed::new(file);
    let length = packed.length() as u64;
    Safetensors::from_reader(Path::new(name), Box::new(packed), length, Content::Tensors, &|_| true)
}
