//! Outputs appear whole or not at all: they grow under a temporary name beside their final one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Those of this process that are to be removed.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes what the unfinished sinks of this process have written, but for those that keep it. For a program that ends
/// without dropping them.
pub fn discard_unfinished() {
    let unfinished = std::mem::take(&mut *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner));
    unfinished.iter().for_each(|path| remove(path));
}

/// Removes what a sink for `target` left behind under its temporary name. Only for who knows that it is a sink's.
pub fn discard(target: &Path) -> Result<()> {
    let (file, folder) = (sibling(target, ".")?, sibling(target, "")?);
    if file.is_file() {
        remove(&file);
    }
    if folder.is_dir() {
        remove(&folder);
    }
    Ok(())
}

fn remove(path: &Path) {
    // A failure to tidy up must not hide the failure that led here.
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// A file or folder under its temporary name; removed on drop unless committed.
///
/// The temporary stands in the same folder as its target, because a rename is only atomic within one file system.
pub(crate) struct Partial {
    temporary: PathBuf,
    target: PathBuf,
    is_folder: bool,
    /// Whether it stays when dropped: it has its final name, or is to be gone on with.
    stays: bool,
}

impl Partial {
    /// Opens `.name.partial` for a file that will be called `name`. What an interrupted run left there is overwritten.
    pub fn file(target: &Path) -> Result<(File, Partial)> {
        if target.is_dir() {
            return Err(Error::IsFolder { path: target.to_owned() });
        }
        let temporary = sibling(target, ".")?;
        let file = File::create(&temporary).map_err(|cause| Error::Write { path: target.to_owned(), cause })?;
        Ok((file, Partial::new(temporary, target, false)))
    }

    /// Opens what an interrupted run left of a file.
    pub fn reopen_file(target: &Path) -> Result<(File, Partial)> {
        let temporary = sibling(target, ".")?;
        let file = OpenOptions::new().read(true).write(true).open(&temporary);
        let file = file.map_err(|cause| Error::Read { path: temporary.clone(), cause })?;
        Ok((file, Partial { stays: true, temporary, target: target.to_owned(), is_folder: false }))
    }

    /// What an interrupted run left of a folder.
    pub fn reopen_folder(target: &Path) -> Result<Partial> {
        let temporary = sibling(target, "")?;
        fs::metadata(&temporary).map_err(|cause| Error::Read { path: temporary.clone(), cause })?;
        Ok(Partial { stays: true, temporary, target: target.to_owned(), is_folder: true })
    }

    /// Creates `name.partial` for a folder that will be called `name`, which must be new or empty. A temporary folder
    /// that is already there is not ours to delete, since nothing tells it from one a user named so.
    pub fn folder(target: &Path) -> Result<Partial> {
        let cannot_write = |cause| Error::Write { path: target.to_owned(), cause };
        if target.is_dir() {
            if fs::read_dir(target).map_err(cannot_write)?.next().is_some() {
                return Err(Error::FolderNotEmpty { path: target.to_owned() });
            }
        } else if target.exists() {
            return Err(Error::IsFile { path: target.to_owned() });
        }
        let temporary = sibling(target, "")?;
        match fs::create_dir(&temporary) {
            Ok(()) => Ok(Partial::new(temporary, target, true)),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Err(Error::LeftOver { path: temporary }),
            Err(cause) => Err(cannot_write(cause)),
        }
    }

    fn new(temporary: PathBuf, target: &Path, is_folder: bool) -> Partial {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(temporary.clone());
        Partial { temporary, target: target.to_owned(), is_folder, stays: false }
    }

    /// From here on it stays when dropped.
    pub fn keep(&mut self) {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.temporary);
        self.stays = true;
    }

    /// Where the output grows.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives the output its final name. Every handle to it must be closed: Windows renames no open file.
    pub fn commit(mut self) -> Result<()> {
        let target = self.target.clone();
        let cannot_write = |cause| Error::Write { path: target.clone(), cause };
        if self.is_folder && self.target.is_dir() {
            // Windows renames over no folder, empty or not; this call removes empty ones only.
            fs::remove_dir(&self.target).map_err(cannot_write)?;
        }
        fs::rename(&self.temporary, &self.target).map_err(cannot_write)?;
        self.keep();
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.stays {
            self.keep();
            remove(&self.temporary);
        }
    }
}

fn sibling(target: &Path, prefix: &str) -> Result<PathBuf> {
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
