//! Results of another program for the inputs of the quality benchmark.

use std::path::{Path, PathBuf};

use reseed_media::Frame;

use super::inputs::folder_of;
use super::set::{Item, Set};
use crate::error::{Error, Result};

/// Another program.
pub struct Peer {
    /// Its name.
    pub name: String,
    folder: PathBuf,
    /// Results by the folder of their case.
    cases: Vec<(String, Set)>,
}

impl Peer {
    /// Opens a folder of results: `CASE/img/NAME` and `CASE/vid/CLIP/NAME`, where the folders and the names without
    /// extensions are those of the inputs. A case without a folder is not measured, and a case without `img` or `vid`
    /// has no photographs or no clips.
    pub fn open(name: &str, folder: &Path) -> Result<Peer> {
        let mut cases = Vec::new();
        for case in ["2x", "2x degraded", "4x", "4x degraded"].map(folder_of) {
            let path = folder.join(&case);
            if path.is_dir() {
                cases.push((case, Set::open(&path, None)?));
            }
        }
        if cases.is_empty() {
            let reason = "no folder of a case in it, such as `4x`; use the folders and names of the inputs".into();
            return Err(Error::Unusable { path: folder.into(), reason });
        }
        Ok(Peer { name: name.into(), folder: folder.into(), cases })
    }

    /// The results of an item, unless the folder lacks the case or all items of this kind.
    pub fn results(&self, case: &str, item: &Item, originals: &[Frame]) -> Result<Option<&[Frame]>> {
        let Some((folder, set)) = self.cases.iter().find(|(folder, _)| *folder == folder_of(case)) else {
            return Ok(None);
        };
        let wrong = |reason: String| Error::Unusable { path: self.folder.join(folder), reason };
        let results = if item.moving { &set.clips } else { &set.photographs };
        if results.is_empty() {
            return Ok(None);
        }
        let Some(result) = results.iter().find(|result| result.stem() == item.stem()) else {
            return Err(wrong(format!("no result of `{}`; every item of the set needs one", item.stem())));
        };
        let (frames, size) = (result.frames.len(), result.frames[0].size);
        let (needed, original) = (originals.len(), originals[0].size);
        match frames == needed && size == original {
            true => Ok(Some(&result.frames)),
            false => {
                let name = item.stem();
                Err(wrong(format!("`{name}` has {frames} frames of {size}; {needed} frames of {original} are needed")))
            }
        }
    }
}
