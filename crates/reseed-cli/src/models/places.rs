//! Where model files lie on this machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::registry::File;
use crate::user;

/// Folders that are searched for model files, in this order.
#[derive(Debug)]
pub struct Places {
    /// Where people put files by hand.
    pub own: PathBuf,
    /// The cache that all programs of the hub share.
    pub hub: PathBuf,
    /// Installations of ComfyUI.
    pub comfy: Vec<PathBuf>,
}

impl Places {
    /// The places of this user: `RESEED_MODELS`, `HF_HUB_CACHE` or `HF_HOME`, and `COMFYUI_PATH`, or where these usually
    /// are.
    pub fn of_user() -> Places {
        let home = user::home();
        // The hub keeps to this one on every system.
        let cache = || user::named("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("huggingface");
        let usual = || ["ComfyUI", "comfy/ComfyUI", "Documents/ComfyUI"].map(|path| home.join(path)).to_vec();
        Places {
            own: user::named("RESEED_MODELS").unwrap_or_else(|| user::data().join("reseed").join("models")),
            hub: user::named("HF_HUB_CACHE")
                .unwrap_or_else(|| user::named("HF_HOME").unwrap_or_else(cache).join("hub")),
            comfy: user::named("COMFYUI_PATH").map_or_else(usual, |path| vec![path]),
        }
    }

    /// Where a file is, whole as far as its length tells.
    pub fn find(&self, file: &File) -> Option<PathBuf> {
        let whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == file.bytes);
        self.candidates(file).into_iter().find(whole)
    }

    fn candidates(&self, file: &File) -> Vec<PathBuf> {
        let mut found = vec![self.own.join(file.name), self.snapshot(file)];
        // The same file may have come with another commit.
        found.extend(folders(&self.repo(file).join("snapshots")).into_iter().map(|folder| folder.join(file.name)));
        for comfy in &self.comfy {
            found.push(comfy.join("models").join("SEEDVR2").join(file.name));
            // The node brings the text embedding along.
            found.extend(folders(&comfy.join("custom_nodes")).into_iter().map(|node| node.join(file.name)));
        }
        found
    }

    /// The file's repository in the hub's cache.
    pub fn repo(&self, file: &File) -> PathBuf {
        self.hub.join(format!("models--{}", file.repo.name.replace('/', "--")))
    }

    /// The file under its own name in the hub's cache.
    pub fn snapshot(&self, file: &File) -> PathBuf {
        self.repo(file).join("snapshots").join(file.repo.revision).join(file.name)
    }

    /// The file's content in the hub's cache, which is named after its hash.
    pub fn blob(&self, file: &File) -> PathBuf {
        self.repo(file).join("blobs").join(file.sha256)
    }
}

/// The folders in a folder, in the order of their names.
fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}
