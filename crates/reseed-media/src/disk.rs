//! Estimates of disk space.

use crate::frame::Depth;
use crate::stream::{Info, Kind};
use crate::video::{Codec, Container, Options, SEGMENT_FRAMES};
use crate::y4m;

/// The disk space of an output, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The finished output. For compressed formats an estimate: frames with much grain need several times as much.
    pub output: u64,
    /// The most that temporary files need in addition: segments before they are joined, and spooled frames.
    pub work: u64,
}

/// Compressed size of a lossless image, relative to its samples.
const LOSSLESS: f64 = 0.5;

/// Estimates the disk space of an output of `frames` frames that arrive in batches of `batch`.
pub fn disk(info: &Info, options: &Options, frames: usize, batch: usize) -> Disk {
    let pixels = info.size.pixels() as f64;
    let bytes = |bits: f64| (pixels * frames as f64 * bits / 8.0) as u64;
    let depth = if info.depth == Depth::Eight { 8.0 } else { 16.0 };
    let video = matches!(info.kind, Kind::Video(_)) || options.codec.is_some();
    match &info.kind {
        Kind::Y4m(format) if !video => Disk { output: (y4m::frame_bytes(format, info.size) * frames) as u64, work: 0 },
        Kind::Image | Kind::Pages | Kind::Folder if !video => Disk { output: bytes(3.0 * depth * LOSSLESS), work: 0 },
        // The frames of an animation wait in a folder.
        Kind::Animation(_) if !video => {
            let output = bytes(3.0 * depth * LOSSLESS);
            Disk { output, work: output }
        }
        _ => {
            let pixels = info.pixels();
            let codec = options.codec.unwrap_or(Codec::default_for(Container::Matroska, pixels.bits));
            let pixels = codec.stored_pixels(pixels);
            let output = bytes(codec.bits_per_pixel(pixels, options.crf));
            // The current segment, and the previous one while its encoder completes.
            let spooled = (2 * SEGMENT_FRAMES + batch).min(frames) as u64;
            Disk { output, work: output + spooled * pixels.frame_bytes(info.size) as u64 }
        }
    }
}
