//! Why a file of a model could not be downloaded.

use std::path::PathBuf;

use crate::bytes::Bytes;

/// Why a file of a model could not be downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The server did not send it.
    #[error("{url}: {reason}; without a network put {file} ({}) into {}", Bytes(*bytes as usize), folder.display())]
    Unreachable {
        /// Its address.
        url: String,
        /// Why not.
        reason: String,
        /// The file.
        file: &'static str,
        /// Its length.
        bytes: u64,
        /// The folder for files that a user brings.
        folder: PathBuf,
    },
    /// A downloaded file is not the published one.
    #[error("{url}: its SHA-256 is {found} instead of {expected}; nothing of it is kept, try again or use a mirror")]
    WrongHash {
        /// Its address.
        url: String,
        /// Its hash.
        found: String,
        /// The published hash.
        expected: &'static str,
    },
    /// Another process downloads the same file.
    #[error("{}: another download is writing it; wait for that", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}
