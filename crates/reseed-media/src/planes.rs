//! Conversion between planes of codes, as videos store them, and RGB frames. All conversions between YUV and RGB in
//! this crate happen here, in f32, with an explicit matrix, range and chroma position.

mod alpha;
mod filter;
mod gbr;
mod layout;
mod yuv;

pub use crate::format::Matrix;
pub use layout::{Layout, Model, Planes};
pub(crate) use yuv::Yuv;
