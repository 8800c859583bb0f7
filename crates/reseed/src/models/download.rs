//! The growing file of a download: resumed, hashed and timed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::hash::{CHUNK, Hash};
use crate::bytes::Bytes;
use crate::error::{DownloadError, Error, Result};

/// How an attempt ended.
pub enum Attempt {
    /// The file is complete.
    Whole,
    /// The connection broke for this reason.
    Broken(String),
}

/// Why a download failed.
pub enum Reason {
    /// The hub is at fault.
    Hub(String),
    /// The file could not be written.
    Disk(Error),
}

impl From<Error> for Reason {
    fn from(error: Error) -> Reason {
        Reason::Disk(error)
    }
}

/// The slowest transfer that is waited for.
#[derive(Clone, Copy)]
pub struct MinimumRate {
    /// Bytes in every `window`.
    pub bytes: u64,
    /// The time over which the rate is measured.
    pub window: Duration,
}

/// A growing file and its hash so far.
pub struct Download<'a> {
    /// The file.
    pub path: PathBuf,
    file: File,
    /// The hash of its bytes.
    pub hash: Hash,
    /// Its bytes.
    pub have: u64,
    /// How often a server sent everything again.
    pub restarts: u32,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Download<'a> {
    /// Opens and locks the file of an earlier download, or a new one.
    pub fn open(path: PathBuf, progress: &'a mut dyn FnMut(u64)) -> Result<Download<'a>> {
        let cannot = |cause| Error::write(&path, cause);
        // A download never makes a link here; one that leads elsewhere is not followed.
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
            fs::remove_file(&path).map_err(cannot)?;
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
        if file.try_lock().is_err() {
            return Err(DownloadError::Busy { path }.into());
        }
        let (mut hash, mut have) = (Hash::new(), 0);
        hash.read(&mut file, &path, |count| have += count as u64)?;
        progress(have);
        Ok(Download { path, file, hash, have, restarts: 0, progress })
    }

    /// Starts again with an empty file.
    pub fn restart(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|e| Error::write(&self.path, e))?;
        (self.hash, self.have) = (Hash::new(), 0);
        Ok(())
    }

    /// Appends a response up to `total` bytes in all.
    pub fn take(&mut self, mut from: impl Read, total: u64, rate: MinimumRate) -> std::result::Result<Attempt, Reason> {
        let mut buffer = vec![0; CHUNK];
        let (mut start, mut before) = (Instant::now(), self.have);
        while self.have < total {
            let room = buffer.len().min((total - self.have) as usize);
            match from.read(&mut buffer[..room]) {
                Ok(0) => {
                    return Ok(Attempt::Broken(format!("the transfer ended after {} of {total} bytes", self.have)));
                }
                Ok(count) => self.append(&buffer[..count])?,
                Err(error) => return Ok(Attempt::Broken(error.to_string())),
            }
            let elapsed = start.elapsed();
            if elapsed >= rate.window && self.have < total {
                let received = self.have - before;
                if received < rate.bytes {
                    return Err(Reason::Hub(self.too_slow(received, elapsed)));
                }
                (start, before) = (Instant::now(), self.have);
            }
        }
        self.file.sync_all().map_err(|e| Error::write(&self.path, e))?;
        Ok(Attempt::Whole)
    }

    fn append(&mut self, piece: &[u8]) -> Result<()> {
        self.file.write_all(piece).map_err(|e| Error::write(&self.path, e))?;
        self.hash.update(piece);
        self.have += piece.len() as u64;
        (self.progress)(self.have);
        Ok(())
    }

    fn too_slow(&self, received: u64, elapsed: Duration) -> String {
        let (kept, seconds) = (Bytes(self.have as usize), elapsed.as_secs_f64());
        let slow = format!("the transfer is too slow: {received} bytes in {seconds:.0} s");
        format!("{slow}; {kept} are kept and the next download continues there")
    }
}
