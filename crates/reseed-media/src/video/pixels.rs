//! Planar pixel formats.

use crate::format::Chroma;
use crate::frame::Size;

/// Which planes a pixel format has, without its matrix and range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Yuv420,
    Yuv422,
    Yuv444,
    Grey,
    Gbr,
}

impl Family {
    /// The family of a chroma format.
    pub fn of(chroma: Chroma) -> Family {
        match chroma {
            Chroma::Jpeg420 | Chroma::Mpeg420 | Chroma::Paldv420 => Family::Yuv420,
            Chroma::Yuv422 => Family::Yuv422,
            Chroma::Yuv444 => Family::Yuv444,
            Chroma::Mono => Family::Grey,
        }
    }
}

/// A planar pixel format that this crate converts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub family: Family,
    pub bits: u8,
    /// Whether a plane of alpha follows the planes of colour.
    pub alpha: bool,
}

impl Pixels {
    /// Bytes of all planes of a frame.
    pub fn frame_bytes(self, size: Size) -> usize {
        let Size { h, w } = size;
        let chroma = match self.family {
            Family::Yuv420 => h.div_ceil(2) * w.div_ceil(2),
            Family::Yuv422 => h * w.div_ceil(2),
            Family::Yuv444 | Family::Gbr => h * w,
            Family::Grey => 0,
        };
        let alpha = if self.alpha { h * w } else { 0 };
        (h * w + 2 * chroma + alpha) * if self.bits == 8 { 1 } else { 2 }
    }
}
