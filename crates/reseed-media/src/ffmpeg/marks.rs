//! The file of frame marks in a work folder, by which a resumed run finds its place in the source.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::frame::Mark;
use crate::video::{MARKS_FILE, Timeline};

/// Bytes per mark: timestamp and digest of the frame, and the digest of both.
const BYTES: usize = 24;
/// The stored value of a missing timestamp.
const NONE: i64 = i64::MIN;

/// The file of marks, open for appending.
pub(super) struct Marks {
    path: PathBuf,
    file: File,
    saved: usize,
}

impl Marks {
    /// Opens the file of a work folder and passes its marks to the timeline.
    pub fn open(folder: &Path, timeline: &Timeline) -> Result<Marks> {
        let path = folder.join(MARKS_FILE);
        let bytes = fs::read(&path).unwrap_or_default();
        let earlier: Vec<Mark> = bytes.chunks_exact(BYTES).enumerate().map_while(parse).collect();
        let saved = earlier.len();
        timeline.set_earlier_marks(earlier);
        let opened = File::options().append(true).create(true).open(&path);
        let opened = opened.and_then(|file| file.set_len((saved * BYTES) as u64).map(|()| file));
        let file = opened.map_err(|cause| Error::Write { path: path.clone(), cause })?;
        Ok(Marks { path, file, saved })
    }

    /// Appends the new marks of the timeline. A run that reads them later stops at a damaged one.
    pub fn append(&mut self, timeline: &Timeline) -> Result<()> {
        let new = timeline.marks(self.saved);
        if new.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = (self.saved..).zip(&new).flat_map(|(index, mark)| bytes(index, *mark)).collect();
        self.file.write_all(&bytes).map_err(|cause| Error::Write { path: self.path.clone(), cause })?;
        self.saved += new.len();
        Ok(())
    }
}

fn bytes(index: usize, mark: Mark) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&mark.timestamp.unwrap_or(NONE).to_le_bytes());
    bytes[8..16].copy_from_slice(&mark.digest.to_le_bytes());
    let check = crate::digest::digest(index as u64, &bytes[..16]);
    bytes[16..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// A mark, unless it is damaged.
fn parse((index, stored): (usize, &[u8])) -> Option<Mark> {
    let word = |at: usize| std::array::from_fn(|i| stored[at + i]);
    let timestamp = Some(i64::from_le_bytes(word(0))).filter(|timestamp| *timestamp != NONE);
    let mark = Mark { timestamp, digest: u64::from_le_bytes(word(8)) };
    (bytes(index, mark) == stored).then_some(mark)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::Rate;

    #[test]
    fn marks_are_read_back_without_an_incomplete_last_one() {
        let folder = temp_dir::TempDir::new().unwrap();
        let timeline = || Timeline::new(Rate { num: 25, den: 1 }, Rate { num: 1, den: 1000 });
        let all: Vec<Mark> =
            [Some(0), None, Some(-7), Some(90)].map(|timestamp| Mark { timestamp, digest: 3 }).to_vec();
        let first = timeline();
        let mut marks = Marks::open(folder.path(), &first).unwrap();
        all[..3].iter().for_each(|mark| first.push(*mark));
        marks.append(&first).unwrap();
        let file = folder.path().join(MARKS_FILE);
        fs::write(&file, [fs::read(&file).unwrap(), vec![1; 9]].concat()).unwrap();

        let second = timeline();
        let mut marks = Marks::open(folder.path(), &second).unwrap();
        assert_eq!(*second.earlier_marks(), all[..3]);
        all.iter().for_each(|mark| second.push(*mark));
        marks.append(&second).unwrap();
        let third = timeline();
        Marks::open(folder.path(), &third).unwrap();
        assert_eq!(*third.earlier_marks(), all);
    }
}
