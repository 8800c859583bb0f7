//! Conversion between planes of codes, as videos store them, and RGB frames. All conversions between YUV and RGB in
//! this crate happen here, in f32, with an explicit matrix, range and chroma position.

#[cfg(feature = "ffmpeg")]
mod alpha;
mod filter;
#[cfg(feature = "ffmpeg")]
mod gbr;
#[cfg(feature = "ffmpeg")]
mod layout;
mod yuv;

#[cfg(feature = "ffmpeg")]
pub(crate) use layout::{Layout, Model, Planes};
pub(crate) use yuv::Yuv;
