//! Planes of codes, as videos store them, to RGB frames and back. Every conversion between YUV and RGB in this crate
//! happens here, in f32, with a matrix, a range and a siting that somebody named.

mod filter;
mod gbr;
mod yuv;

use crate::frame::{Depth, Frame, Samples, Size};
use crate::y4m::{Chroma, Range};

pub(crate) use yuv::Yuv;

/// How luma and chroma follow from red and blue: Y = kr R + (1 - kr - kb) G + kb B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Matrix {
    Bt601,
    Bt709,
    Bt2020,
    Smpte240m,
    Fcc,
}

impl Matrix {
    /// Where no tag names the matrix, players guess by height: standard definition was made in BT.601, high definition
    /// in BT.709. We guess as they do, each side by its own height, so that a player shows the same colours for the
    /// output as for the input even where upscaling crosses the line.
    pub fn for_height(h: usize) -> Matrix {
        if h < 720 { Matrix::Bt601 } else { Matrix::Bt709 }
    }

    /// ffmpeg's name for it.
    pub fn tag(self) -> &'static str {
        match self {
            Matrix::Bt601 => "smpte170m",
            Matrix::Bt709 => "bt709",
            Matrix::Bt2020 => "bt2020nc",
            Matrix::Smpte240m => "smpte240m",
            Matrix::Fcc => "fcc",
        }
    }

    fn kr(self) -> f32 {
        match self {
            Matrix::Bt601 => 0.299,
            Matrix::Bt709 => 0.2126,
            Matrix::Bt2020 => 0.2627,
            Matrix::Smpte240m => 0.212,
            Matrix::Fcc => 0.3,
        }
    }

    fn kb(self) -> f32 {
        match self {
            Matrix::Bt601 => 0.114,
            Matrix::Bt709 => 0.0722,
            Matrix::Bt2020 => 0.0593,
            Matrix::Smpte240m => 0.087,
            Matrix::Fcc => 0.11,
        }
    }

    /// Of red, green and blue in luma.
    pub fn weights(self) -> [f32; 3] {
        let (kr, kb) = (self.kr(), self.kb());
        [kr, 1.0 - kr - kb, kb]
    }
}

/// What the planes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// Luma and, unless it is grey, two planes of chroma.
    Yuv { chroma: Chroma, range: Range, matrix: Matrix },
    /// Green, blue and red of full range.
    Gbr,
}

/// What the planes hold, and in how many bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub model: Model,
    pub bits: u8,
}

impl Layout {
    /// The frame depth that holds these samples.
    pub fn depth(self) -> Depth {
        depth(self.bits)
    }
}

pub(crate) fn depth(bits: u8) -> Depth {
    if bits == 8 { Depth::Eight } else { Depth::Sixteen }
}

/// A converter for the frames of one stream.
pub(crate) enum Planes {
    Yuv(Box<Yuv>),
    Gbr(gbr::Gbr),
}

impl Planes {
    pub fn new(size: Size, layout: Layout) -> Planes {
        match layout.model {
            Model::Yuv { chroma, range, matrix } => {
                Planes::Yuv(Box::new(Yuv::new(size, chroma, layout.bits, range, matrix)))
            }
            Model::Gbr => Planes::Gbr(gbr::Gbr::new(size, layout.bits)),
        }
    }

    /// Bytes of all planes of a frame.
    pub fn frame_bytes(&self) -> usize {
        match self {
            Planes::Yuv(yuv) => yuv.frame_bytes(),
            Planes::Gbr(gbr) => gbr.frame_bytes(),
        }
    }

    /// The frame that planes hold, where `spare` lies if that serves.
    pub fn decode(&self, planes: &[u8], spare: Option<Samples>) -> Frame {
        match self {
            Planes::Yuv(yuv) => yuv.decode(planes, spare),
            Planes::Gbr(gbr) => gbr.decode(planes),
        }
    }

    pub fn encode(&self, frame: &Frame, planes: &mut Vec<u8>) {
        match self {
            Planes::Yuv(yuv) => yuv.encode(frame, planes),
            Planes::Gbr(gbr) => gbr.encode(frame, planes),
        }
    }
}
