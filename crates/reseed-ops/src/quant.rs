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
    /// Blocks of 128: a scale in f32, 128 bytes of [`Quant::E4m3`].
    ScaledE4m3,
    /// Blocks of 128: a power of two in a byte (E8M0) for each 32 values, 128 bytes of [`Quant::E4m3`].
    Mxfp8,
    /// Blocks of 64: a scale in f32, a second one in E4M3 for each 16 values, and 64 nibbles that are floats: a sign,
    /// two bits of exponent, one of mantissa (E2M1). The high nibble of a byte is the first of its two values.
    Nvfp4,
    /// Blocks of 256: a scale in f32, 256 signed bytes. Their values are multiplied by a Hadamard matrix.
    Int8ConvRot,
}

impl Quant {
    /// All formats.
    pub const ALL: [Quant; 7] =
        [Quant::Q8_0, Quant::Q4K, Quant::E4m3, Quant::ScaledE4m3, Quant::Mxfp8, Quant::Nvfp4, Quant::Int8ConvRot];

    /// Values of a block and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Quant::Q8_0 => (32, 34),
            Quant::Q4K => (256, 144),
            Quant::E4m3 => (1, 1),
            Quant::ScaledE4m3 | Quant::Mxfp8 => (128, 132),
            Quant::Nvfp4 => (64, 40),
            Quant::Int8ConvRot => (256, 260),
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
            Quant::ScaledE4m3 => blocks.for_each(|b| {
                let scale = single(b);
                values.extend(b[4..].iter().map(|&byte| e4m3(byte) * scale));
            }),
            Quant::Mxfp8 => blocks.for_each(|b| {
                for (&exponent, bytes) in b[..4].iter().zip(b[4..].chunks_exact(32)) {
                    values.extend(bytes.iter().map(|&byte| e4m3(byte) * e8m0(exponent)));
                }
            }),
            Quant::Nvfp4 => blocks.for_each(|b| {
                for (&second, bytes) in b[4..8].iter().zip(b[8..].chunks_exact(8)) {
                    let scale = single(b) * e4m3(second);
                    values.extend(bytes.iter().flat_map(|&byte| [e2m1(byte >> 4) * scale, e2m1(byte & 15) * scale]));
                }
            }),
            Quant::Int8ConvRot => blocks.for_each(|b| convrot(single(b), &b[4..], values)),
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

fn single(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
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
pub fn e4m3(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    sign * match (exponent, mantissa) {
        (15, 7.0) => f32::NAN,
        (0, m) => m / 512.0,
        (e, m) => (1.0 + m / 8.0) * e8m0(e + 120),
    }
}

/// The power of two of an e8m0 byte. Zero stands for a block of zeros; 0xFF, which is NaN, is infinite here.
pub fn e8m0(byte: u8) -> f32 {
    f32::from_bits(u32::from(byte) << 23)
}

/// The value of an e2m1 nibble.
pub fn e2m1(nibble: u8) -> f32 {
    const SIZES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let size = SIZES[usize::from(nibble & 7)];
    if nibble & 8 == 0 { size } else { -size }
}

/// Appends the values of rotated bytes, whose number is a power of four: scale / √n · (bytes · H) with the matrix H of
/// [`hadamard`]. Sums of integers are exact, so that every value is rounded once.
pub fn convrot(scale: f32, bytes: &[u8], values: &mut Vec<f32>) {
    let mut sums: Vec<i32> = bytes.iter().map(|&byte| i32::from(byte as i8)).collect();
    hadamard(&mut sums);
    let scale = scale / (bytes.len() as f32).sqrt();
    values.extend(sums.iter().map(|&sum| sum as f32 * scale));
}

/// Multiplies values, whose number is a power of four, by the symmetric matrix H = H₄ ⊗ … ⊗ H₄, where H₄ is -1 on the
/// antidiagonal and 1 elsewhere: along each base-4 digit of the index, (a, b, c, d) become (a + b) ± (c - d) and
/// (c + d) ± (a - b). Floats are rounded in this order.
pub fn hadamard<T: Copy + std::ops::Add<Output = T> + std::ops::Sub<Output = T>>(values: &mut [T]) {
    let mut step = 1;
    while step < values.len() {
        for quad in values.chunks_exact_mut(4 * step) {
            let (low, high) = quad.split_at_mut(2 * step);
            let ((a, b), (c, d)) = (low.split_at_mut(step), high.split_at_mut(step));
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let (first, second, third, fourth) = (*a + *b, *a - *b, *c + *d, *c - *d);
                (*a, *b, *c, *d) = (first + fourth, first - fourth, third + second, third - second);
            }
        }
        step *= 4;
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
    fn powers_of_two_and_nibbles_have_the_values_of_the_formats() {
        assert_eq!([0x7F, 0x80, 0x7E, 0x01, 0x00].map(e8m0), [1.0, 2.0, 0.5, f32::MIN_POSITIVE, 0.0]);
        assert_eq!((0..8).map(e2m1).collect::<Vec<_>>(), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert!((0..8).all(|nibble| e2m1(nibble | 8) == -e2m1(nibble)) && e2m1(8).is_sign_negative());
    }

    /// Element `(i, j)` of the matrix, from the digits of its indices.
    fn element(mut i: usize, mut j: usize, n: usize) -> i32 {
        let mut sign = 1;
        for _ in 0..n.ilog(4) {
            sign *= if i % 4 + j % 4 == 3 { -1 } else { 1 };
            (i, j) = (i / 4, j / 4);
        }
        sign
    }

    #[test]
    fn hadamard_is_its_explicit_matrix() {
        for n in [1, 4, 16, 64, 256] {
            let values: Vec<i32> = (0..n as i32).map(|i| (i * 37 + 11) % 256 - 128).collect();
            let column = |j| (0..n).map(|i| values[i] * element(i, j, n)).sum::<i32>();
            let mut sums = values.clone();
            hadamard(&mut sums);
            assert_eq!(sums, (0..n).map(column).collect::<Vec<_>>(), "{n} values");
            // H · H = n, and the largest sums fit.
            hadamard(&mut sums);
            assert_eq!(sums, values.iter().map(|v| n as i32 * v).collect::<Vec<_>>(), "{n} values");
        }
    }

    #[test]
    fn blocks_with_scales_have_known_values() {
        let widened = |quant: Quant, block: Vec<u8>| {
            assert_eq!(block.len(), quant.block().1, "{quant:?}");
            let mut values = Vec::new();
            quant.widen(&block, &mut values);
            assert_eq!(values.len(), quant.block().0, "{quant:?}");
            values
        };
        let half = 0.5f32.to_le_bytes();
        let scaled = widened(Quant::ScaledE4m3, [&half[..], &[0x38, 0xC0], &[0x7E; 126]].concat());
        assert_eq!(scaled[..3], [0.5, -1.0, 224.0]);
        let mx = widened(Quant::Mxfp8, [&[0x7F, 0x80, 0x00, 0x7D][..], &[0x38; 128]].concat());
        assert_eq!([0, 31, 32, 64, 127].map(|i| mx[i]), [1.0, 1.0, 2.0, 0.0, 0.25]);
        let nv = widened(Quant::Nvfp4, [&half[..], &[0x38, 0x40, 0x00, 0xB8], &[0x2F; 32]].concat());
        assert_eq!([0, 1, 16, 17, 32, 62, 63].map(|i| nv[i]), [0.5, -3.0, 1.0, -6.0, 0.0, -0.5, 3.0]);
        // The rows of the matrix sum to √n.
        let rotated = widened(Quant::Int8ConvRot, [&half[..], &[1; 256]].concat());
        assert!(rotated.iter().all(|&v| v == 0.5));
        let lowest = widened(Quant::Int8ConvRot, [&half[..], &[0x80; 256]].concat());
        assert!(lowest.iter().all(|&v| v == -64.0));
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
