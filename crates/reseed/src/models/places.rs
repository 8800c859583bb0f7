//! The folders of this machine that hold model files.

use std::fs;
use std::path::{Path, PathBuf};

use super::registry::File;
use crate::paths;

/// Folders that are searched for model files, in this order.
#[derive(Debug)]
pub struct Places {
    /// For files that a user brings.
    pub own: PathBuf,
    /// The cache that all programs of the hub share.
    pub hub: PathBuf,
    /// Installations of ComfyUI.
    pub comfy: Vec<PathBuf>,
}

impl Places {
    /// The user's: `RESEED_MODELS`, `HF_HUB_CACHE` or `HF_HOME`, and `COMFYUI_PATH`, or their usual folders.
    pub fn of_user() -> Places {
        let home = paths::home();
        // The hub uses this folder on every system.
        let cache = || paths::variable("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("huggingface");
        let usual = || ["ComfyUI", "comfy/ComfyUI", "Documents/ComfyUI"].map(|path| home.join(path)).to_vec();
        Places {
            own: paths::variable("RESEED_MODELS").unwrap_or_else(|| paths::data().join("reseed").join("models")),
            hub: paths::variable("HF_HUB_CACHE")
                .unwrap_or_else(|| paths::variable("HF_HOME").unwrap_or_else(cache).join("hub")),
            comfy: paths::variable("COMFYUI_PATH").map_or_else(usual, |path| vec![path]),
        }
    }

    /// The path of a file that has its published length.
    pub fn find(&self, file: &File) -> Option<PathBuf> {
        let whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == file.bytes);
        self.candidates(file).into_iter().find(whole)
    }

    fn candidates(&self, file: &File) -> Vec<PathBuf> {
        let mut found = vec![self.own.join(file.name), self.snapshot(file)];
        // Another revision may hold the same file.
        found.extend(folders(&self.repo(file).join("snapshots")).into_iter().map(|folder| folder.join(file.path())));
        for comfy in &self.comfy {
            let in_models = |folder| comfy.join("models").join(folder).join(file.name);
            found.extend(["SEEDVR2", "diffusion_models", "vae"].map(in_models));
            // The node contains the text embedding.
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
        self.repo(file).join("snapshots").join(file.repo.revision).join(file.path())
    }

    /// The file's content in the hub's cache, named after its hash.
    #[cfg(feature = "download")]
    pub fn blob(&self, file: &File) -> PathBuf {
        self.repo(file).join("blobs").join(file.sha256)
    }
}

/// The folders in a folder, sorted by name.
fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}
