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

/// The type of a frame's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Depth {
    /// Samples in 0..=255.
    Eight,
    /// Samples in 0..=65535.
    Sixteen,
    /// Values in 0..=1 that are not rounded, for frames in memory. A file gets sixteen bits, or what it can store.
    Float,
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

/// Samples in rows, interleaved by pixel; all depths use their full range.
#[derive(Debug, Clone, PartialEq)]
pub enum Samples {
    /// Black 0, white 255.
    U8(Vec<u8>),
    /// Black 0, white 65535.
    U16(Vec<u16>),
    /// Black 0, white 1. Values outside are read as the nearer of the two.
    F32(Vec<f32>),
}

impl Samples {
    /// The number of samples: three per pixel for colour, one for alpha.
    pub fn len(&self) -> usize {
        match self {
            Samples::U8(samples) => samples.len(),
            Samples::U16(samples) => samples.len(),
            Samples::F32(samples) => samples.len(),
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
            Samples::F32(_) => Depth::Float,
        }
    }

    /// Converts values in [0, 1] to samples: clamps, rounds to nearest unless they are floats, and maps NaN to 0.
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
            Samples::F32(samples) => rows::samples_float(values, ends, samples),
        }
    }

    /// Samples that are all 0.
    pub fn black(depth: Depth, samples: usize) -> Samples {
        match depth {
            Depth::Eight => Samples::U8(vec![0; samples]),
            Depth::Sixteen => Samples::U16(vec![0; samples]),
            Depth::Float => Samples::F32(vec![0.0; samples]),
        }
    }

    /// The samples converted to another depth.
    pub fn to_depth(&self, depth: Depth) -> Samples {
        if self.depth() == depth {
            return self.clone();
        }
        let mut unit = vec![0.0; self.len()];
        self.copy_to_unit(0..unit.len(), &mut unit);
        Samples::from_unit(&unit, depth)
    }

    /// The luma of RGB samples, by the weights of BT.709. Grey pixels keep their value.
    pub fn luma(&self) -> Samples {
        fn of<T: Copy + Into<u64> + TryFrom<u64>>(colour: &[T]) -> Vec<T> {
            let weighted = |rgb: &[T]| 2126 * rgb[0].into() + 7152 * rgb[1].into() + 722 * rgb[2].into();
            colour.chunks_exact(3).map(|rgb| T::try_from((weighted(rgb) + 5000) / 10_000).unwrap_or(rgb[1])).collect()
        }
        let float = |rgb: &[f32]| match rgb[0] == rgb[1] && rgb[1] == rgb[2] {
            true => rgb[1],
            false => 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2],
        };
        match self {
            Samples::U8(colour) => Samples::U8(of(colour)),
            Samples::U16(colour) => Samples::U16(of(colour)),
            Samples::F32(colour) => Samples::F32(colour.chunks_exact(3).map(float).collect()),
        }
    }

    /// The index of the first sample that is not a number.
    pub fn first_nan(&self) -> Option<usize> {
        let Samples::F32(samples) = self else { return None };
        // Most frames have none, and a loop without an early exit is vectorised.
        let any = samples.chunks(1024).any(|run| run.iter().fold(false, |any, value| any | value.is_nan()));
        if any { samples.iter().position(|value| value.is_nan()) } else { None }
    }

    /// The memory of the samples.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Samples::U8(samples) => samples,
            Samples::U16(samples) => bytemuck::cast_slice(samples),
            Samples::F32(samples) => bytemuck::cast_slice(samples),
        }
    }

    /// The memory of the samples, to be overwritten.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Samples::U8(samples) => samples,
            Samples::U16(samples) => bytemuck::cast_slice_mut(samples),
            Samples::F32(samples) => bytemuck::cast_slice_mut(samples),
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
            Samples::F32(samples) => rows::values_of_samples_float(&samples[range], ends, values),
        }
    }
}

/// An RGB image, opaque or with alpha.
#[derive(Debug, Clone, PartialEq)]
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

/// Timestamp and digest of a decoded frame, which identify it in a later run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The timestamp in the source, where frames have one.
    pub timestamp: Option<i64>,
    /// The digest of its pixels.
    pub digest: u64,
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
    fn floats_are_not_rounded_and_agree_with_eight_bits() {
        let codes: Vec<u8> = (0..=255).collect();
        let unit: Vec<f32> = codes.iter().map(|code| f32::from(*code) / 255.0).collect();
        let (bytes, floats) = (Samples::U8(codes.clone()), Samples::F32(unit));
        for ends in [[0.0, 1.0], [-1.0, 1.0]] {
            let [mut one, mut other] = [(); 2].map(|()| vec![0.0; 256]);
            bytes.copy_between(0..256, ends, &mut one);
            floats.copy_between(0..256, ends, &mut other);
            assert_eq!(one, other, "{ends:?}");
        }
        let values = [-1.5, -1.0, -0.25, 0.1234567, 1.0, 7.0, f32::NAN];
        let exact = Samples::from_between(&values, [-1.0, 1.0], Depth::Float);
        assert_eq!(exact, Samples::F32(vec![0.0, 0.0, 0.375, 0.561_728_36, 1.0, 1.0, 0.0]));
        assert_eq!(exact.to_depth(Depth::Eight), Samples::from_between(&values, [-1.0, 1.0], Depth::Eight));
        assert_eq!(floats.to_depth(Depth::Eight), bytes);
    }

    #[test]
    fn values_outside_are_clamped_and_nan_is_found() {
        let mut unit = [0.0; 3];
        Samples::F32(vec![-3.0, f32::INFINITY, 0.5]).copy_to_unit(0..3, &mut unit);
        assert_eq!(unit, [0.0, 1.0, 0.5]);
        let mut values = vec![0.5; 3000];
        assert_eq!(Samples::F32(values.clone()).first_nan(), None);
        values[2500] = f32::NAN;
        assert_eq!(Samples::F32(values).first_nan(), Some(2500));
    }

    #[test]
    fn grey_keeps_its_value_in_luma() {
        assert_eq!(Samples::F32(vec![0.3, 0.3, 0.3, 1.0, 0.0, 0.0]).luma(), Samples::F32(vec![0.3, 0.2126]));
        assert_eq!(Samples::U8(vec![77, 77, 77]).luma(), Samples::U8(vec![77]));
    }

    #[test]
    #[should_panic(expected = "RGB values for a 2x1 frame")]
    fn from_unit_needs_three_values_per_pixel() {
        Frame::from_unit(TWO, &[0.0; 5], Depth::Eight);
    }
}
