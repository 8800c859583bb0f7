//! The work folder of a video output. File names alone record which segments are finished, and their digests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::digest;
use crate::error::{Error, Result};
use crate::files;
use crate::partial::sync_folder;
use crate::video::{
    GROWING_SPOOL, JOB_FILE, MARKS_FILE, SEGMENT_FRAMES, UNFINISHED_SEGMENT, discard_work, is_work_file,
    parse_spool_name, work_folder,
};

/// A finished segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub name: String,
    pub frames: usize,
}

/// The work folder of one output.
pub(super) struct WorkFolder {
    pub path: PathBuf,
    extension: &'static str,
    /// The index of the first segment; not 0 where a part of a video is encoded.
    pub first: usize,
    pub segments: Vec<Segment>,
    /// The number of segments that are synced to the disk.
    synced: usize,
    /// Whether the folder is kept on drop.
    pub keep: bool,
}

impl WorkFolder {
    /// Opens the folder and creates it if it is missing. Without `resume`, finished segments are removed first.
    pub fn open(output: &Path, extension: &'static str, resume: bool) -> Result<WorkFolder> {
        let path = files::working_folder(&work_folder(output)).map_err(|cause| cannot_write(output, cause))?;
        let mut work = WorkFolder { path, extension, first: 0, segments: Vec::new(), synced: 0, keep: false };
        if !resume {
            work.remove();
        }
        match fs::create_dir(&work.path) {
            // A link may lead to a folder that is not ours.
            Err(cause) if !fs::symlink_metadata(&work.path).is_ok_and(|folder| folder.is_dir()) => {
                return Err(cannot_write(&work.path, cause));
            }
            _ => work.segments = work.finished()?,
        }
        Ok(work)
    }

    /// Creates a folder for the segments from number `first` on.
    pub fn create(folder: &Path, extension: &'static str, first: usize) -> Result<WorkFolder> {
        let path = files::working_folder(folder).map_err(|cause| cannot_write(folder, cause))?;
        fs::create_dir(&path).map_err(|cause| cannot_write(&path, cause))?;
        Ok(WorkFolder { path, extension, first, segments: Vec::new(), synced: 0, keep: false })
    }

    /// The finished segments from the first up to a gap. Later segments and unfinished files are removed.
    fn finished(&self) -> Result<Vec<Segment>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|cause| cannot_write(&self.path, cause))? {
            let name = entry.map_err(|cause| cannot_write(&self.path, cause))?.file_name();
            let Some(name) = name.to_str() else { continue };
            match parse(name, self.extension) {
                Some((index, frames, expected)) => {
                    let found_digest = digest::of_file(index as u64, &self.path.join(name));
                    // The frames of a damaged segment may still be in the spool.
                    if found_digest.is_ok_and(|found| found == expected) {
                        found.push((index, Segment { name: name.to_owned(), frames }));
                    } else {
                        drop(fs::remove_file(self.path.join(name)));
                    }
                }
                None if is_work_file(name) && !is_kept(name) => drop(fs::remove_file(self.path.join(name))),
                None => {}
            }
        }
        found.sort_by_key(|(index, _)| *index);
        let mut done = Vec::new();
        let mut contiguous = true;
        for (index, segment) in found {
            contiguous &= index == done.len();
            match contiguous {
                true => {
                    contiguous = segment.frames == SEGMENT_FRAMES;
                    done.push(segment);
                }
                false => drop(fs::remove_file(self.path.join(segment.name))),
            }
        }
        Ok(done)
    }

    /// Frames of the video up to the last finished segment.
    pub fn frames(&self) -> usize {
        self.first * SEGMENT_FRAMES + self.segments.iter().map(|segment| segment.frames).sum::<usize>()
    }

    /// The name of segment `index` while it is written. It holds the process number, so that an encoder that outlives a
    /// crashed run writes to another file.
    pub fn unfinished(&self, index: usize, pass: &str) -> String {
        format!("{index:06}-{pass}-{}.{UNFINISHED_SEGMENT}", std::process::id())
    }

    /// Renames a segment to its final name.
    pub fn finish(&mut self, unfinished: &str, index: usize, frames: usize) -> Result<()> {
        assert_eq!(index, self.first + self.segments.len(), "segments are finished in order");
        let unfinished = self.path.join(unfinished);
        let digest = digest::of_file(index as u64, &unfinished).map_err(|cause| cannot_write(&unfinished, cause))?;
        let name = format!("{index:06}-{frames}-{digest:016x}.{}", self.extension);
        files::rename(&unfinished, &self.path.join(&name)).map_err(|cause| cannot_write(&self.path, cause))?;
        self.segments.push(Segment { name, frames });
        Ok(())
    }

    /// Syncs finished segments and all names to the disk.
    pub fn sync(&mut self) -> Result<()> {
        for segment in &self.segments[self.synced..] {
            let path = self.path.join(&segment.name);
            let synced = fs::File::options().write(true).open(&path).and_then(|file| file.sync_all());
            synced.map_err(|cause| cannot_write(&path, cause))?;
        }
        self.synced = self.segments.len();
        sync_folder(&self.path).map_err(|cause| cannot_write(&self.path, cause))
    }

    fn remove(&self) {
        discard_work(&self.path);
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if !self.keep {
            self.remove();
        }
    }
}

