//! One picture of RGB samples, perhaps with alpha, and the small values that describe it.

use std::fmt;
use std::ops::Range;

use crate::rows;

/// Height and width in pixels; displayed as width x height, as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl Size {
    /// The longest side accepted from a file.
    pub const MAX_SIDE: usize = 1 << 15;
    /// The most pixels accepted from a file: an RGB frame stays under 2 GiB at sixteen bits.
    pub const MAX_PIXELS: usize = 1 << 28;

    /// Pixels in a picture of this size.
    pub fn pixels(self) -> usize {
        self.h * self.w
    }

    /// Whether a file that claims this size is to be believed.
    pub fn is_plausible(self) -> bool {
        let side = 1..=Size::MAX_SIDE;
        side.contains(&self.h) && side.contains(&self.w) && self.pixels() <= Size::MAX_PIXELS
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.w, self.h)
    }
}

/// Bits per sample that a frame is held in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Samples in 0..=255.
    Eight,
    /// Samples in 0..=65535.
    Sixteen,
}

/// Frames per second as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Frames.
    pub num: u32,
    /// Seconds.
    pub den: u32,
}

/// What pictures and streams without a rate are taken to run at, as ffmpeg does.
impl Default for Rate {
    fn default() -> Rate {
        Rate { num: 25, den: 1 }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.num, self.den)
    }
}

/// Samples row by row, those of a pixel side by side; both depths use their full range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Samples {
    /// Black 0, white 255.
    U8(Vec<u8>),
    /// Black 0, white 65535.
    U16(Vec<u16>),
}

impl Samples {
    /// How many samples there are: three per pixel of colour, one of alpha.
    pub fn len(&self) -> usize {
        match self {
            Samples::U8(samples) => samples.len(),
            Samples::U16(samples) => samples.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The depth they are held in.
    pub fn depth(&self) -> Depth {
        match self {
            Samples::U8(_) => Depth::Eight,
            Samples::U16(_) => Depth::Sixteen,
        }
    }

    /// Samples from values in [0, 1]: values outside are clamped, all are rounded to nearest, NaN becomes 0.
    pub fn from_unit(unit: &[f32], depth: Depth) -> Samples {
        Samples::from_between(unit, [0.0, 1.0], depth)
    }

    /// Samples from values of which these two, a power of two apart, are black and white.
    pub fn from_between(values: &[f32], ends: [f32; 2], depth: Depth) -> Samples {
        let mut samples = Samples::black(depth, values.len());
        samples.set_between(values, ends);
        samples
    }

    /// Samples for the same values in the place of these, which are as many.
    pub fn set_between(&mut self, values: &[f32], ends: [f32; 2]) {
        assert_eq!(self.len(), values.len(), "samples and their values");
        match self {
            Samples::U8(samples) => rows::samples_8(values, ends, samples),
            Samples::U16(samples) => rows::samples_16(values, ends, samples),
        }
    }

    /// So many samples of nothing.
    pub fn black(depth: Depth, samples: usize) -> Samples {
        match depth {
            Depth::Eight => Samples::U8(vec![0; samples]),
            Depth::Sixteen => Samples::U16(vec![0; samples]),
        }
    }

    /// The same samples in eight bits.
    pub(crate) fn to_eight_bits(&self) -> Samples {
        let mut unit = vec![0.0; self.len()];
        self.copy_to_unit(0..unit.len(), &mut unit);
        Samples::from_unit(&unit, Depth::Eight)
    }

    /// The samples as they lie in memory.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Samples::U8(samples) => samples,
            Samples::U16(samples) => bytemuck::cast_slice(samples),
        }
    }

    /// Copies the samples of `range` into `unit` as values in [0, 1].
    pub fn copy_to_unit(&self, range: Range<usize>, unit: &mut [f32]) {
        self.copy_between(range, [0.0, 1.0], unit);
    }

    /// Copies the samples of `range` as values of which these two are black and white.
    pub fn copy_between(&self, range: Range<usize>, ends: [f32; 2], values: &mut [f32]) {
        assert_eq!(range.len(), values.len(), "samples and their copy");
        match self {
            Samples::U8(samples) => rows::values_of_samples_8(&samples[range], ends, values),
            Samples::U16(samples) => rows::values_of_samples_16(&samples[range], ends, values),
        }
    }
}

/// One RGB picture, opaque or with alpha.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its height and width.
    pub size: Size,
    /// Its samples: `3 * h * w` of them.
    pub samples: Samples,
    /// How opaque each pixel is, in the same depth: `h * w` samples, not multiplied into the colours.
    pub alpha: Option<Samples>,
}

impl Frame {
    /// The depth its samples are held in.
    pub fn depth(&self) -> Depth {
        self.samples.depth()
    }

    /// RGB values in [0, 1], in the order of the samples.
    pub fn to_unit(&self) -> Vec<f32> {
        let mut unit = vec![0.0; self.samples.len()];
        self.samples.copy_to_unit(0..unit.len(), &mut unit);
        unit
    }

    /// An opaque frame from RGB values in [0, 1]: values outside are clamped, all are rounded to nearest, NaN becomes black.
    pub fn from_unit(size: Size, unit: &[f32], depth: Depth) -> Frame {
        assert_eq!(unit.len(), 3 * size.pixels(), "RGB values for a {size} frame");
        Frame { size, samples: Samples::from_unit(unit, depth), alpha: None }
    }

    /// Panics unless the frame is whole and of the size its sink was created for.
    pub(crate) fn assert_fits(&self, size: Size) {
        assert_eq!(self.size, size, "a sink takes frames of the size it was created for");
        assert_eq!(self.samples.len(), 3 * size.pixels(), "samples of a {size} frame");
        if let Some(alpha) = &self.alpha {
            assert_eq!((alpha.len(), alpha.depth()), (size.pixels(), self.depth()), "alpha of a {size} frame");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Size = Size { h: 1, w: 2 };

    #[test]
    fn size_reads_as_width_by_height() {
        assert_eq!(Size { h: 720, w: 1280 }.to_string(), "1280x720");
    }

    #[test]
    fn from_unit_clamps_and_rounds() {
        let frame = Frame::from_unit(TWO, &[-1.0, 2.0, 0.5, f32::NAN, 0.4 / 255.0, 0.6 / 255.0], Depth::Eight);
        assert_eq!(frame.samples, Samples::U8(vec![0, 255, 128, 0, 0, 1]));
    }

    #[test]
    fn every_sample_survives_the_unit_range() {
        let size = Size { h: 1, w: 1 << 16 };
        let all: Vec<u16> = (0..=u16::MAX).flat_map(|v| [v; 3]).collect();
        let frame = Frame { size, samples: Samples::U16(all), alpha: None };
        assert_eq!(Frame::from_unit(size, &frame.to_unit(), Depth::Sixteen), frame);
    }

    #[test]
    #[should_panic(expected = "RGB values for a 2x1 frame")]
    fn from_unit_wants_three_values_a_pixel() {
        Frame::from_unit(TWO, &[0.0; 5], Depth::Eight);
    }
}
