//! Why a part of a clip cannot be computed.

use crate::position::Position;

/// Why a part of a clip cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// A part of something was asked for that has no parts.
    #[error("still images have no range of frames; compute the whole image")]
    OfImages,
    /// Frames that the clip does not have, or whose batches are not known yet.
    #[error(
        "frames {start} to {}: {}",
        end.saturating_sub(1),
        match frames {
            Some(frames) => format!("the clip has {frames}"),
            None => "their batches are not known yet; add more frames to the grid".into(),
        }
    )]
    Unknown {
        /// The first frame.
        start: usize,
        /// The frame after the last one.
        end: usize,
        /// Frames of the clip, where the grid is complete.
        frames: Option<usize>,
    },
    /// A place after the end of a clip.
    #[error("{at}: beyond the end; the clip has {frames} frames and is {seconds:.3} s long")]
    BeyondEnd {
        /// The place.
        at: Position,
        /// Frames of the clip.
        frames: usize,
        /// When its last frame ends.
        seconds: f64,
    },
}
