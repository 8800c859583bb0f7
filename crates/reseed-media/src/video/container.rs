//! The containers of video files.

use std::path::Path;

/// The container of a video output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// `.mkv`
    Matroska,
    /// `.mp4`, `.m4v`
    Mp4,
    /// `.mov`
    Mov,
    /// `.webm`
    WebM,
}

/// The extensions by which video files are found in a folder.
const VIDEO_EXTENSIONS: &[&str] = &[
    "3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf", "ogv", "ts", "vob", "webm",
    "wmv", "y4m",
];

/// Whether a path has the extension of a video file.
pub fn is_video_name(path: &Path) -> bool {
    extension(path).is_some_and(|extension| VIDEO_EXTENSIONS.contains(&extension.as_str()))
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

impl Container {
    /// The container that the extension of `path` selects.
    pub fn of(path: &Path) -> Option<Container> {
        match extension(path)?.as_str() {
            "mkv" => Some(Container::Matroska),
            "mp4" | "m4v" => Some(Container::Mp4),
            "mov" => Some(Container::Mov),
            "webm" => Some(Container::WebM),
            _ => None,
        }
    }
}
