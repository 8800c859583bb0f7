//! Frames in, restored frames out.
#![deny(missing_docs)]

pub mod alpha;
mod color;
mod error;
pub mod resize;
mod size;
mod view;

pub use color::Color;
pub use error::{Error, Result};
pub use size::{Geometry, Target};
pub use view::View;
