//! Errors from other errors and paths.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::Error;

impl Error {
    pub(crate) fn write(path: &Path, cause: io::Error) -> Error {
        Error::Write { path: path.into(), cause }
    }
}

impl From<reseed_ops::Error> for Error {
    fn from(error: reseed_ops::Error) -> Error {
        Error::Model(error.into())
    }
}

/// A path before the rest of a message.
pub fn prefix(path: &Option<PathBuf>) -> impl fmt::Display {
    path.as_ref().map_or(String::new(), |path| format!("{}: ", path.display()))
}

/// Result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;
