//! Where weights come from: files, or a formula.

pub mod formula;
pub mod safetensors;

use std::collections::BTreeMap;
use std::path::Path;

use reseed_ops::Shape;

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
}

/// Checks that a source holds exactly the tensors of a model.
pub fn check(source: &dyn Source, needed: &[(String, Shape)]) -> Result<()> {
    let path = || source.path().to_path_buf();
    for (name, needed) in needed {
        match source.shapes().get(name) {
            None => return Err(Error::Missing { path: path(), name: name.clone() }),
            Some(found) if found != needed => {
                return Err(Error::WrongShape { path: path(), name: name.clone(), found: *found, needed: *needed });
            }
            Some(_) => {}
        }
    }
    let known: std::collections::HashSet<&str> = needed.iter().map(|(name, _)| name.as_str()).collect();
    let mut extra = source.shapes().keys().filter(|name| !known.contains(name.as_str()));
    match extra.next() {
        None => Ok(()),
        Some(first) => Err(Error::Extra { path: path(), first: first.clone(), count: 1 + extra.count() }),
    }
}
