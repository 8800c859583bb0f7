//! Paths that clients name: all of them stay under a root.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use reseed::media::files::{self, is_device};

use crate::error::{Error, Result};

/// The longest path in bytes.
const LONGEST: usize = 4096;

/// Protocols of ffmpeg whose addresses need no slashes.
const PROTOCOLS: &[&str] = &[
    "async", "bluray", "cache", "concat", "concatf", "crypto", "data", "fd", "file", "http", "https", "md5", "pipe",
    "subfile", "tee", "unix",
];

/// Why a path is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// It is not the path of a file.
    #[error("{0:?}: {1}")]
    Malformed(String, &'static str),
    /// It leaves the roots, or nothing is known of it.
    #[error("{0:?}: not under a folder that this server serves")]
    Outside(String),
    /// The file is missing.
    #[error("{0:?}: no such file")]
    Missing(String),
}

/// The folders that clients may name files in.
pub struct Roots {
    folders: Vec<PathBuf>,
    /// The server's own files are not served, even in a root.
    own: PathBuf,
}

impl Roots {
    /// Checks that all roots are folders. Files in `own` are not served.
    pub fn open(folders: &[PathBuf], own: &Path) -> Result<Roots> {
        let real = |path: &PathBuf| {
            let failed = |cause| Error::Root { path: path.clone(), cause };
            let real = files::canonicalize(path).map_err(failed)?;
            if real.is_dir() { Ok(real) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
        };
        let folders = folders.iter().map(real).collect::<Result<_>>()?;
        Ok(Roots { folders, own: own.into() })
    }

    /// The folders.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// An existing file or folder, without links. A relative path is looked for in every root.
    pub fn existing(&self, text: &str) -> std::result::Result<PathBuf, PathProblem> {
        let path = parsed(text)?;
        let outside = || PathProblem::Outside(text.into());
        if path.is_absolute() && !self.contain(path) {
            return Err(outside());
        }
        let candidates: Vec<PathBuf> = self.folders.iter().map(|root| root.join(path)).collect();
        let found = candidates.iter().find_map(|path| files::canonicalize(path).ok());
        let real = found.ok_or_else(|| PathProblem::Missing(text.into()))?;
        if !self.contain(&real) {
            return Err(outside());
        }
        // A pipe or a device would block, or never end.
        match fs::metadata(&real) {
            Ok(metadata) if metadata.is_file() || metadata.is_dir() => Ok(real),
            _ => Err(PathProblem::Malformed(text.into(), "neither a file nor a folder")),
        }
    }

    /// A file that may be written: its folder exists under a root, and it is no link. A relative path is in the first
    /// root.
    pub fn output(&self, text: &str) -> std::result::Result<PathBuf, PathProblem> {
        let path = parsed(text)?;
        let outside = || PathProblem::Outside(text.into());
        if path.is_absolute() && !self.contain(path) {
            return Err(outside());
        }
        let path = self.folders.first().ok_or_else(outside)?.join(path);
        let malformed = |why| PathProblem::Malformed(text.into(), why);
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| malformed("has no file name"))?;
        if is_device(name.as_ref()) || name.starts_with('.') || name.ends_with(['.', ' ']) {
            return Err(malformed("not a name for an output"));
        }
        let folder = path.parent().and_then(|folder| files::canonicalize(folder).ok());
        let folder = folder.ok_or_else(|| PathProblem::Missing(text.into()))?;
        if !self.contain(&folder) {
            return Err(outside());
        }
        let output = folder.join(name);
        match fs::symlink_metadata(&output) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Err(outside()),
            _ => Ok(output),
        }
    }

    /// Whether a path is in a root.
    pub fn contain(&self, path: &Path) -> bool {
        self.folders.iter().any(|root| is_under(path, root)) && !is_under(path, &self.own)
    }
}

/// Whether a path is a folder or is in it. On Windows the same name may have letters of another case.
fn is_under(path: &Path, folder: &Path) -> bool {
    if cfg!(windows) {
        let folded = |part: Component| part.as_os_str().to_string_lossy().to_lowercase();
        let mut parts = path.components().map(folded);
        return folder.components().map(folded).all(|part| parts.next() == Some(part));
    }
    path.starts_with(folder)
}