/// Whether a resumed run needs the file of this name.
fn is_kept(name: &str) -> bool {
    [JOB_FILE, MARKS_FILE, GROWING_SPOOL].contains(&name) || parse_spool_name(name).is_some()
}

/// Parses a segment name such as `000012-120-0123456789abcdef.mp4` into its index, its number of frames and its digest.
fn parse(name: &str, extension: &str) -> Option<(usize, usize, u64)> {
    let (index, rest) = name.strip_suffix(extension)?.strip_suffix('.')?.split_once('-')?;
    let (frames, digest) = rest.split_once('-')?;
    let (index, frames) = (index.parse().ok()?, frames.parse().ok()?);
    let digest = u64::from_str_radix(digest, 16).ok()?;
    (1..=SEGMENT_FRAMES).contains(&frames).then_some((index, frames, digest))
}

fn cannot_write(path: &Path, cause: io::Error) -> Error {
    Error::Write { path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folder_with(names: &[&str]) -> (temp_dir::TempDir, PathBuf) {
        let folder = temp_dir::TempDir::new().unwrap();
        let output = folder.path().join("video.mkv");
        fs::create_dir(work_folder(&output)).unwrap();
        names.iter().for_each(|name| fs::write(work_folder(&output).join(name), "").unwrap());
        (folder, output)
    }

    /// The name of an empty segment.
    fn segment(index: usize, frames: usize) -> String {
        format!("{index:06}-{frames}-{:016x}.mp4", digest::digest(index as u64, b""))
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_resumed_run_keeps_segments_up_to_the_first_gap() {
        let segments = [segment(0, 120), segment(1, 120), segment(3, 120)];
        let (_folder, output) =
            folder_with(&[&segments[0], &segments[1], &segments[2], "000002-a-7.part", JOB_FILE, "mine.txt"]);
        let mut work = WorkFolder::open(&output, "mp4", true).unwrap();
        assert_eq!((work.frames(), work.segments.len()), (240, 2));
        work.keep = true;
        let folder = work.path.clone();
        drop(work);
        assert_eq!(names(&folder), [&segments[0], &segments[1], JOB_FILE, "mine.txt"]);
    }

    #[test]
    fn no_segment_follows_a_short_one() {
        let segments = [segment(0, 120), segment(1, 7), segment(2, 120)];
        let (_folder, output) = folder_with(&segments.each_ref().map(String::as_str));
        assert_eq!(WorkFolder::open(&output, "mp4", true).unwrap().frames(), 127);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_no_work_folder() {
        let folder = temp_dir::TempDir::new().unwrap();
        let (output, other) = (folder.path().join("video.mkv"), folder.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join(JOB_FILE), "").unwrap();
        std::os::unix::fs::symlink(&other, work_folder(&output)).unwrap();
        for resume in [false, true] {
            assert!(matches!(WorkFolder::open(&output, "mp4", resume), Err(Error::Write { .. })), "{resume}");
        }
        assert!(other.join(JOB_FILE).exists());
    }

    #[test]
    fn a_damaged_segment_does_not_count() {
        let segments = [segment(0, 120), segment(1, 120), segment(2, 120)];
        let (_folder, output) = folder_with(&segments.each_ref().map(String::as_str));
        fs::write(work_folder(&output).join(&segments[1]), "another content").unwrap();
        assert_eq!(WorkFolder::open(&output, "mp4", true).unwrap().frames(), 120);
    }

    #[test]
    fn a_new_run_keeps_the_files_of_others() {
        let (_folder, output) = folder_with(&[&segment(0, 120), JOB_FILE, "mine.txt"]);
        assert_eq!(WorkFolder::open(&output, "mp4", false).unwrap().frames(), 0);
        assert_eq!(names(&work_folder(&output)), ["mine.txt"]);
    }
}
