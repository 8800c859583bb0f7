//! Not part of the public interface: parsers of bytes in memory, for fuzzing. May change in any version.

use std::io::Cursor;
use std::path::Path;

use reseed_ops::Shape;

use crate::error::Result;
use crate::weights::gguf::Gguf;
use crate::weights::safetensors::Safetensors;
use crate::weights::torch;

const NAME: &str = "bytes";

/// A safetensors file.
pub fn safetensors(bytes: Vec<u8>) -> Result<Safetensors> {
    let length = bytes.len() as u64;
    Safetensors::from_reader(Path::new(NAME), Box::new(Cursor::new(bytes)), length, &|_| true)
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
