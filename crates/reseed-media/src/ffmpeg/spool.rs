//! The frames that are written but not yet in a finished segment, as planes. Each sync completes one file, which ends
//! with a digest.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::direct_file::DirectFile;
use crate::digest::{Digest, read_into};
use crate::error::{Error, Result};
use crate::files;
use crate::video::{GROWING_SPOOL, parse_spool_name, spool_name};

/// A finished file of frames.
struct Part {
    path: PathBuf,
    first: usize,
    count: usize,
}

impl Part {
    /// Whether the file has the frames that were written to it.
    fn is_sound(&self) -> io::Result<bool> {
        let mut file = File::open(&self.path)?;
        let bytes = file.metadata()?.len().saturating_sub(size_of::<u64>() as u64);
        let (mut digest, mut expected) = (Digest::new(self.first as u64), [0; size_of::<u64>()]);
        read_into(&mut digest, &file, bytes)?;
        file.read_exact(&mut expected)?;
        Ok(sealed(&digest, self.count) == expected)
    }
}

/// The last bytes of a file of `count` frames.
fn sealed(digest: &Digest, count: usize) -> [u8; size_of::<u64>()] {
    let mut digest = digest.clone();
    digest.update(&count.to_le_bytes());
    digest.value().to_le_bytes()
}

/// Frames of a finished file: those after the first `skip`.
pub(super) struct Run {
    pub path: PathBuf,
    pub skip: usize,
    pub count: usize,
}

/// The spool files of a work folder.
pub(super) struct Spool {
    folder: PathBuf,
    parts: VecDeque<Part>,
    /// The file that is being written, its digest, and the number of its first frame.
    growing: Option<(DirectFile, Digest, usize)>,
    /// The buffer of the last file, for reuse.
    buffer: Vec<u8>,
    written: usize,
}

impl Spool {
    /// Opens the spool after `frames` frames, of which segments hold the first `encoded`.
    pub fn open(folder: &Path, encoded: usize, frames: usize) -> Result<Spool> {
        let (parts, later): (Vec<Part>, Vec<Part>) = parts(folder).into_iter().partition(|part| part.first < frames);
        // Later files were finished, but the journal does not list them.
        later.iter().for_each(|part| drop(fs::remove_file(&part.path)));
        let needed = |part: &Part| part.first + part.count > encoded && part.is_sound().unwrap_or(false);
        let parts: Vec<Part> = parts.into_iter().filter(needed).collect();
        let extend = |end: usize, part: &Part| if part.first <= end { end.max(part.first + part.count) } else { end };
        let end = parts.iter().fold(encoded, extend);
        if end < frames {
            return Err(Error::MissingFrame { path: folder.into(), frame: end + 1 });
        }
        Ok(Spool { folder: folder.into(), parts: parts.into(), growing: None, buffer: Vec::new(), written: frames })
    }

    /// Appends the planes of a frame.
    pub fn append(&mut self, planes: &[u8]) -> Result<()> {
        let growing = match &mut self.growing {
            Some((file, digest, _)) => {
                digest.update(planes);
                file.append(planes)
            }
            none => DirectFile::create(&self.folder.join(GROWING_SPOOL), std::mem::take(&mut self.buffer)).and_then(
                |mut file| {
                    file.append(planes)?;
                    let mut digest = Digest::new(self.written as u64);
                    digest.update(planes);
                    *none = Some((file, digest, self.written));
                    Ok(())
                },
            ),
        };
        growing.map_err(|cause| self.cannot_write(cause))?;
        self.written += 1;
        Ok(())
    }

    /// Syncs the current file to the disk, renames it, and returns the number of frames.
    pub fn sync(&mut self) -> Result<usize> {
        let Some((mut file, digest, first)) = self.growing.take() else { return Ok(self.written) };
        let count = self.written - first;
        let path = self.folder.join(spool_name(first, count));
        let finished = file.append(&sealed(&digest, count)).and_then(|()| file.finish());
        let synced =
            finished.and_then(|buffer| files::rename(&self.folder.join(GROWING_SPOOL), &path).map(|()| buffer));
        self.buffer = synced.map_err(|cause| self.cannot_write(cause))?;
        self.parts.push_back(Part { path, first, count });
        Ok(self.written)
    }

