//! What an output would take on the disk.

use crate::frame::Depth;
use crate::stream::{Info, Kind};
use crate::video::{self, Options, SEGMENT_FRAMES};

/// Bytes that an output takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The finished output. Guessed where it is compressed: pictures full of grain take several times as much.
    pub output: u64,
    /// The most that lies beside it while it is written: segments that are not yet joined, and frames in none of them.
    pub work: u64,
}

/// Bits of a pixel of a picture that is compressed without loss, to those it has.
const LOSSLESS: f64 = 0.5;

/// What `frames` frames of an output would take, which gets them `batch` at a time.
pub fn disk(info: &Info, options: &Options, frames: usize, batch: usize) -> Disk {
    let pixels = info.size.pixels() as f64;
    let bytes = |bits: f64| (pixels * frames as f64 * bits / 8.0) as u64;
    let depth = if info.depth == Depth::Eight { 8.0 } else { 16.0 };
    let video = matches!(info.kind, Kind::Video(_)) || options.codec.is_some();
    match &info.kind {
        Kind::Y4m(format) if !video => Disk { output: (format.frame_bytes(info.size) * frames) as u64, work: 0 },
        Kind::Image | Kind::Folder if !video => Disk { output: bytes(3.0 * depth * LOSSLESS), work: 0 },
        _ => {
            let output = bytes(video::bits_per_pixel(info, options));
            // The segment that grows and the one before it, whose encoder may not have ended.
            let waiting = (2 * SEGMENT_FRAMES + batch).min(frames) as u64;
            Disk { output, work: output + waiting * video::plane_bytes(info, options) as u64 }
        }
    }
}
