//! Damage of an input that is read as far as it goes.

use std::path::PathBuf;

/// Damage of an input that did not stop reading it. The message is one line that names the file and the place.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The lower part of an image is missing.
    #[error("{path}: damaged image: {damage}")]
    Image {
        /// The file.
        path: PathBuf,
        /// The place, and what takes the place of the missing part.
        damage: String,
    },
    /// The last frames of an animation are missing.
    #[error("{path}: damaged after frame {frame}: {message}; the output ends there")]
    Animation {
        /// The file.
        path: PathBuf,
        /// The number of frames that could be read.
        frame: usize,
        /// The message of the decoder.
        message: String,
    },
}
