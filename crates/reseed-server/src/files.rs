//! Folders and media files under the roots, for clients that choose an input.

use std::fs::{self, DirEntry};
use std::path::Path;
use std::time::UNIX_EPOCH;

use reseed::media::{files, is_image_name, is_video_name, natural_order};
use serde::Serialize;
use utoipa::ToSchema;

use crate::roots::{PathProblem, Roots};

/// Entries of a folder that are listed.
const LISTED: usize = 5000;

/// A folder or a media file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FileView {
    /// Its name.
    pub name: String,
    /// Its path for requests.
    pub path: String,
    /// folder, video or image.
    pub kind: &'static str,
    /// Bytes of a file.
    pub bytes: Option<u64>,
    /// When it was changed, in seconds since 1970.
    pub modified_at: Option<f64>,
}

/// The content of a folder.
#[derive(Serialize, ToSchema)]
pub struct FileList {
    /// The folder; empty for the list of all roots.
    pub path: String,
    /// The folder above it; empty for the list of all roots, none above that.
    pub parent: Option<String>,
    /// Folders, then files, in natural order. Hidden files and files that are no media are left out.
    pub entries: Vec<FileView>,
    /// Whether the folder has more.
    pub truncated: bool,
}

impl Roots {
    /// The content of a folder, or the roots.
    pub fn list(&self, path: &str) -> Result<FileList, PathProblem> {
        if path.is_empty() {
            let entries = self.folders().iter().map(|root| view(root, root.to_string_lossy().into(), "folder"));
            return Ok(FileList { path: String::new(), parent: None, entries: entries.collect(), truncated: false });
        }
        let folder = self.existing(path)?;
        let malformed = |why| PathProblem::Malformed(path.into(), why);
        let entries = fs::read_dir(&folder).map_err(|_| malformed("not a folder that can be read"))?;
        let mut entries: Vec<FileView> = entries.flatten().filter_map(|entry| self.listed(&entry)).collect();
        let rank = |entry: &FileView| entry.kind != "folder";
        entries.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| natural_order(&a.name, &b.name)));
        let truncated = entries.len() > LISTED;
        entries.truncate(LISTED);
        let above = folder.parent().filter(|parent| self.contain(parent));
        let parent = Some(above.map_or(String::new(), |parent| parent.to_string_lossy().into_owned()));
        Ok(FileList { path: folder.to_string_lossy().into_owned(), parent, entries, truncated })
    }

    /// An entry that clients may name.
    fn listed(&self, entry: &DirEntry) -> Option<FileView> {
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
        let real = files::canonicalize(&entry.path()).ok().filter(|real| self.contain(real))?;
        let kind = match fs::metadata(&real).ok()? {
            metadata if metadata.is_dir() => "folder",
            metadata if metadata.is_file() && is_video_name(Path::new(&name)) => "video",
            metadata if metadata.is_file() && is_image_name(Path::new(&name)) => "image",
            _ => return None,
        };
        Some(view(&entry.path(), name, kind))
    }
}

fn view(path: &Path, name: String, kind: &'static str) -> FileView {
    let metadata = fs::metadata(path).ok();
    let bytes = metadata.as_ref().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
    let modified = metadata.and_then(|metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let modified_at = modified.map(|time| time.as_secs_f64().round());
    FileView { name, path: path.to_string_lossy().into_owned(), kind, bytes, modified_at }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(list: &FileList) -> Vec<(&str, &str)> {
        list.entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect()
    }

    #[test]
    fn folders_and_media_are_listed_and_nothing_else() {
        let folder = temp_dir::TempDir::new().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::create_dir_all(root.join("own")).unwrap();
        for name in ["a10.mp4", "a2.mp4", "b.PNG", "c.gif", "notes.txt", ".hidden.mp4", "sub/x.mkv"] {
            fs::write(root.join(name), "x").unwrap();
        }
        fs::write(folder.path().join("secret.mp4"), "s").unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.path().join("secret.mp4"), root.join("link.mp4")).unwrap();
            std::os::unix::fs::symlink(folder.path(), root.join("up")).unwrap();
        }
        let own = files::canonicalize(&root.join("own")).unwrap();
        let roots = Roots::open(std::slice::from_ref(&root), &own).unwrap();
        let all = roots.list("").unwrap();
        assert_eq!((all.entries.len(), all.parent), (1, None));
        let list = roots.list(&all.entries[0].path).unwrap();
        let expected =
            [("sub", "folder"), ("a2.mp4", "video"), ("a10.mp4", "video"), ("b.PNG", "image"), ("c.gif", "image")];
        assert_eq!(names(&list), expected);
        assert_eq!((list.parent.as_deref(), list.entries[1].bytes), (Some(""), Some(1)));
        let sub = roots.list("sub").unwrap();
        assert_eq!((names(&sub), &sub.parent), (vec![("x.mkv", "video")], &Some(list.path)));
        let up = folder.path().to_str().unwrap();
        assert!(["..", "own", "up", "missing", "a2.mp4", "/", up].iter().all(|path| roots.list(path).is_err()));
    }
}
