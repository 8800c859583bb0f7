//! Frames that are written but not yet in a finished segment, as the encoder gets them, in a file for every time that
//! they were made safe.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::uncached::Uncached;
use crate::error::{Error, Result};

/// `frames-120-5` has five frames from number 120 on.
const NAME: &str = "frames-";
const GROWING: &str = "frames-growing";

/// A file of frames.
struct Part {
    path: PathBuf,
    first: usize,
    count: usize,
}

/// The frames of a video that lie in its work folder.
pub(super) struct Spool {
    folder: PathBuf,
    parts: VecDeque<Part>,
    /// The file that grows, and the number of its first frame.
    growing: Option<(Uncached, usize)>,
    /// What the last one left.
    memory: Vec<u8>,
    written: usize,
}

impl Spool {
    /// Behind `frames` frames, of which the first `there` are elsewhere.
    pub fn open(folder: &Path, there: usize, frames: usize) -> Result<Spool> {
        let (parts, later): (Vec<Part>, Vec<Part>) = parts(folder).into_iter().partition(|part| part.first < frames);
        // Finished, but never told.
        later.iter().for_each(|part| drop(fs::remove_file(&part.path)));
        let reach =
            |reach: usize, part: &Part| if part.first <= reach { reach.max(part.first + part.count) } else { reach };
        let reach = parts.iter().fold(there, reach);
        if reach < frames {
            return Err(Error::Lost { path: folder.into(), frame: reach + 1 });
        }
        Ok(Spool { folder: folder.into(), parts: parts.into(), growing: None, memory: Vec::new(), written: frames })
    }

    /// Appends a frame's planes.
    pub fn append(&mut self, planes: &[u8]) -> Result<()> {
        let growing = match &mut self.growing {
            Some((file, _)) => file.append(planes),
            none => {
                Uncached::create(&self.folder.join(GROWING), std::mem::take(&mut self.memory)).and_then(|mut file| {
                    file.append(planes)?;
                    *none = Some((file, self.written));
                    Ok(())
                })
            }
        };
        growing.map_err(|cause| self.cannot_write(cause))?;
        self.written += 1;
        Ok(())
    }

    /// Makes the file that grows safe, and gives it its name. Gives the number of frames.
    pub fn secure(&mut self) -> Result<usize> {
        let Some((file, first)) = self.growing.take() else { return Ok(self.written) };
        let count = self.written - first;
        let path = self.folder.join(format!("{NAME}{first}-{count}"));
        let safe = file.finish().and_then(|memory| fs::rename(self.folder.join(GROWING), &path).map(|()| memory));
        self.memory = safe.map_err(|cause| self.cannot_write(cause))?;
        self.parts.push_back(Part { path, first, count });
        Ok(self.written)
    }

    /// The first frames are safe elsewhere.
    pub fn forget(&mut self, safe: usize) {
        while self.parts.front().is_some_and(|part| part.first + part.count <= safe) {
            // What cannot be removed now is removed with the folder.
            let _ = self.parts.pop_front().map(|part| fs::remove_file(part.path));
        }
    }

    /// Gives the planes of frame `next` and of all behind it, each of so many bytes, as they were when this was opened.
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

/// Whether a file's name is of our making.
pub(super) fn is_part(name: &str) -> bool {
    name == GROWING || parse(name).is_some()
}

fn parse(name: &str) -> Option<(usize, usize)> {
    let (first, count) = name.strip_prefix(NAME)?.split_once('-')?;
    Some((first.parse().ok()?, count.parse().ok()?))
}

/// The finished files of a folder, in order.
fn parts(folder: &Path) -> Vec<Part> {
    let part = |entry: fs::DirEntry| {
        let (first, count) = parse(entry.file_name().to_str()?)?;
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

    /// Frames come by threes and are made safe so; segments have four.
    #[test]
    fn frames_that_are_in_no_segment_come_back() {
        let planes = |i: usize| vec![i as u8; 7];
        for told in 1..4 {
            let folder = tempfile::tempdir().unwrap();
            let mut spool = Spool::open(folder.path(), 0, 0).unwrap();
            // Batches of three, and most of one that was never told.
            for i in 0..3 * (told + 1) - 1 {
                spool.append(&planes(i)).unwrap();
                if i % 3 == 2 {
                    assert_eq!(spool.secure().unwrap(), i + 1);
                    spool.forget((i + 1) / 4 * 4);
                }
            }
            drop(spool);
            let there = 3 * told / 4 * 4;
            let spool = Spool::open(folder.path(), there, 3 * told).unwrap();
            let mut again = Vec::new();
            let keep = |planes: &[u8]| {
                again.push(planes.to_vec());
                Ok(())
            };
            spool.replay(there, 7, keep).unwrap();
            assert_eq!(again, (there..3 * told).map(planes).collect::<Vec<_>>(), "behind {told}");
            let lost = Spool::open(folder.path(), there, 3 * told + 3);
            assert!(matches!(lost, Err(Error::Lost { frame, .. }) if frame == 3 * told + 1));
        }
    }
}
