//! Outputs under a temporary name, which are renamed when they are complete.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::files;

/// The temporary paths of this process that are removed unless finished or kept.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the temporary files of all unfinished sinks of this process, except those that
/// [keep them](crate::Sink::keep_unfinished), and ends all child processes. For a process that exits without dropping
/// its sources and sinks.
pub fn discard_unfinished() {
    let unfinished = std::mem::take(&mut *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner));
    #[cfg(feature = "ffmpeg")]
    crate::ffmpeg::kill_children();
    unfinished.iter().for_each(|path| remove(path));
}

/// Removes the temporary file or folder of an interrupted sink for `target`. The caller must know that a sink wrote it.
pub fn discard(target: &Path) -> Result<()> {
    let (file, folder) = (temporary(target, ".")?, temporary(target, "")?);
    if file.is_file() {
        remove(&file);
    }
    if folder.is_dir() {
        remove(&folder);
    }
    Ok(())
}

/// Whether an interrupted sink for `target` left its temporary file or folder.
pub fn has_unfinished(target: &Path) -> bool {
    [".", ""].iter().any(|prefix| temporary(target, prefix).is_ok_and(|path| fs::symlink_metadata(path).is_ok()))
}

fn remove(path: &Path) {
    // Errors are ignored: cleanup must not hide the error that caused it.
    let _ = if path.is_dir() { files::remove_dir_all(path) } else { files::remove_file(path) };
}

/// A file or folder under its temporary name; removed on drop unless committed or kept.
///
/// The temporary path is in the folder of the target, because a rename is atomic only within one file system.
pub(crate) struct Partial {
    temporary: PathBuf,
    target: PathBuf,
    is_folder: bool,
    /// Whether it is kept on drop.
    keep: bool,
}

impl Partial {
    /// Creates `.name.partial` for a file `name`, and replaces that of an interrupted run. An existing link is removed,
    /// not followed.
    pub fn file(target: &Path) -> Result<(File, Partial)> {
        if target.is_dir() {
            return Err(Error::IsFolder { path: target.to_owned() });
        }
        let temporary = temporary(target, ".")?;
        let file = create_new(&temporary).map_err(|cause| Error::Write { path: target.to_owned(), cause })?;
        Ok((file, Partial::new(temporary, target, false)))
    }

    /// Creates the temporary file again, for another process that opens it by its name.
    #[cfg(feature = "ffmpeg")]
    pub fn renew(&self) -> Result<()> {
        let created = create_new(&self.temporary);
        created.map(drop).map_err(|cause| Error::Write { path: self.target.clone(), cause })
    }

