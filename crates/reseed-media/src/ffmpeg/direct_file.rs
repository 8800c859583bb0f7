//! A file written with direct I/O where the file system supports it. The spool is read only after a crash, so that a
//! copy in the page cache would be wasted.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

/// The alignment of addresses, offsets and lengths that direct I/O requires at most.
const BLOCK: usize = 4 << 10;
/// Bytes per write.
const BYTES: usize = 1 << 20;

/// A file open for appending.
pub(super) struct DirectFile {
    file: File,
    /// Buffered bytes, from offset `first` on, whose address is a multiple of `BLOCK`.
    buffer: Vec<u8>,
    first: usize,
    /// The number of buffered bytes.
    pending: usize,
    /// The length of the file including buffered bytes.
    length: u64,
}

impl DirectFile {
    /// Creates or replaces a file; `buffer` is memory to reuse.
    pub fn create(path: &Path, mut buffer: Vec<u8>) -> io::Result<DirectFile> {
        let file = create(path)?;
        buffer.resize(BYTES + BLOCK, 0);
        let first = buffer.as_ptr().align_offset(BLOCK);
        Ok(DirectFile { file, buffer, first, pending: 0, length: 0 })
    }

    /// Appends bytes.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BYTES - self.pending));
            self.buffer[self.first + self.pending..][..now.len()].copy_from_slice(now);
            self.pending += now.len();
            bytes = later;
            if self.pending == BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes and syncs all bytes, and returns the buffer for reuse.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        self.flush()?;
        // The last write was padded to a whole block.
        self.file.set_len(self.length)?;
        self.file.sync_data()?;
        Ok(self.buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        let blocks = self.pending.next_multiple_of(BLOCK);
        let mut rest = &self.buffer[self.first..][..blocks];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && disable_direct(&self.file) => {}
                Err(error) => return Err(error),
            }
        }
        self.pending = 0;
        Ok(())
    }
}

/// Creates a new file in place of an existing one. An existing link is removed, not followed.
fn create_buffered(path: &Path) -> io::Result<File> {
    remove(path)?;
    File::create_new(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match crate::files::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file for direct I/O, or for buffered I/O where the file system does not support it.
#[cfg(target_os = "linux")]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    remove(path)?;
    match File::options().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path) {
        // The file may exist although the file system refuses direct I/O.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => create_buffered(path),
        opened => opened,
    }
}

/// Switches a file to buffered I/O; `false` if it already uses it.
#[cfg(target_os = "linux")]
fn disable_direct(file: &File) -> bool {
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: the call takes integers only, and the descriptor is open.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    // SAFETY: as above.
    flags & libc::O_DIRECT != 0 && unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags & !libc::O_DIRECT) } == 0
}

#[cfg(not(target_os = "linux"))]
fn create(path: &Path) -> io::Result<File> {
    create_buffered(path)
}

#[cfg(not(target_os = "linux"))]
fn disable_direct(_file: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_holds_exactly_the_appended_bytes() {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join("file");
        let mut buffer = Vec::new();
        for pieces in [&[][..], &[7], &[BLOCK, 1, BLOCK - 1], &[BYTES + 3, 5, BYTES], &[3 * BYTES + 17]] {
            let mut file = DirectFile::create(&path, buffer).unwrap();
            let mut all = Vec::new();
            for (i, piece) in pieces.iter().enumerate() {
                let bytes: Vec<u8> = (0..*piece).map(|k| (k + i) as u8).collect();
                file.append(&bytes).unwrap();
                all.extend(bytes);
            }
            buffer = file.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == all, "{pieces:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_misaligned_buffer_falls_back_to_buffered_writes() {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join("file");
        let mut file = DirectFile::create(&path, Vec::new()).unwrap();
        file.first += 1;
        file.append(&[9; BYTES]).unwrap();
        file.finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == [9; BYTES]);
    }
}
