//! A frame of RGB samples with optional alpha, and its size, depth and rate.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::rows;

/// Height and width in pixels; displayed as `WIDTHxHEIGHT`.
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
    /// The most pixels accepted from a file; an RGB frame of sixteen bits stays under 2 GiB.
    pub const MAX_PIXELS: usize = 1 << 28;

    /// The number of pixels.
    pub fn pixels(self) -> usize {
        self.h * self.w
    }

    /// Whether the size is within the limits for files.
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

/// Bits per sample of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Samples in 0..=255.
    Eight,
    /// Samples in 0..=65535.
    Sixteen,
}

impl Depth {
    /// The depth that holds samples of `bits` bits.
    pub(crate) fn for_bits(bits: u8) -> Depth {
        if bits == 8 { Depth::Eight } else { Depth::Sixteen }
    }
}

/// Frames per second as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Frames.
    pub num: u32,
    /// Seconds.
    pub den: u32,
}

/// The rate of images and of streams without a rate: 25 frames per second, as in ffmpeg.
impl Default for Rate {
    fn default() -> Rate {
        Rate { num: 25, den: 1 }
    }
}

/// Parses `24`, `12.5`, `30000/1001` or `30000:1001`. The usual short forms of NTSC rates, such as 29.97, are the exact
/// rates.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("`{text}` is not a rate such as 24, 12.5 or 30000/1001");
        let ntsc = [("23.976", 24_000), ("23.98", 24_000), ("29.97", 30_000), ("59.94", 60_000)];
        if let Some((_, num)) = ntsc.iter().find(|(short, _)| *short == text) {
            return Ok(Rate { num: *num, den: 1001 });
        }
        let whole = |text: &str| text.parse::<u32>().ok().filter(|value| *value > 0);
        let rate = match (text.split_once(['/', ':']), text.split_once('.')) {
            (Some((num, den)), _) => whole(num).zip(whole(den)),
            (None, Some((_, decimals))) if (1..=6).contains(&decimals.len()) => {
                whole(&text.replacen('.', "", 1)).map(|num| (num, 10u32.pow(decimals.len() as u32)))
            }
            (None, Some(_)) => None,
            (None, None) => whole(text).map(|num| (num, 1)),
        };
        rate.map(|(num, den)| Rate { num, den }).ok_or_else(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.num, self.den)
    }
}

/// Samples in rows, interleaved by pixel; both depths use their full range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Samples {
    /// Black 0, white 255.
    U8(Vec<u8>),
    /// Black 0, white 65535.
    U16(Vec<u16>),
}

impl Samples {
    /// The number of samples: three per pixel for colour, one for alpha.
    pub fn len(&self) -> usize {
        match self {
            Samples::U8(samples) => samples.len(),
            Samples::U16(samples) => samples.len(),
        }
    }

    /// Whether the number of samples is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The depth of the samples.
    pub fn depth(&self) -> Depth {
        match self {
            Samples::U8(_) => Depth::Eight,
            Samples::U16(_) => Depth::Sixteen,
        }
    }

    /// Converts values in [0, 1] to samples: clamps, rounds to nearest, and maps NaN to 0.
    pub fn from_unit(unit: &[f32], depth: Depth) -> Samples {
        Samples::from_between(unit, [0.0, 1.0], depth)
    }

    /// Converts values to samples, where `ends` are the values of black and white. Their difference must be a power of
    /// two.
    pub(crate) fn from_between(values: &[f32], ends: [f32; 2], depth: Depth) -> Samples {
        let mut samples = Samples::black(depth, values.len());
        samples.set_between(values, ends);
        samples
    }

    /// Overwrites the samples with converted values; the lengths must be equal. `ends` are the values of black and
    /// white, a power of two apart.
    pub fn set_between(&mut self, values: &[f32], ends: [f32; 2]) {
        assert_eq!(self.len(), values.len(), "one sample per value");
        match self {
            Samples::U8(samples) => rows::samples_8(values, ends, samples),
            Samples::U16(samples) => rows::samples_16(values, ends, samples),
        }
    }

    /// Samples that are all 0.
    pub fn black(depth: Depth, samples: usize) -> Samples {
        match depth {
            Depth::Eight => Samples::U8(vec![0; samples]),
            Depth::Sixteen => Samples::U16(vec![0; samples]),
        }
    }

