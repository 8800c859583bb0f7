//! Frames as stored: codes of 8 or 16 bits; zero is black and the largest code is white.

/// Bits of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Codes up to 255.
    Eight,
    /// Codes up to 65535.
    Sixteen,
}

impl Depth {
    /// Bytes of a code.
    pub fn bytes(self) -> usize {
        match self {
            Depth::Eight => 1,
            Depth::Sixteen => 2,
        }
    }
}

/// A code of either depth.
pub trait Code: bytemuck::Pod + Into<f32> + Send + Sync {
    /// White.
    const MAX: f32;

    /// The integer part of a value in the range of the type.
    fn truncate(value: f32) -> Self;

    /// 2c / max - 1: the quotient is rounded to f32, and so is the difference.
    #[inline(always)]
    fn value(self) -> f32 {
        2.0 * self.into() / Self::MAX - 1.0
    }

    /// The code nearest to (y + 1) / 2 · max, with y clamped from -1 to 1 and NaN as -1. The sum and the product are
    /// rounded to f32; half a code is rounded up.
    #[inline(always)]
    fn nearest(y: f32) -> Self {
        let y = if y > -1.0 { y.min(1.0) } else { -1.0 };
        Self::truncate((y + 1.0) * 0.5 * Self::MAX + 0.5)
    }
}

impl Code for u8 {
    const MAX: f32 = 255.0;

    #[inline(always)]
    fn truncate(value: f32) -> u8 {
        value as u8
    }
}

impl Code for u16 {
    const MAX: f32 = 65535.0;

    #[inline(always)]
    fn truncate(value: f32) -> u16 {
        value as u16
    }
}

/// Codes of frames `[T, H, W, C]`, in the order of a tensor's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// Of 8 bits.
    U8(Vec<u8>),
    /// Of 16 bits.
    U16(Vec<u16>),
}

impl Default for Pixels {
    fn default() -> Pixels {
        Pixels::U8(Vec::new())
    }
}

impl Pixels {
    /// Their depth.
    pub fn depth(&self) -> Depth {
        match self {
            Pixels::U8(_) => Depth::Eight,
            Pixels::U16(_) => Depth::Sixteen,
        }
    }

    /// Number of codes.
    pub fn len(&self) -> usize {
        match self {
            Pixels::U8(codes) => codes.len(),
            Pixels::U16(codes) => codes.len(),
        }
    }

    /// Whether it holds no codes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resizes to `len` codes of `depth` with unspecified contents; reuses the memory where possible.
    pub fn reset(&mut self, depth: Depth, len: usize) {
        match (&mut *self, depth) {
            (Pixels::U8(codes), Depth::Eight) => codes.resize(len, 0),
            (Pixels::U16(codes), Depth::Sixteen) => codes.resize(len, 0),
            (_, Depth::Eight) => *self = Pixels::U8(vec![0; len]),
            (_, Depth::Sixteen) => *self = Pixels::U16(vec![0; len]),
        }
    }

    /// The codes as bytes in memory order.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Pixels::U8(codes) => codes,
            Pixels::U16(codes) => bytemuck::cast_slice(codes),
        }
    }

    /// The codes as writable bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Pixels::U8(codes) => codes,
            Pixels::U16(codes) => bytemuck::cast_slice_mut(codes),
        }
    }

    /// The values of the codes, from -1 to 1.
    pub fn values(&self) -> Vec<f32> {
        match self {
            Pixels::U8(codes) => codes.iter().map(|code| code.value()).collect(),
            Pixels::U16(codes) => codes.iter().map(|code| code.value()).collect(),
        }
    }

    /// The codes nearest to values.
    pub fn nearest(values: &[f32], depth: Depth) -> Pixels {
        match depth {
            Depth::Eight => Pixels::U8(values.iter().map(|&value| u8::nearest(value)).collect()),
            Depth::Sixteen => Pixels::U16(values.iter().map(|&value| u16::nearest(value)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_a_round_trip() {
        let all = [Pixels::U8((0..=u8::MAX).collect()), Pixels::U16((0..=u16::MAX).collect())];
        for codes in all {
            let values = codes.values();
            assert_eq!((values[0], values[values.len() - 1]), (-1.0, 1.0));
            assert_eq!(Pixels::nearest(&values, codes.depth()), codes);
        }
    }

    #[test]
    fn values_out_of_range_are_black_or_white_and_halves_round_up() {
        let values = [f32::NEG_INFINITY, -1.5, f32::NAN, -0.0, 1.0 + f32::EPSILON, f32::INFINITY];
        assert_eq!(Pixels::nearest(&values, Depth::Eight), Pixels::U8(vec![0, 0, 0, 128, 255, 255]));
        assert_eq!(Pixels::nearest(&values, Depth::Sixteen), Pixels::U16(vec![0, 0, 0, 32768, 65535, 65535]));
    }

    #[test]
    fn memory_is_reused() {
        let mut pixels = Pixels::U16(vec![7; 100]);
        let before = pixels.bytes().as_ptr();
        pixels.reset(Depth::Sixteen, 99);
        assert_eq!((pixels.len(), pixels.bytes().as_ptr()), (99, before));
        pixels.reset(Depth::Eight, 5);
        assert_eq!(pixels, Pixels::U8(vec![0; 5]));
    }
}
