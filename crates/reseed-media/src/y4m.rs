//! Y4M, the uncompressed video format for pipes: a header line, then frames of YUV planes.
//!
//! An output has the chroma format, depth and tags of its input. Y4M stores YUV and a [`Frame`](crate::Frame) holds
//! RGB, so reading and writing convert. Codes below black or above white are clipped. Chroma is interpolated linearly
//! when read and averaged when written, at the positions that the format defines. Interlaced video keeps its flag, but
//! its frames are treated as progressive.

mod header;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::io::Cursor;

pub use crate::format::{Chroma, Format, Range};
pub(crate) use reader::Reader;
pub(crate) use writer::Writer;

use crate::format::Matrix;
use crate::frame::Size;
use crate::planes::Yuv;

pub(crate) const MAGIC: &[u8] = b"YUV4MPEG2";

const FRAME_LINE: &[u8] = b"FRAME\n";

/// Bytes of a frame in a stream, including its header line.
pub(crate) fn frame_bytes(format: &Format, size: Size) -> usize {
    FRAME_LINE.len() + converter(format, size).frame_bytes()
}

/// The converter for frames of a stream. Y4M has no matrix tag, so the height selects the matrix.
fn converter(format: &Format, size: Size) -> Yuv {
    Yuv::new(size, format.chroma, format.bits, format.range(), Matrix::for_size(size))
}

/// The embedded sample clip.
pub(crate) fn sample() -> Box<Reader> {
    let clip = Cursor::new(include_bytes!("../assets/sample.y4m"));
    Box::new(Reader::seekable(clip, "sample.y4m").expect("the embedded clip is valid"))
}
