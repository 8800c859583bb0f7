//! Not part of the public interface: parsers of bytes in memory, for fuzzing. May change in any version.

use std::io::Cursor;
use std::path::Path;

use reseed_ops::Shape;

use crate::dit::cropped;
use crate::error::Result;
use crate::weights::gguf::Gguf;
use crate::weights::quantized::QuantizedSafetensors;
use crate::weights::safetensors::{Content, Safetensors};
use crate::weights::torch;

const NAME: &str = "bytes";

/// A safetensors file.
pub fn safetensors(bytes: Vec<u8>) -> Result<Safetensors> {
    let length = bytes.len() as u64;
    Safetensors::from_reader(Path::new(NAME), Box::new(Cursor::new(bytes)), length, Content::Network, &|_| true)
}

/// A safetensors file of a transformer that may be quantised.
pub fn quantized(bytes: Vec<u8>) -> Result<QuantizedSafetensors> {
    let length = bytes.len() as u64;
    let file = Box::new(Cursor::new(bytes));
    let file = Safetensors::from_reader(Path::new(NAME), file, length, Content::Quantized, &|_| true)?;
    QuantizedSafetensors::new(file).map(cropped)
}

/// A GGUF file.
pub fn gguf(bytes: Vec<u8>) -> Result<Gguf> {
    let length = bytes.len() as u64;
    Gguf::from_reader(Path::new(NAME), Box::new(Cursor::new(bytes)), length)
}

/// A tensor saved by PyTorch.
pub fn torch(bytes: &[u8]) -> Result<(Shape, Vec<f32>)> {
    torch::parse(Path::new(NAME), bytes)
}
