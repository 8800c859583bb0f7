//! Quantized matrices. The formats are defined here. A device that keeps a matrix quantized dequantizes it next to its
//! use and rounds to its own type once.

use half::f16;

/// Format of a quantized matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quant {
    /// Blocks of 32: a scale in f16, 32 signed bytes.
    Q8_0,
    /// Blocks of 256: a scale and a minimum in f16, of each of eight sub-blocks in six bits, and 256 nibbles.
    Q4K,
    /// Bytes that are floats: a sign, four bits of exponent, three of mantissa, no infinities.
    E4m3,
}

impl Quant {
    /// All formats.
    pub const ALL: [Quant; 3] = [Quant::Q8_0, Quant::Q4K, Quant::E4m3];

    /// Values of a block and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Quant::Q8_0 => (32, 34),
            Quant::Q4K => (256, 144),
            Quant::E4m3 => (1, 1),
        }
    }

    /// Bytes of that many values, which are whole blocks.
    pub fn bytes(self, count: usize) -> usize {
        let (values, bytes) = self.block();
        assert!(count.is_multiple_of(values), "{count} values in blocks of {values}");
        count / values * bytes
    }

    /// Appends the values of whole blocks.
    pub fn widen(self, bytes: &[u8], values: &mut Vec<f32>) {
        let blocks = bytes.chunks_exact(self.block().1);
        match self {
            Quant::Q8_0 => blocks.for_each(|b| {
                let scale = half(b);
                values.extend(b[2..].iter().map(|&q| scale * f32::from(q as i8)));
            }),
            Quant::Q4K => blocks.for_each(|b| q4_k(b, values)),
            Quant::E4m3 => values.extend(bytes.iter().map(|&byte| e4m3(byte))),
        }
    }
}

/// The numbers of a matrix on the host, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// As floats.
    Floats(Vec<f32>),
    /// Quantized.
    Quant(Quant, Vec<u8>),
}

impl Numbers {
    /// No numbers, in this format.
    pub fn empty(quant: Option<Quant>) -> Numbers {
        quant.map_or(Numbers::Floats(Vec::new()), |quant| Numbers::Quant(quant, Vec::new()))
    }

    /// Their quantization, if any.
    pub fn quant(&self) -> Option<Quant> {
        match self {
            Numbers::Floats(_) => None,
            Numbers::Quant(quant, _) => Some(*quant),
        }
    }

    /// Appends rows of the same format.
    pub fn append(&mut self, rows: Numbers) {
        match (self, rows) {
            (Numbers::Floats(all), Numbers::Floats(more)) => all.extend(more),
            (Numbers::Quant(quant, all), Numbers::Quant(other, more)) if *quant == other => all.extend(more),
            (all, rows) => panic!("rows of {:?} appended to rows of {:?}", rows.quant(), all.quant()),
        }
    }

    /// Every number as a float.
    pub fn floats(self) -> Vec<f32> {
        match self {
            Numbers::Floats(floats) => floats,
            Numbers::Quant(quant, bytes) => {
                let (values, size) = quant.block();
                let mut floats = Vec::with_capacity(bytes.len() / size * values);
                quant.widen(&bytes, &mut floats);
                floats
            }
        }
    }
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// scale · q - minimum; 32 bytes hold a sub-block in their low nibbles and the next one in their high nibbles.
fn q4_k(block: &[u8], values: &mut Vec<f32>) {
    let (scale, minimum) = (half(block), half(&block[2..]));
    let (packed, nibbles) = (&block[4..16], &block[16..]);
    for (pair, bytes) in nibbles.chunks_exact(32).enumerate() {
        for high in [0, 1] {
            let (s, m) = six_bits(packed, 2 * pair + high);
            let (s, m) = (scale * f32::from(s), minimum * f32::from(m));
            values.extend(bytes.iter().map(|&byte| s * f32::from(byte >> (4 * high) & 15) - m));
        }
    }
}

/// Scale and minimum of sub-block `j`: the first four have their own bytes, whose top bits belong to the last four.
fn six_bits(b: &[u8], j: usize) -> (u8, u8) {
    match j {
        0..4 => (b[j] & 63, b[j + 4] & 63),
        _ => (b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4),
    }
}

/// The value of an e4m3 byte; 0x7F and 0xFF are NaN.
fn e4m3(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    sign * match (exponent, mantissa) {
        (15, 7.0) => f32::NAN,
        (0, m) => m * 2f32.powi(-9),
        (e, m) => (1.0 + m / 8.0) * 2f32.powi(e - 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_bytes_have_the_values_of_the_format() {
        let known =
            [(0x00, 0.0), (0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x38, 1.0), (0x3F, 1.875)];
        let more = [(0x40, 2.0), (0x7E, 448.0), (0xB8, -1.0), (0xFE, -448.0), (0x31, 0.5625), (0x5B, 22.0)];
        assert!(known.iter().chain(&more).all(|&(byte, value)| e4m3(byte) == value));
        assert!(e4m3(0x7F).is_nan() && e4m3(0xFF).is_nan() && e4m3(0x80).is_sign_negative());
        // The numbers of one sign are in the order of their bytes.
        assert!((0..0x7E).all(|byte| e4m3(byte) < e4m3(byte + 1)));
    }

    #[test]
    fn appended_rows_follow() {
        let block = |scale: f32, q: u8| [&f16::from_f32(scale).to_le_bytes()[..], &[q; 32]].concat();
        let mut all = Numbers::empty(Some(Quant::Q8_0));
        all.append(Numbers::Quant(Quant::Q8_0, block(0.5, 3)));
        all.append(Numbers::Quant(Quant::Q8_0, block(2.0, 0xFF)));
        assert_eq!(all.floats(), [[1.5; 32], [-2.0; 32]].concat());
    }
}
