//! A converter for planes of either colour model.

use super::alpha::AlphaPlane;
use super::gbr::Gbr;
use super::yuv::Yuv;
use crate::format::{Chroma, Matrix, Range};
use crate::frame::{Depth, Frame, Samples, Size};

/// The colour model of planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Luma and two planes of chroma, or luma alone for grey.
    Yuv {
        /// The chroma format.
        chroma: Chroma,
        /// Which codes are black and white.
        range: Range,
        /// The weights of luma.
        matrix: Matrix,
    },
    /// Green, blue and red of full range.
    Gbr,
}

/// The colour model of planes, their bits per sample, and whether a plane of alpha follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The colour model.
    pub model: Model,
    /// Bits per sample, 8 to 16; samples of more than eight bits have two bytes, the lower one first.
    pub bits: u8,
    /// Whether a plane of alpha follows.
    pub alpha: bool,
}

impl Layout {
    /// The frame depth that holds these samples.
    pub fn depth(self) -> Depth {
        Depth::for_bits(self.bits)
    }
}

/// A converter for the frames of one stream, whose planes follow each other without gaps.
pub struct Planes {
    color: ColorPlanes,
    alpha: Option<AlphaPlane>,
}

enum ColorPlanes {
    Yuv(Box<Yuv>),
    Gbr(Gbr),
}

impl Planes {
    /// A converter for frames of this size.
    pub fn new(size: Size, layout: Layout) -> Planes {
        let color = match layout.model {
            Model::Yuv { chroma, range, matrix } => {
                ColorPlanes::Yuv(Box::new(Yuv::new(size, chroma, layout.bits, range, matrix)))
            }
            Model::Gbr => ColorPlanes::Gbr(Gbr::new(size, layout.bits)),
        };
        Planes { color, alpha: layout.alpha.then(|| AlphaPlane::new(size, layout.bits)) }
    }

    fn color_bytes(&self) -> usize {
        match &self.color {
            ColorPlanes::Yuv(yuv) => yuv.frame_bytes(),
            ColorPlanes::Gbr(gbr) => gbr.frame_bytes(),
        }
    }

    /// Bytes of all planes of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.color_bytes() + self.alpha.as_ref().map_or(0, AlphaPlane::bytes)
    }

    /// Converts planes to a frame, in the memory of `spare` if its depth and length match.
    pub fn decode(&self, planes: &[u8], spare: Option<Samples>) -> Frame {
        let (color, alpha) = planes.split_at(self.color_bytes());
        let frame = match &self.color {
            ColorPlanes::Yuv(yuv) => yuv.decode(color, spare),
            ColorPlanes::Gbr(gbr) => gbr.decode(color),
        };
        Frame { alpha: self.alpha.as_ref().map(|plane| plane.decode(alpha)), ..frame }
    }

    /// Converts a frame to planes. Alpha of the frame is dropped if there is no plane for it.
    pub fn encode(&self, frame: &Frame, planes: &mut Vec<u8>) {
        match &self.color {
            ColorPlanes::Yuv(yuv) => yuv.encode(frame, planes),
            ColorPlanes::Gbr(gbr) => gbr.encode(frame, planes),
        }
        if let Some(plane) = &self.alpha {
            plane.encode(frame.alpha.as_ref(), planes);
        }
    }
}
