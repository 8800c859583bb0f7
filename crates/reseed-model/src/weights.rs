//! Sources of weights: files and the weight formula.

pub mod formula;
pub mod gguf;
pub mod safetensors;
pub(crate) mod torch;

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;

use reseed_ops::{Numbers, Quant, Shape};

pub use crate::error::Network;
use crate::error::{Error, Result};

/// Named tensors that are read on request.
pub trait Source: Send + Sync {
    /// Path of the file, or the name of the source in error messages.
    fn path(&self) -> &Path;

    /// Shapes of all tensors by name.
    fn shapes(&self) -> &BTreeMap<String, Shape>;

    /// A metadata string.
    fn metadata(&self, key: &str) -> Option<&str>;

    /// Reads a tensor as f32. The name must be a key of [`Source::shapes`].
    fn read(&self, name: &str) -> Result<Vec<f32>>;

    /// Quantisation of a tensor, if it is quantised.
    fn quant(&self, _name: &str) -> Option<Quant> {
        None
    }

    /// Reads a tensor in its storage format: quantised if [`Source::quant`] is `Some`, else f32.
    fn numbers(&self, name: &str) -> Result<Numbers> {
        Ok(Numbers::Floats(self.read(name)?))
    }
}

/// Reads `count` bytes of an open file.
fn bytes_at(file: &Mutex<impl Read + Seek>, path: &Path, start: u64, count: usize) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.into(), source };
    let mut bytes = vec![0; count];
    let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// Names and shapes of tensors.
pub(crate) type TensorList = [(String, Shape)];

/// Checks that a source has all `required` tensors and no tensor that is neither required nor `optional`.
pub(crate) fn check(source: &dyn Source, network: Network, required: &TensorList, optional: &TensorList) -> Result<()> {
    let path = || source.path().to_path_buf();
    let may_be_missing: HashSet<&str> = optional.iter().map(|(name, _)| name.as_str()).collect();
    for (name, expected) in required.iter().chain(optional) {
        match source.shapes().get(name) {
            None if may_be_missing.contains(name.as_str()) => {}
            None => return Err(Error::MissingTensor { path: path(), name: name.clone(), network }),
            Some(found) if found != expected => {
                let (name, found, expected) = (name.clone(), *found, *expected);
                return Err(Error::WrongShape { path: path(), name, found, expected });
            }
            Some(_) => {}
        }
    }
    let known: HashSet<&str> = required.iter().chain(optional).map(|(name, _)| name.as_str()).collect();
    let mut unknown = source.shapes().keys().filter(|name| !known.contains(name.as_str()));
    match unknown.next() {
        None => Ok(()),
        Some(first) => Err(Error::UnexpectedTensors { path: path(), first: first.clone(), count: 1 + unknown.count() }),
    }
}