/// A path without parts that lead elsewhere.
fn parsed(text: &str) -> std::result::Result<&Path, PathProblem> {
    let shown = || text.chars().take(200).collect::<String>();
    let malformed = |why| Err(PathProblem::Malformed(shown(), why));
    let path = Path::new(text);
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_address = text.contains("://") || PROTOCOLS.contains(&scheme.to_ascii_lowercase().as_str());
    match text {
        "" | "-" => malformed("not the path of a file"),
        _ if text.len() > LONGEST => malformed("too long"),
        _ if text.chars().any(char::is_control) => malformed("has control characters"),
        _ if is_address => malformed("an address is no path; this server opens files only"),
        _ if text.starts_with("\\\\") || text.starts_with("//") => malformed("a network path"),
        _ if path.components().any(|part| part == Component::ParentDir) => malformed("has `..`"),
        _ if text.split(['/', '\\']).any(|part| part == "..") => malformed("has `..`"),
        _ if cfg!(windows) && text.split(['/', '\\']).any(|part| is_device(part.as_ref())) => {
            malformed("names a device")
        }
        _ => Ok(path),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    struct Lab {
        folder: temp_dir::TempDir,
        roots: Roots,
    }

    fn lab() -> Lab {
        let folder = temp_dir::TempDir::new().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("a.mp4"), "a").unwrap();
        fs::write(folder.path().join("secret.mp4"), "s").unwrap();
        fs::create_dir(root.join("own")).unwrap();
        fs::write(root.join("own/token"), "t").unwrap();
        let own = files::canonicalize(&root.join("own")).unwrap();
        let roots = Roots::open(&[root], &own).unwrap();
        Lab { folder, roots }
    }

    #[test]
    fn files_of_a_root_are_found_by_either_path() {
        let Lab { folder, roots } = lab();
        let real = files::canonicalize(&folder.path().join("root/a.mp4")).unwrap();
        assert_eq!(roots.existing("a.mp4"), Ok(real.clone()));
        assert_eq!(roots.existing("./sub/../a.mp4").ok(), None);
        assert_eq!(roots.existing(real.to_str().unwrap()), Ok(real));
    }

    #[test]
    fn nothing_is_revealed_of_files_outside() {
        let Lab { folder, roots } = lab();
        let outside = files::canonicalize(folder.path()).unwrap();
        for name in ["secret.mp4", "missing.mp4", "root2", "rooted/x"] {
            let path = outside.join(name);
            let text = path.to_str().unwrap();
            assert_eq!(roots.existing(text), Err(PathProblem::Outside(text.into())));
            assert_eq!(roots.output(text), Err(PathProblem::Outside(text.into())));
        }
    }

    #[test]
    fn files_of_the_server_are_not_served() {
        let Lab { folder: _folder, roots } = lab();
        assert!(matches!(roots.existing("own/token"), Err(PathProblem::Outside(_))));
        assert!(matches!(roots.output("own/queue.mp4"), Err(PathProblem::Outside(_))));
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_a_root_are_refused() {
        use std::os::unix::fs::symlink;
        let Lab { folder, roots } = lab();
        let root = folder.path().join("root");
        symlink(folder.path().join("secret.mp4"), root.join("link.mp4")).unwrap();
        symlink(folder.path(), root.join("up")).unwrap();
        symlink(root.join("a.mp4"), root.join("inside.mp4")).unwrap();
        assert!(matches!(roots.existing("link.mp4"), Err(PathProblem::Outside(_))));
        assert!(matches!(roots.existing("up/secret.mp4"), Err(PathProblem::Outside(_))));
        assert!(roots.existing("inside.mp4").is_ok());
        assert!(matches!(roots.output("link.mp4"), Err(PathProblem::Outside(_))));
        assert!(matches!(roots.output("up/new.mp4"), Err(PathProblem::Outside(_))));
    }

    #[test]
    fn malformed_paths_are_refused() {
        let Lab { folder: _folder, roots } = lab();
        for text in [
            "",
            "-",
            "../secret.mp4",
            "sub/../../secret.mp4",
            "sub\\..\\a.mp4",
            "a\0.mp4",
            "a\n.mp4",
            "//host/a.mp4",
            "\\\\host\\a.mp4",
            "http://host/a.mp4",
            "file:/etc/passwd",
            "concat:a.mp4|b.mp4",
            "data:video/mp4;base64,",
        ] {
            assert!(matches!(roots.existing(text), Err(PathProblem::Malformed(..))), "{text:?}");
            assert!(matches!(roots.output(text), Err(PathProblem::Malformed(..))), "{text:?}");
        }
        for text in ["nul", "CON.mp4", "com1.mkv", "lpt9", "a.mp4.", "a.mp4 ", ".a.mp4", "sub/aux.png"] {
            assert!(matches!(roots.output(text), Err(PathProblem::Malformed(..))), "{text:?}");
        }
        assert!(roots.output("sub/comet.mp4").is_ok() && roots.output("com0.mp4").is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn pipes_are_refused() {
        let Lab { folder, roots } = lab();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("root/pipe.y4m")).status();
        if made.is_ok_and(|status| status.success()) {
            assert!(matches!(roots.existing("pipe.y4m"), Err(PathProblem::Malformed(..))));
            assert!(roots.output("pipe.y4m").is_err());
        }
    }
}
