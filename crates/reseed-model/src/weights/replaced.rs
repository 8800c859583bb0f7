//! Weights of which some are replaced by those of another file.

use std::collections::BTreeMap;
use std::path::Path;

use reseed_ops::{Quant, Shape};

use super::{Numbers, Source};
use crate::error::Result;

/// A file of weights, some of whose tensors are read from a second file.
pub struct Replaced<S> {
    /// The whole file, which also has the metadata.
    pub base: S,
    /// The tensors that take the place of those with the same name.
    pub by: S,
}

impl<S: Source> Replaced<S> {
    /// The file that has a tensor.
    fn of(&self, name: &str) -> &S {
        if self.by.shapes().contains_key(name) { &self.by } else { &self.base }
    }
}

impl<S: Source> Source for Replaced<S> {
    fn path(&self) -> &Path {
        self.by.path()
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        self.base.shapes()
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.base.metadata(key)
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        self.of(name).read(name)
    }

    fn quant(&self, name: &str) -> Option<Quant> {
        self.of(name).quant(name)
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        self.of(name).numbers(name)
    }
}