    /// The number after the last frame in a finished file.
    pub fn synced(&self) -> usize {
        self.growing.as_ref().map_or(self.written, |(_, _, first)| *first)
    }

    /// Where the frames of a range are, as far as they are in finished files.
    pub fn runs(&self, frames: Range<usize>) -> Vec<Run> {
        let mut next = frames.start;
        let mut run = |part: &Part| {
            let (first, end) = (part.first.max(next), (part.first + part.count).min(frames.end));
            (first < end).then(|| {
                next = end;
                Run { path: part.path.clone(), skip: first - part.first, count: end - first }
            })
        };
        self.parts.iter().filter_map(&mut run).collect()
    }

    /// Removes files whose frames are all before frame `encoded`.
    pub fn discard_before(&mut self, encoded: usize) {
        while self.parts.front().is_some_and(|part| part.first + part.count <= encoded) {
            // A file that cannot be removed now is removed with the folder.
            let _ = self.parts.pop_front().map(|part| fs::remove_file(part.path));
        }
    }

    /// Passes the planes of frame `next` and all later frames, `bytes` bytes each, to `each`.
    pub fn replay(&self, mut next: usize, bytes: usize, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut planes = vec![0; bytes];
        for part in &self.parts {
            let cannot_read = |cause| Error::Read { path: part.path.clone(), cause };
            let mut file = BufReader::new(File::open(&part.path).map_err(cannot_read)?);
            for number in (part.first..part.first + part.count).take_while(|number| *number < self.written) {
                file.read_exact(&mut planes).map_err(cannot_read)?;
                if number == next {
                    each(&planes)?;
                    next += 1;
                }
            }
        }
        Ok(())
    }

    fn cannot_write(&self, cause: io::Error) -> Error {
        Error::Write { path: self.folder.clone(), cause }
    }
}

/// The finished spool files of a folder, in order.
fn parts(folder: &Path) -> Vec<Part> {
    let part = |entry: fs::DirEntry| {
        let (first, count) = parse_spool_name(entry.file_name().to_str()?)?;
        Some(Part { path: entry.path(), first, count })
    };
    let mut parts: Vec<Part> = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(part).collect();
    parts.sort_by_key(|part| part.first);
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Batches have three frames, segments have four.
    #[test]
    fn replay_returns_the_frames_that_are_in_no_segment() {
        let planes = |i: usize| vec![i as u8; 7];
        for synced in 1..4 {
            let folder = temp_dir::TempDir::new().unwrap();
            let mut spool = Spool::open(folder.path(), 0, 0).unwrap();
            // The last batch is incomplete and never synced.
            for i in 0..3 * (synced + 1) - 1 {
                spool.append(&planes(i)).unwrap();
                if i % 3 == 2 {
                    assert_eq!(spool.sync().unwrap(), i + 1);
                    spool.discard_before((i + 1) / 4 * 4);
                }
            }
            drop(spool);
            let encoded = 3 * synced / 4 * 4;
            let spool = Spool::open(folder.path(), encoded, 3 * synced).unwrap();
            let mut again = Vec::new();
            let keep = |planes: &[u8]| {
                again.push(planes.to_vec());
                Ok(())
            };
            spool.replay(encoded, 7, keep).unwrap();
            assert_eq!(again, (encoded..3 * synced).map(planes).collect::<Vec<_>>(), "after {synced} batches");
            let missing = Spool::open(folder.path(), encoded, 3 * synced + 3);
            assert!(matches!(missing, Err(Error::MissingFrame { frame, .. }) if frame == 3 * synced + 1));
        }
    }
}
