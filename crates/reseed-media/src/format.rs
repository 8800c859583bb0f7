//! How a video stores colour in planes: chroma subsampling, code range, matrix, and the pixel format of a Y4M stream.

use crate::frame::{Depth, Size};

/// The chroma subsampling of a stream and the positions of its chroma samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chroma {
    /// 4:2:0, chroma in the centre of each square of four pixels (`C420jpeg`, `C420`, and headers without `C`).
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

/// Which codes are black and white.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range {
    /// Black 16, white 235 at eight bits.
    Limited,
    /// Black 0, white 255 at eight bits.
    Full,
}

/// The weights of red, green and blue in luma: Y = kr R + (1 - kr - kb) G + kb B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// Standard definition.
    Bt601,
    /// High definition.
    Bt709,
    /// Ultra-high definition, non-constant luminance.
    Bt2020,
    /// SMPTE 240M.
    Smpte240m,
    /// FCC, 1953.
    Fcc,
}

impl Matrix {
    /// The matrix of a video without a tag. Players choose by size: BT.709 from 1280 columns on or above the 576 rows
    /// of standard definition, else BT.601. Input and output each use their own size, so that a player shows the same
    /// colours for both.
    pub fn for_size(size: Size) -> Matrix {
        if size.w >= 1280 || size.h > 576 { Matrix::Bt709 } else { Matrix::Bt601 }
    }

    /// The name in ffmpeg.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn tag(self) -> &'static str {
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

    /// The weights of red, green and blue.
    pub(crate) fn weights(self) -> [f32; 3] {
        let (kr, kb) = (self.kr(), self.kb());
        [kr, 1.0 - kr - kb, kb]
    }
}

/// The pixel format and tags of a Y4M stream: everything in its header except size and rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The chroma format.
    pub chroma: Chroma,
    /// Bits per sample: 8, 9, 10, 12, 14 or 16.
    pub bits: u8,
    /// The value of `XCOLORRANGE`, if the header has it. Untagged video is limited, untagged grey is full.
    pub range: Option<Range>,
    /// The value of `I`, such as `p`, if the header has it.
    pub interlace: Option<String>,
    /// The value of `A`, such as `1:1`, if the header has it.
    pub aspect: Option<String>,
    /// All other parameters, letter and value, in their order.
    pub extras: Vec<String>,
}

impl Format {
    /// The format that loses the least of RGB frames of a depth: 4:4:4, full range, the same number of bits.
    pub fn for_depth(depth: Depth) -> Format {
        let bits = match depth {
            Depth::Eight => 8,
            Depth::Sixteen | Depth::Float => 16,
        };
        let (range, aspect) = (Some(Range::Full), Some("1:1".to_owned()));
        Format { chroma: Chroma::Yuv444, bits, range, interlace: Some("p".to_owned()), aspect, extras: Vec::new() }
    }

    /// The tagged range, or the default of ffmpeg: limited for colour, full for grey.
    pub(crate) fn range(&self) -> Range {
        match (self.range, self.chroma) {
            (Some(range), _) => range,
            (None, Chroma::Mono) => Range::Full,
            (None, _) => Range::Limited,
        }
    }

    /// The frame depth that holds these samples.
    pub(crate) fn depth(&self) -> Depth {
        Depth::for_bits(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_of_untagged_video_depends_on_both_sides() {
        let matrix = |w, h| Matrix::for_size(Size { h, w });
        for (w, h) in [(1280, 536), (1280, 720), (1920, 800), (960, 720), (720, 1280)] {
            assert_eq!(matrix(w, h), Matrix::Bt709, "{w}x{h}");
        }
        for (w, h) in [(720, 480), (720, 576), (1024, 576), (640, 360), (1279, 576)] {
            assert_eq!(matrix(w, h), Matrix::Bt601, "{w}x{h}");
        }
    }
}