    /// The samples converted to eight bits.
    pub(crate) fn to_eight_bits(&self) -> Samples {
        let mut unit = vec![0.0; self.len()];
        self.copy_to_unit(0..unit.len(), &mut unit);
        Samples::from_unit(&unit, Depth::Eight)
    }

    /// The memory of the samples.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Samples::U8(samples) => samples,
            Samples::U16(samples) => bytemuck::cast_slice(samples),
        }
    }

    /// Converts the samples in `range` to values in [0, 1].
    pub fn copy_to_unit(&self, range: Range<usize>, unit: &mut [f32]) {
        self.copy_between(range, [0.0, 1.0], unit);
    }

    /// Converts the samples in `range` to values, where `ends` are the values of black and white.
    pub fn copy_between(&self, range: Range<usize>, ends: [f32; 2], values: &mut [f32]) {
        assert_eq!(range.len(), values.len(), "one value per sample");
        match self {
            Samples::U8(samples) => rows::values_of_samples_8(&samples[range], ends, values),
            Samples::U16(samples) => rows::values_of_samples_16(&samples[range], ends, values),
        }
    }
}

/// An RGB image, opaque or with alpha.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Height and width.
    pub size: Size,
    /// `3 * h * w` colour samples.
    pub samples: Samples,
    /// `h * w` alpha samples of the same depth; colours are not premultiplied.
    pub alpha: Option<Samples>,
}

impl Frame {
    /// The depth of the samples.
    pub fn depth(&self) -> Depth {
        self.samples.depth()
    }

    /// RGB values in [0, 1], in the order of the samples.
    pub fn to_unit(&self) -> Vec<f32> {
        let mut unit = vec![0.0; self.samples.len()];
        self.samples.copy_to_unit(0..unit.len(), &mut unit);
        unit
    }

    /// An opaque frame from RGB values in [0, 1]: clamps, rounds to nearest, and maps NaN to black.
    pub fn from_unit(size: Size, unit: &[f32], depth: Depth) -> Frame {
        assert_eq!(unit.len(), 3 * size.pixels(), "RGB values for a {size} frame");
        Frame { size, samples: Samples::from_unit(unit, depth), alpha: None }
    }

    /// Panics unless the frame has `size` and complete samples.
    pub(crate) fn assert_fits(&self, size: Size) {
        assert_eq!(self.size, size, "a frame must have the size that the sink was created for");
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
    fn rates_are_parsed_as_people_write_them() {
        let rate = |text: &str| text.parse::<Rate>().map(|Rate { num, den }| (num, den)).ok();
        assert_eq!(["24", "12.5", "29.97"].map(rate), [Some((24, 1)), Some((125, 10)), Some((30_000, 1001))]);
        assert_eq!(rate("30000/1001"), Some((30_000, 1001)));
        assert!(
            ["", "0", "-1", "0/1", "1/0", "1.", "a", "1e3", "1.0000000", "99999999999"]
                .iter()
                .all(|t| rate(t).is_none())
        );
    }

    #[test]
    fn size_displays_width_before_height() {
        assert_eq!(Size { h: 720, w: 1280 }.to_string(), "1280x720");
    }

    #[test]
    fn from_unit_clamps_and_rounds() {
        let frame = Frame::from_unit(TWO, &[-1.0, 2.0, 0.5, f32::NAN, 0.4 / 255.0, 0.6 / 255.0], Depth::Eight);
        assert_eq!(frame.samples, Samples::U8(vec![0, 255, 128, 0, 0, 1]));
    }

    #[test]
    fn every_sample_survives_conversion_to_unit_values() {
        let size = Size { h: 1, w: 1 << 16 };
        let all: Vec<u16> = (0..=u16::MAX).flat_map(|v| [v; 3]).collect();
        let frame = Frame { size, samples: Samples::U16(all), alpha: None };
        assert_eq!(Frame::from_unit(size, &frame.to_unit(), Depth::Sixteen), frame);
    }

    #[test]
    #[should_panic(expected = "RGB values for a 2x1 frame")]
    fn from_unit_needs_three_values_per_pixel() {
        Frame::from_unit(TWO, &[0.0; 5], Depth::Eight);
    }
}
