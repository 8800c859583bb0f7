//! Outputs appear whole or not at all: they grow under a temporary name beside their final one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file or folder under its temporary name; removed on drop unless committed.
///
/// The temporary stands in the same folder as its target, because a rename is only atomic within one file system.
pub(crate) struct Partial {
    temporary: PathBuf,
    target: PathBuf,
    is_folder: bool,
    committed: bool,
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
        Partial { temporary, target: target.to_owned(), is_folder, committed: false }
    }

    /// Where the output grows.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives the output its final name. Every handle to it must be closed: Windows renames no open file.
    pub fn commit(mut self) -> Result<()> {
        let cannot_write = |cause| Error::Write { path: self.target.clone(), cause };
        if self.is_folder && self.target.is_dir() {
            // Windows renames over no folder, empty or not; this call removes empty ones only.
            fs::remove_dir(&self.target).map_err(cannot_write)?;
        }
        fs::rename(&self.temporary, &self.target).map_err(cannot_write)?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // A failure to tidy up must not hide the failure that led here.
        let _ = match self.is_folder {
            true => fs::remove_dir_all(&self.temporary),
            false => fs::remove_file(&self.temporary),
        };
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
