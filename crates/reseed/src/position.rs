//! Places in a clip.

use std::fmt;
use std::time::Duration;

/// A place in a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The index of a frame, counted from 0.
    Frame(usize),
    /// The frame that is shown at this time, or the first one.
    Time(Duration),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Frame(index) => write!(f, "frame {index}"),
            Position::Time(time) => write!(f, "{:.3} s", time.as_secs_f64()),
        }
    }
}
