//! SHA-256 of files that are too long to hold.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ring::digest::{Context, SHA256};

use crate::failure::{Failure, Result};

/// Bytes read at a time.
pub const CHUNK: usize = 1 << 20;

/// The hash of what it is fed.
pub struct Hash(Context);

impl Hash {
    pub fn new() -> Hash {
        Hash(Context::new(&SHA256))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In lower-case digits.
    pub fn finish(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Feeds all that is left of a file, and tells after every piece how many bytes it had.
    pub fn read(&mut self, file: &mut File, path: &Path, mut tell: impl FnMut(usize)) -> Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            match file.read(&mut buffer).map_err(|e| Failure::Model(format!("{}: {e}", path.display())))? {
                0 => return Ok(()),
                count => {
                    self.update(&buffer[..count]);
                    tell(count);
                }
            }
        }
    }
}
