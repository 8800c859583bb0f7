//! SHA-256 of files too large for memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ring::digest::{Context, SHA256};

use crate::error::{Error, Result};

/// Bytes read at a time.
pub const CHUNK: usize = 1 << 20;

/// A running hash.
pub struct Hash(Context);

impl Hash {
    pub fn new() -> Hash {
        Hash(Context::new(&SHA256))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As lower-case hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Hashes the rest of a file; `progress` receives the length of every piece.
    pub fn read(&mut self, file: &mut File, path: &Path, mut progress: impl FnMut(usize)) -> Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            match file.read(&mut buffer).map_err(|cause| Error::ModelFile { path: path.into(), cause })? {
                0 => return Ok(()),
                count => {
                    self.update(&buffer[..count]);
                    progress(count);
                }
            }
        }
    }
}