    /// Opens the temporary file of an interrupted run.
    pub fn reopen_file(target: &Path) -> Result<(File, Partial)> {
        let temporary = temporary(target, ".")?;
        let is_file = fs::symlink_metadata(&temporary).and_then(|found| match found.is_file() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file")),
        });
        let file = is_file.and_then(|()| OpenOptions::new().read(true).write(true).open(&temporary));
        let file = file.map_err(|cause| Error::Read { path: temporary.clone(), cause })?;
        Ok((file, Partial { keep: true, temporary, target: target.to_owned(), is_folder: false }))
    }

    /// Opens the temporary folder of an interrupted run.
    pub fn reopen_folder(target: &Path) -> Result<Partial> {
        let temporary = temporary(target, "")?;
        fs::metadata(&temporary).map_err(|cause| Error::Read { path: temporary.clone(), cause })?;
        Ok(Partial { keep: true, temporary, target: target.to_owned(), is_folder: true })
    }

    /// Creates `name.partial` for a folder `name`, which must be new or empty. Fails if the temporary folder already
    /// exists, because a user may have created it. An empty one is used: a run that was killed before its first frame
    /// leaves it.
    pub fn folder(target: &Path) -> Result<Partial> {
        let cannot_write = |cause| Error::Write { path: target.to_owned(), cause };
        if target.is_dir() {
            if fs::read_dir(target).map_err(cannot_write)?.next().is_some() {
                return Err(Error::FolderNotEmpty { path: target.to_owned() });
            }
        } else if target.exists() {
            return Err(Error::IsFile { path: target.to_owned() });
        }
        let temporary = temporary(target, "")?;
        match fs::create_dir(&temporary) {
            Ok(()) => Ok(Partial::new(temporary, target, true)),
            Err(_) if is_empty_folder(&temporary) => Ok(Partial::new(temporary, target, true)),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::TemporaryExists { path: temporary })
            }
            Err(cause) => Err(cannot_write(cause)),
        }
    }

    /// Creates the folder `name.partial` for the frames that a file `name` is joined from.
    pub fn frames(target: &Path) -> Result<Partial> {
        let temporary = temporary(target, "")?;
        // A run that was killed before its first frame leaves an empty folder; this call removes no other.
        let _ = fs::remove_dir(&temporary);
        match fs::create_dir(&temporary) {
            Ok(()) => Ok(Partial::new(temporary, target, true)),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::TemporaryExists { path: temporary })
            }
            Err(cause) => Err(Error::Write { path: target.to_owned(), cause }),
        }
    }

    /// Removes the temporary path, even if it was to be kept.
    pub fn discard(mut self) {
        self.keep();
        remove(&self.temporary);
    }

    fn new(temporary: PathBuf, target: &Path, is_folder: bool) -> Partial {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(temporary.clone());
        Partial { temporary, target: target.to_owned(), is_folder, keep: false }
    }

    /// Keeps the temporary path on drop.
    pub fn keep(&mut self) {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.temporary);
        self.keep = true;
    }

    /// The temporary path.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Syncs the output to the disk and renames it to its final name, so that after a power cut the name has the
    /// complete output or none. All handles to it must be closed, because Windows cannot rename open files.
    pub fn commit(mut self) -> Result<()> {
        let target = self.target.clone();
        let cannot_write = |cause| Error::Write { path: target.clone(), cause };
        if self.is_folder && self.target.is_dir() {
            // Windows cannot rename onto a folder. This call removes empty folders only.
            fs::remove_dir(&self.target).map_err(cannot_write)?;
        }
        sync(&self.temporary).map_err(cannot_write)?;
        files::rename(&self.temporary, &self.target).map_err(cannot_write)?;
        self.keep();
        let parent = self.target.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        sync_folder(parent).map_err(cannot_write)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.keep {
            self.keep();
            remove(&self.temporary);
        }
    }
}

/// Whether a path is a folder, and no link to one, without content.
fn is_empty_folder(path: &Path) -> bool {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    is_folder && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Creates a new file in place of an existing file or link.
fn create_new(path: &Path) -> io::Result<File> {
    match files::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)
}

/// Syncs a file, or a folder with its files, to the disk.
fn sync(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return OpenOptions::new().write(true).open(path)?.sync_all();
    }
    for entry in fs::read_dir(path)? {
        sync(&entry?.path())?;
    }
    sync_folder(path)
}

/// Syncs the names in a folder to the disk, where the system can do so.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(path).and_then(|folder| folder.sync_all()) {
        Err(error) if [InvalidInput, PermissionDenied, Unsupported].contains(&error.kind()) => Ok(()),
        synced => synced,
    }
}

/// The temporary path of `target`.
fn temporary(target: &Path, prefix: &str) -> Result<PathBuf> {
    let Some(name) = target.file_name() else {
        return Err(Error::UnknownOutput { path: target.to_owned(), expected: "a name for the output" });
    };
    match target.parent() {
        Some(parent) if parent != Path::new("") && !parent.is_dir() => {
            Err(Error::NoParent { path: target.to_owned(), parent: parent.to_owned() })
        }
        _ => {
            let mut temporary = OsString::from(prefix);
            temporary.push(name);
            temporary.push(".partial");
            Ok(target.with_file_name(temporary))
        }
    }
}

#[cfg(all(test, unix, feature = "ffmpeg"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_under_the_temporary_name_is_replaced_not_followed() {
        let folder = temp_dir::TempDir::new().unwrap();
        let (target, other) = (folder.path().join("out.y4m"), folder.path().join("other"));
        let link = folder.path().join(".out.y4m.partial");
        fs::write(&other, "precious").unwrap();
        symlink(&other, &link).unwrap();
        assert!(Partial::reopen_file(&target).is_err());
        let (file, partial) = Partial::file(&target).unwrap();
        drop(file);
        fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        partial.renew().unwrap();
        partial.commit().unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&target).unwrap().is_file());
    }
}
