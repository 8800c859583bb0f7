//! Fuzzing of every parser: one entry function per format, seeds, and mutations that need no fuzzer.
//!
//! `fuzz/` runs the entry functions under libFuzzer. The test `mutations` of this crate runs them on a fixed sequence
//! of mutations of the inputs in `fuzz/corpus`. An entry function accepts any bytes: an error value is a good answer; a
//! panic, a large allocation and a long run are not.

mod mutate;
mod seeds;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

pub use mutate::{Mutation, Random};
pub use targets::TARGETS;

/// A parser under test.
pub struct Target {
    /// Its name, which is also the name of its libFuzzer target and of its corpus folder.
    pub name: &'static str,
    /// Parses bytes and uses the result.
    pub run: fn(&[u8]),
    /// How its inputs are changed.
    pub mutation: Mutation,
    /// Inputs of the test `mutations`.
    pub inputs: usize,
    /// Bytes that it may allocate at once.
    pub memory: usize,
    seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> &'static Target {
        TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no fuzz target `{name}`"))
    }

    /// The committed inputs, sorted by name.
    pub fn corpus(&self) -> Vec<Vec<u8>> {
        let folder = corpus_folder().join(self.name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    /// Writes the generated seeds to the corpus. Other inputs stay.
    pub fn write_seeds(&self) {
        let folder = corpus_folder().join(self.name);
        fs::create_dir_all(&folder).unwrap();
        for (i, seed) in (self.seeds)().iter().enumerate() {
            assert!(seed.len() <= 16 << 10, "{}: a seed of {} bytes is not small", self.name, seed.len());
            fs::write(folder.join(format!("seed-{i}")), seed).unwrap();
        }
    }
}

fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}
