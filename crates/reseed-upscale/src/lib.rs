//! Frames in, restored frames out.
#![deny(missing_docs)]

mod error;
pub mod resize;
mod size;
mod view;

pub use error::{Error, Result};
pub use size::{Geometry, Target};
pub use view::View;
