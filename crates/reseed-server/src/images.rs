//! Images for clients: the last few are kept as files.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reseed::Error;
use reseed::media::{Frame, ImageTags, Info, Kind, create};

const FOLDER: &str = "images";
/// Images that are kept.
const KEPT: usize = 96;

/// A folder of PNG files by name.
pub struct Images {
    folder: PathBuf,
    kept: Mutex<VecDeque<String>>,
}

impl Images {
    /// An empty folder: images do not survive a restart.
    pub fn open(data: &Path) -> io::Result<Images> {
        let folder = data.join(FOLDER);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(Images { folder, kept: Mutex::default() })
    }

    /// The file of an image.
    pub fn get(&self, name: &str) -> Option<PathBuf> {
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|kept| kept == name);
        known.then(|| self.path(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension("png")
    }

    /// Writes a frame of an input as an image. The oldest image is removed where too many are kept.
    pub fn add(&self, name: &str, input: &Info, frame: &Frame) -> reseed::Result<PathBuf> {
        let path = self.path(name);
        write(&path, input, frame)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(name.to_owned());
        let old = if kept.len() > KEPT { kept.pop_front() } else { None };
        // Two requests may have made the same image.
        if let Some(old) = old.filter(|old| !kept.contains(old)) {
            let _ = fs::remove_file(self.path(&old));
        }
        Ok(path)
    }
}

fn write(path: &Path, input: &Info, frame: &Frame) -> reseed::Result<()> {
    let (kind, frames, names, tags) = (Kind::Image, Some(1), Vec::new(), ImageTags::default());
    let info = Info { kind, frames, names, tags, size: frame.size, alpha: frame.alpha.is_some(), ..input.clone() };
    let mut sink = create(path, &info).map_err(Error::Output)?;
    sink.write(frame).and_then(|()| sink.finish()).map_err(Error::Output)
}
