//! The hidden folder in which a video grows, segment by segment. Its names alone say what is done.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{marks, spool};
use crate::error::{Error, Result};

/// Frames of a segment; the last may have fewer.
pub const SEGMENT_FRAMES: usize = 120;

/// A file in a work folder that is left to whoever wants to take up the work later.
pub const JOB_FILE: &str = "job.json";

/// The list of segments for the last step.
pub(super) const LIST: &str = "segments.ffconcat";

/// The end of names under which segments grow.
const UNFINISHED: &str = "part";

/// The hidden folder beside `output` that holds its segments while it is written.
pub fn work_folder(output: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(".reseed");
    output.with_file_name(name)
}

/// A finished segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub name: String,
    pub frames: usize,
}

/// The work folder of one output.
pub(super) struct Work {
    pub folder: PathBuf,
    extension: &'static str,
    pub segments: Vec<Segment>,
    /// How many of them are on the disk for certain.
    synced: usize,
    /// Whether what is finished stays when this is dropped.
    pub keep: bool,
}

impl Work {
    /// Opens the folder, creating it where it is missing. Finished segments stay only for those who `resume`.
    pub fn open(output: &Path, extension: &'static str, resume: bool) -> Result<Work> {
        let folder = std::path::absolute(work_folder(output)).map_err(|cause| cannot_write(output, cause))?;
        let mut work = Work { folder, extension, segments: Vec::new(), synced: 0, keep: false };
        if !resume {
            work.remove();
        }
        match fs::create_dir(&work.folder) {
            Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_write(&work.folder, cause));
            }
            _ => work.segments = work.finished()?,
        }
        Ok(work)
    }

    /// The segments from the first on that are finished. What else lies there is removed.
    fn finished(&self) -> Result<Vec<Segment>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(|cause| cannot_write(&self.folder, cause))? {
            let name = entry.map_err(|cause| cannot_write(&self.folder, cause))?.file_name();
            let Some(name) = name.to_str() else { continue };
            match parse(name, self.extension) {
                Some((index, frames)) => found.push((index, Segment { name: name.to_owned(), frames })),
                None if is_ours(name) && ![JOB_FILE, marks::NAME].contains(&name) && !spool::is_part(name) => {
                    drop(fs::remove_file(self.folder.join(name)))
                }
                None => {}
            }
        }
        found.sort_by_key(|(index, _)| *index);
        let mut done = Vec::new();
        let mut open = true;
        for (index, segment) in found {
            open &= index == done.len();
            match open {
                true => {
                    open = segment.frames == SEGMENT_FRAMES;
                    done.push(segment);
                }
                false => drop(fs::remove_file(self.folder.join(segment.name))),
            }
        }
        Ok(done)
    }

    /// Frames in finished segments.
    pub fn frames(&self) -> usize {
        self.segments.iter().map(|segment| segment.frames).sum()
    }

    /// Where segment `index` grows. The name is this process's own, so that an encoder orphaned by a crash disturbs nobody.
    pub fn unfinished(&self, index: usize, pass: &str) -> String {
        format!("{index:06}-{pass}-{}.{UNFINISHED}", std::process::id())
    }

    /// Gives a segment the name that says it is finished.
    pub fn finish(&mut self, unfinished: &str, index: usize, frames: usize) -> Result<()> {
        assert_eq!(index, self.segments.len(), "segments are finished in order");
        let name = format!("{index:06}-{frames}.{}", self.extension);
        fs::rename(self.folder.join(unfinished), self.folder.join(&name))
            .map_err(|cause| cannot_write(&self.folder, cause))?;
        self.segments.push(Segment { name, frames });
        Ok(())
    }

    /// Makes finished segments safe from a power cut.
    pub fn sync(&mut self) -> Result<()> {
        for segment in &self.segments[self.synced..] {
            let path = self.folder.join(&segment.name);
            let synced = fs::File::options().write(true).open(&path).and_then(|file| file.sync_all());
            synced.map_err(|cause| cannot_write(&path, cause))?;
        }
        self.synced = self.segments.len();
        Ok(())
    }

    /// Removes every file that is ours, and the folder unless something else is in it.
    pub fn remove(&self) {
        discard_work(&self.folder);
    }
}

/// Removes every file that a video left in its work folder, and the folder unless something else is in it.
pub fn discard_work(folder: &Path) {
    // What cannot be tidied up must not hide the reason that led here.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_ours) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.keep {
            self.remove();
        }
    }
}

fn is_ours(name: &str) -> bool {
    name == JOB_FILE
        || name == LIST
        || name == marks::NAME
        || spool::is_part(name)
        || name.split_once('-').is_some_and(|(index, _)| index.len() == 6 && index.parse::<usize>().is_ok())
}

/// `000012-120.mp4`: its number and its frames.
fn parse(name: &str, extension: &str) -> Option<(usize, usize)> {
    let (index, frames) = name.strip_suffix(extension)?.strip_suffix('.')?.split_once('-')?;
    let (index, frames) = (index.parse().ok()?, frames.parse().ok()?);
    (1..=SEGMENT_FRAMES).contains(&frames).then_some((index, frames))
}

fn cannot_write(path: &Path, cause: io::Error) -> Error {
    Error::Write { path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folder_with(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("film.mkv");
        fs::create_dir(work_folder(&output)).unwrap();
        names.iter().for_each(|name| fs::write(work_folder(&output).join(name), "").unwrap());
        (folder, output)
    }

    #[test]
    fn work_is_taken_up_behind_the_last_segment_without_a_gap() {
        let names = ["000000-120.mp4", "000001-120.mp4", "000003-120.mp4", "000002-a-7.part", JOB_FILE, "mine.txt"];
        let (_folder, output) = folder_with(&names);
        let mut work = Work::open(&output, "mp4", true).unwrap();
        assert_eq!((work.frames(), work.segments.len()), (240, 2));
        work.keep = true;
        let folder = work.folder.clone();
        drop(work);
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["000000-120.mp4", "000001-120.mp4", JOB_FILE, "mine.txt"]);
    }

    #[test]
    fn a_short_segment_is_the_last() {
        let (_folder, output) = folder_with(&["000000-120.mp4", "000001-7.mp4", "000002-120.mp4"]);
        assert_eq!(Work::open(&output, "mp4", true).unwrap().frames(), 127);
    }

    #[test]
    fn starting_afresh_keeps_what_others_put_there() {
        let (_folder, output) = folder_with(&["000000-120.mp4", JOB_FILE, "mine.txt"]);
        assert_eq!(Work::open(&output, "mp4", false).unwrap().frames(), 0);
        let left: Vec<_> = fs::read_dir(work_folder(&output)).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["mine.txt"]);
    }
}
