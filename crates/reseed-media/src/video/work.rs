//! The work folder: a hidden folder beside an output that holds its segments and its journal while the output is
//! written.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Frames per segment; the last segment may have fewer.
pub(crate) const SEGMENT_FRAMES: usize = 120;

/// The name of the journal in a work folder. The caller writes and reads it.
pub const JOB_FILE: &str = "job.json";

/// The list of segments for ffmpeg's concat demuxer.
pub(crate) const SEGMENT_LIST: &str = "segments.ffconcat";

/// The marks of all decoded frames.
pub(crate) const MARKS_FILE: &str = "marks";

/// The spool file that is being written.
pub(crate) const GROWING_SPOOL: &str = "frames-growing";

/// The extension of unfinished segments.
pub(crate) const UNFINISHED_SEGMENT: &str = "part";

const SPOOL_PREFIX: &str = "frames-";

/// The path of the work folder of `output`.
pub fn work_folder(output: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(".reseed");
    output.with_file_name(name)
}

/// Whether a work folder has a finished segment.
pub fn has_segments(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| is_segment(&name.to_string_lossy()))
}

/// Whether a file of this name in a work folder is a finished segment.
pub(crate) fn is_segment(name: &str) -> bool {
    is_numbered(name) && !name.ends_with(UNFINISHED_SEGMENT)
}

/// Removes all files that Reseed wrote to a work folder, and the folder if nothing else is in it. A link is not
/// followed.
pub fn discard_work(folder: &Path) {
    if !fs::symlink_metadata(folder).is_ok_and(|folder| folder.is_dir()) {
        return;
    }
    // Errors are ignored: cleanup must not hide the error that caused it.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_work_file) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// Removes an empty work folder. A file that Windows has removed keeps its name until all programs have closed it, so
/// that a folder may still hold names for a moment.
#[cfg(windows)]
pub fn remove_empty_work(folder: &Path) {
    for pause in 0..20 {
        // A folder cannot be removed while it is listed.
        let has_files = || {
            let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.any(|entry| fs::symlink_metadata(entry.path()).is_ok())
        };
        if fs::remove_dir(folder).is_ok() || has_files() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5 * pause));
    }
}

/// Whether a file of this name in a work folder was written by Reseed.
pub(crate) fn is_work_file(name: &str) -> bool {
    [JOB_FILE, SEGMENT_LIST, MARKS_FILE, GROWING_SPOOL].contains(&name)
        || parse_spool_name(name).is_some()
        || is_numbered(name)
}

/// Whether a file name begins with the number of a segment.
fn is_numbered(name: &str) -> bool {
    name.split_once('-').is_some_and(|(index, _)| index.len() == 6 && index.parse::<usize>().is_ok())
}

/// The name of a finished spool file: `frames-120-5` has five frames from number 120 on.
#[cfg(feature = "ffmpeg")]
pub(crate) fn spool_name(first: usize, count: usize) -> String {
    format!("{SPOOL_PREFIX}{first}-{count}")
}

/// The number of the first frame of a finished spool file, and the number of its frames.
pub(crate) fn parse_spool_name(name: &str) -> Option<(usize, usize)> {
    let (first, count) = name.strip_prefix(SPOOL_PREFIX)?.split_once('-')?;
    Some((first.parse().ok()?, count.parse().ok()?))
}
