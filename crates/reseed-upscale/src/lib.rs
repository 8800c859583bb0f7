//! Frames in, restored frames out.
#![deny(missing_docs)]

pub mod alpha;
pub mod batch;
mod color;
mod error;
pub mod join;
mod latent;
pub mod noise;
pub mod resize;
pub mod shot;
mod size;
mod view;

pub use color::Color;
pub use error::{Error, Result};
pub use latent::Latent;
pub use size::{Geometry, Target};
pub use view::View;
