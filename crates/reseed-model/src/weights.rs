//! Sources of weights: files and the weight formula.

mod element;
pub mod formula;
pub mod gguf;
pub mod quantized;
pub mod replaced;
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

/// A file or bytes in memory.
pub(crate) trait Reader: Read + Seek + Send {}

impl<T: Read + Seek + Send> Reader for T {}

/// Reads `count` bytes of an open file.
fn bytes_at(file: &Mutex<impl Read + Seek>, path: &Path, start: u64, count: usize) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.into(), source };
    let mut bytes = vec![0; count];
    let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// Limit of the tensors of a network. The public 7B transformer has about 1,200.
const MAX_TENSORS: usize = 1 << 14;
/// Limit of the bytes of a tensor name. The public names have at most 60.
const MAX_NAME: usize = 256;

/// Why a tensor name is refused, if it is. An error prints the name in one line.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    match name {
        name if name.len() > MAX_NAME => {
            Some(format!("a tensor name has {} bytes; at most {MAX_NAME} are supported", name.len()))
        }
        name if name.contains(char::is_control) => {
            Some(format!("the tensor name \"{}\" has control characters", name.escape_debug()))
        }
        _ => None,
    }
}

/// Checks that a source has no more tensors than a network of this family can have.
pub(crate) fn check_count(source: &dyn Source, network: Network) -> Result<()> {
    check_limit(source, network, "tensors", source.shapes().len(), MAX_TENSORS)
}

/// Checks a size that a source claims for its network.
pub(crate) fn check_limit(
    source: &dyn Source,
    network: Network,
    what: &'static str,
    found: usize,
    limit: usize,
) -> Result<()> {
    match found <= limit {
        true => Ok(()),
        false => Err(Error::OverLimit { path: source.path().into(), what, found, limit, network }),
    }
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
