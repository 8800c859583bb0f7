//! Y4M, the uncompressed video that every tool can pipe: a line of text, then planes of YUV.
//!
//! Output has the chroma format, depth and tags of the input. Y4M stores YUV and a [`Frame`](crate::Frame) holds RGB, so
//! reading and writing convert: codes below black or above white are clipped, and chroma is interpolated linearly on
//! the way in and averaged on the way out, both true to where the format says its samples lie. Interlaced video keeps
//! its flag, but its frames are treated as whole pictures.

mod header;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

use crate::frame::{Depth, Size};
use crate::planes::{self, Matrix, Yuv};

pub(crate) const MAGIC: &[u8] = b"YUV4MPEG2";

/// Which chroma samples a stream carries and where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chroma {
    /// 4:2:0, chroma in the middle of each square of four pixels (`C420jpeg`, `C420`, and where `C` is missing).
    Jpeg420,
    /// 4:2:0, chroma between two rows, on the left of two columns (`C420mpeg2`, and `C420p10` and deeper).
    Mpeg420,
    /// 4:2:0, chroma on the upper left pixel of each four (`C420paldv`).
    Paldv420,
    /// 4:2:2, chroma on the left of two columns (`C422`).
    Yuv422,
    /// 4:4:4, chroma on every pixel (`C444`).
    Yuv444,
    /// No chroma (`Cmono`).
    Mono,
}

/// Which codes stand for black and white.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range {
    /// Black 16, white 235 at eight bits.
    Limited,
    /// Black 0, white 255 at eight bits.
    Full,
}

/// The pixel format and tags of a stream: everything in its header but size and rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The chroma format.
    pub chroma: Chroma,
    /// Bits per sample: 8, 9, 10, 12, 14 or 16.
    pub bits: u8,
    /// `XCOLORRANGE`, where the header has it; see [`Format::range`].
    pub range: Option<Range>,
    /// The value of `I`, such as `p`, where the header has it.
    pub interlace: Option<String>,
    /// The value of `A`, such as `1:1`, where the header has it.
    pub aspect: Option<String>,
    /// All other parameters, letter and value, in their order.
    pub extras: Vec<String>,
}

impl Format {
    /// The format that keeps the most of RGB frames of a depth: 4:4:4, full range, as many bits.
    pub fn for_depth(depth: Depth) -> Format {
        let bits = match depth {
            Depth::Eight => 8,
            Depth::Sixteen => 16,
        };
        let (range, aspect) = (Some(Range::Full), Some("1:1".to_owned()));
        Format { chroma: Chroma::Yuv444, bits, range, interlace: Some("p".to_owned()), aspect, extras: Vec::new() }
    }

    /// The range in force. Untagged video is limited, except grey, which ffmpeg writes and reads as full.
    pub fn range(&self) -> Range {
        match (self.range, self.chroma) {
            (Some(range), _) => range,
            (None, Chroma::Mono) => Range::Full,
            (None, _) => Range::Limited,
        }
    }

    /// The frame depth that holds these samples.
    pub fn depth(&self) -> Depth {
        planes::depth(self.bits)
    }

    /// Bytes of a frame of a size, in a stream.
    pub fn frame_bytes(&self, size: Size) -> usize {
        "FRAME\n".len() + self.converter(size).frame_bytes()
    }

    /// The way to and from frames of a size. Y4M has no tag for its matrix.
    fn converter(&self, size: Size) -> Yuv {
        Yuv::new(size, self.chroma, self.bits, self.range(), Matrix::for_height(size.h))
    }
}
