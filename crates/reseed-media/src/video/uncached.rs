//! A file that goes past the system's cache, where the system lets it: what is read only after a crash would be copied there
//! for nothing.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

/// Devices want addresses, places and lengths that are multiples of this, or of less.
const BLOCK: usize = 4 << 10;
/// Bytes that are written at a time.
const BYTES: usize = 1 << 20;

/// A file that grows.
pub(super) struct Uncached {
    file: File,
    /// Bytes that wait, from the first on that lies at a multiple of `BLOCK`.
    buffer: Vec<u8>,
    first: usize,
    waiting: usize,
    length: u64,
}

impl Uncached {
    /// A new file in the place of whatever is there, with the memory that the last one left.
    pub fn create(path: &Path, mut buffer: Vec<u8>) -> io::Result<Uncached> {
        let file = create(path)?;
        buffer.resize(BYTES + BLOCK, 0);
        let first = buffer.as_ptr().align_offset(BLOCK);
        Ok(Uncached { file, buffer, first, waiting: 0, length: 0 })
    }

    /// Appends bytes.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BYTES - self.waiting));
            self.buffer[self.first + self.waiting..][..now.len()].copy_from_slice(now);
            self.waiting += now.len();
            bytes = later;
            if self.waiting == BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes the file safe, and leaves its memory to the next.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        self.flush()?;
        // The last block was written to its end.
        self.file.set_len(self.length)?;
        self.file.sync_data()?;
        Ok(self.buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        let blocks = self.waiting.next_multiple_of(BLOCK);
        let mut rest = &self.buffer[self.first..][..blocks];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && take_cache(&self.file) => {}
                Err(error) => return Err(error),
            }
        }
        self.waiting = 0;
        Ok(())
    }
}

/// Not every file system can do without its cache.
#[cfg(target_os = "linux")]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    match File::options().write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => File::create(path),
        opened => opened,
    }
}

/// Lets a file have the cache; `false` where it has.
#[cfg(target_os = "linux")]
fn take_cache(file: &File) -> bool {
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: it takes numbers, and the file is open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    // SAFETY: as above.
    flags & libc::O_DIRECT != 0 && unsafe { libc::fcntl(number, libc::F_SETFL, flags & !libc::O_DIRECT) } == 0
}

#[cfg(not(target_os = "linux"))]
fn create(path: &Path) -> io::Result<File> {
    File::create(path)
}

#[cfg(not(target_os = "linux"))]
fn take_cache(_file: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_hold_what_was_appended_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut memory = Vec::new();
        for pieces in [&[][..], &[7], &[BLOCK, 1, BLOCK - 1], &[BYTES + 3, 5, BYTES], &[3 * BYTES + 17]] {
            let mut file = Uncached::create(&path, memory).unwrap();
            let mut all = Vec::new();
            for (i, piece) in pieces.iter().enumerate() {
                let bytes: Vec<u8> = (0..*piece).map(|k| (k + i) as u8).collect();
                file.append(&bytes).unwrap();
                all.extend(bytes);
            }
            memory = file.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == all, "{pieces:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_whose_places_do_not_suit_takes_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = Uncached::create(&path, Vec::new()).unwrap();
        file.first += 1;
        file.append(&[9; BYTES]).unwrap();
        file.finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == [9; BYTES]);
    }
}
