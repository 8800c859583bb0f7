//! A converter for planes of either colour model.

use super::gbr::Gbr;
use super::yuv::Yuv;
use crate::format::{Chroma, Matrix, Range};
use crate::frame::{Depth, Frame, Samples, Size};

/// The colour model of planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// Luma and two planes of chroma, or luma alone for grey.
    Yuv { chroma: Chroma, range: Range, matrix: Matrix },
    /// Green, blue and red of full range.
    Gbr,
}

/// The colour model of planes and their bits per sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub model: Model,
    pub bits: u8,
}

impl Layout {
    /// The frame depth that holds these samples.
    pub fn depth(self) -> Depth {
        Depth::for_bits(self.bits)
    }
}

/// A converter for the frames of one stream.
pub(crate) enum Planes {
    Yuv(Box<Yuv>),
    Gbr(Gbr),
}

impl Planes {
    pub fn new(size: Size, layout: Layout) -> Planes {
        match layout.model {
            Model::Yuv { chroma, range, matrix } => {
                Planes::Yuv(Box::new(Yuv::new(size, chroma, layout.bits, range, matrix)))
            }
            Model::Gbr => Planes::Gbr(Gbr::new(size, layout.bits)),
        }
    }

    /// Bytes of all planes of a frame.
    pub fn frame_bytes(&self) -> usize {
        match self {
            Planes::Yuv(yuv) => yuv.frame_bytes(),
            Planes::Gbr(gbr) => gbr.frame_bytes(),
        }
    }

    /// Converts planes to a frame, in the memory of `spare` if its depth and length match.
    pub fn decode(&self, planes: &[u8], spare: Option<Samples>) -> Frame {
        match self {
            Planes::Yuv(yuv) => yuv.decode(planes, spare),
            Planes::Gbr(gbr) => gbr.decode(planes),
        }
    }

    /// Converts a frame to planes.
    pub fn encode(&self, frame: &Frame, planes: &mut Vec<u8>) {
        match self {
            Planes::Yuv(yuv) => yuv.encode(frame, planes),
            Planes::Gbr(gbr) => gbr.encode(frame, planes),
        }
    }
}
