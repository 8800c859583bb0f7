//! A set of photographs and clips: `img/NAME` and `vid/CLIP/NAME`, in a folder or in a tar file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use reseed_media::Frame;

use crate::error::{Error, Result};

/// Bytes of a block of a tar file.
const BLOCK: usize = 512;
/// Pixels of the shorter side at least.
const LEAST: usize = 16;

/// The folder of the photographs.
pub const PHOTOGRAPHS: &str = "img";
/// The folder of the clips.
pub const CLIPS: &str = "vid";

/// A photograph, or a clip.
pub struct Item {
    /// The name of its file or folder.
    pub name: String,
    /// One frame of a photograph.
    pub frames: Vec<Frame>,
    /// Whether it is a clip.
    pub moving: bool,
}

impl Item {
    /// The name without an extension.
    pub fn stem(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(stem, _)| stem)
    }
}

/// A test set.
pub struct Set {
    /// Photographs.
    pub photographs: Vec<Item>,
    /// Clips.
    pub clips: Vec<Item>,
}

impl Set {
    /// Opens a set, or its first photographs and clips up to a limit.
    pub fn open(path: &Path, limit: Option<usize>) -> Result<Set> {
        let wrong = |reason: String| Error::Unusable { path: path.into(), reason };
        let files = if path.is_dir() { folder(path) } else { fs::read(path).and_then(|bytes| tar(&bytes)) };
        let hint = "use a tar file or a folder with img/ and vid/";
        let files = files.map_err(|error| wrong(format!("{error}; {hint}")))?;
        let limit = limit.unwrap_or(usize::MAX);
        let set = Set { photographs: items(&files, PHOTOGRAPHS, limit)?, clips: items(&files, CLIPS, limit)? };
        match set.photographs.is_empty() && set.clips.is_empty() {
            true => Err(wrong(format!("no images in it; {hint}"))),
            false => Ok(set),
        }
    }
}

/// Names and contents.
type Files = BTreeMap<String, Vec<u8>>;

/// The items under `root`: a file is one image, the files of a folder are a clip.
fn items(files: &Files, root: &str, limit: usize) -> Result<Vec<Item>> {
    let mut found: BTreeMap<&str, Vec<(&str, &Vec<u8>)>> = BTreeMap::new();
    for (path, bytes) in files {
        let Some(rest) = path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')) else { continue };
        let name = rest.split('/').next().unwrap_or(rest);
        found.entry(name).or_default().push((path, bytes));
    }
    let decode = |(path, bytes): &(&str, &Vec<u8>)| reseed_media::decode(bytes, Path::new(path)).map_err(Error::Input);
    let item = |(name, frames): (&str, Vec<(&str, &Vec<u8>)>)| {
        let frames: Vec<Frame> = frames.iter().map(decode).collect::<Result<_>>()?;
        let size = frames[0].size;
        let wrong = |reason: String| Error::Unusable { path: Path::new(root).join(name), reason };
        if let Some(other) = frames.iter().find(|frame| frame.size != size) {
            let reason = format!("frames of {size} and of {}; frames of a clip must have one size", other.size);
            return Err(wrong(reason));
        }
        if size.h.min(size.w) < LEAST {
            return Err(wrong(format!("{size} is too small; sides have at least {LEAST} pixels")));
        }
        Ok(Item { name: name.into(), frames, moving: root == CLIPS })
    };
    found.into_iter().take(limit).map(item).collect()
}

/// Whether a file has the name of an image.
fn is_image(name: &str) -> bool {
    [".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"].iter().any(|end| name.to_ascii_lowercase().ends_with(end))
}

/// The images of a folder and its subfolders.
fn folder(root: &Path) -> io::Result<Files> {
    let (mut files, mut open) = (Files::new(), vec![PathBuf::new()]);
    while let Some(inside) = open.pop() {
        for entry in fs::read_dir(root.join(&inside))? {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            let name = path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if is_image(&name) {
                files.insert(name, fs::read(root.join(&path))?);
            }
        }
    }
    Ok(files)
}

/// The images of a tar file: a block with name and length, then the bytes, padded to whole blocks.
fn tar(mut bytes: &[u8]) -> io::Result<Files> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not a tar file, or a damaged one");
    let mut files = Files::new();
    while let Some((header, rest)) = bytes.split_at_checked(BLOCK).filter(|(header, _)| header[0] != 0) {
        let field = |range: std::ops::Range<usize>| {
            let text = header[range].split(|byte| *byte == 0).next().unwrap_or_default();
            std::str::from_utf8(text).map(str::trim).map_err(|_| damaged())
        };
        if !header[257..].starts_with(b"ustar") {
            return Err(damaged());
        }
        let length = usize::from_str_radix(field(124..136)?, 8).map_err(|_| damaged())?;
        let (name, before) = (field(0..100)?, field(345..500)?);
        let name = if before.is_empty() { name.to_owned() } else { format!("{before}/{name}") };
        let content = rest.get(..length).ok_or_else(damaged)?;
        if is_image(&name) {
            files.insert(name.trim_start_matches("./").to_owned(), content.to_vec());
        }
        bytes = rest.get(length.next_multiple_of(BLOCK)..).unwrap_or_default();
    }
    match files.is_empty() && bytes.len() < BLOCK {
        true => Err(damaged()),
        false => Ok(files),
    }
}
