//! Damage of an input that is read as far as it goes.

use std::path::PathBuf;

use crate::frame::Size;

/// Damage of an input that did not stop reading it. The message is one line that names the file and the place.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The end of a video is missing.
    #[error("{path}: its header says {seconds:.1} s, but its end is missing; the output ends early")]
    MissingEnd {
        /// The file.
        path: PathBuf,
        /// The duration in the header, in seconds.
        seconds: f64,
    },
    /// Parts of a video could not be decoded.
    #[error("{path}: damaged, {count} errors while decoding, the first at {seconds:.2} s (frame {frame}): {message}")]
    DecoderErrors {
        /// The file.
        path: PathBuf,
        /// The number of error messages of the decoder.
        count: usize,
        /// The time of the last good frame before the first error, in seconds.
        seconds: f64,
        /// The number of frames before the first error.
        frame: usize,
        /// The first message of the decoder.
        message: String,
    },
    /// The frames of a video change their size.
    #[error("{path}: frames change from {from} to {to} at {seconds:.2} s (frame {frame}); they are scaled to {from}")]
    SizeChange {
        /// The file.
        path: PathBuf,
        /// The size of the first frame, which all frames get.
        from: Size,
        /// The size after the change.
        to: Size,
        /// The time of the change in seconds.
        seconds: f64,
        /// The number of frames before the change.
        frame: usize,
    },
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
