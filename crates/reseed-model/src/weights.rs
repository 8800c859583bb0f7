//! Where weights come from: files, or a formula.

pub mod formula;
pub mod gguf;
pub mod safetensors;
pub mod torch;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;

use reseed_ops::{Numbers, Quant, Shape};

use crate::error::{Error, Result};

/// Named tensors that are read when they are wanted.
pub trait Source: Send + Sync {
    /// What errors call it.
    fn path(&self) -> &Path;

    /// Every tensor's shape.
    fn shapes(&self) -> &BTreeMap<String, Shape>;

    /// A string of the file's metadata.
    fn metadata(&self, key: &str) -> Option<&str>;

    /// A tensor's values. The name must be one of [`Source::shapes`].
    fn read(&self, name: &str) -> Result<Vec<f32>>;

    /// How a tensor is stored, if in fewer bits than anything computes with.
    fn quant(&self, _name: &str) -> Option<Quant> {
        None
    }

    /// A tensor's values as they are stored: [`Source::quant`] says how.
    fn numbers(&self, name: &str) -> Result<Numbers> {
        Ok(Numbers::Floats(self.read(name)?))
    }
}

/// `count` bytes of an open file.
fn bytes_at(file: &Mutex<impl Read + Seek>, path: &Path, start: u64, count: usize) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.into(), source };
    let mut bytes = vec![0; count];
    let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// What a file should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The causal video VAE.
    Vae,
    /// The diffusion transformer.
    Dit,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Model::Vae => "a SeedVR2 VAE, such as ema_vae_fp16.safetensors",
            Model::Dit => "a SeedVR2 transformer, such as seedvr2_ema_3b_fp16.safetensors",
        })
    }
}

/// A list of tensors.
pub type Named = [(String, Shape)];

/// Checks that a source holds exactly the tensors of a model, and perhaps the optional ones.
pub fn check(source: &dyn Source, model: Model, needed: &Named, optional: &Named) -> Result<()> {
    let path = || source.path().to_path_buf();
    let free: HashSet<&str> = optional.iter().map(|(name, _)| name.as_str()).collect();
    for (name, needed) in needed.iter().chain(optional) {
        match source.shapes().get(name) {
            None if free.contains(name.as_str()) => {}
            None => return Err(Error::Missing { path: path(), name: name.clone(), model }),
            Some(found) if found != needed => {
                return Err(Error::WrongShape { path: path(), name: name.clone(), found: *found, needed: *needed });
            }
            Some(_) => {}
        }
    }
    let known: HashSet<&str> = needed.iter().chain(optional).map(|(name, _)| name.as_str()).collect();
    let mut extra = source.shapes().keys().filter(|name| !known.contains(name.as_str()));
    match extra.next() {
        None => Ok(()),
        Some(first) => Err(Error::Extra { path: path(), first: first.clone(), count: 1 + extra.count() }),
    }
}
