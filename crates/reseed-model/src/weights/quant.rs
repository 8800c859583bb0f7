//! Element types of GGUF files: plain floats, and blocks of small integers with a scale.

use half::{bf16, f16};

/// How a GGUF file stores a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quant {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// 32 bytes and a scale.
    Q8_0,
    /// 256 nibbles: eight sub-blocks of 32, each with a scale and a minimum of six bits.
    Q4K,
}

impl Quant {
    /// By its number in the file.
    pub fn parse(number: u32) -> Option<Quant> {
        Some(match number {
            0 => Quant::F32,
            1 => Quant::F16,
            8 => Quant::Q8_0,
            12 => Quant::Q4K,
            30 => Quant::Bf16,
            _ => return None,
        })
    }

    /// The name of any number that a file may hold.
    pub fn name(number: u32) -> String {
        const NAMES: [&str; 15] = [
            "F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K",
            "Q5_K", "Q6_K",
        ];
        NAMES.get(number as usize).map_or_else(|| format!("of type {number}"), |name| name.to_string())
    }

    /// Values of a block and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Quant::F32 => (1, 4),
            Quant::F16 | Quant::Bf16 => (1, 2),
            Quant::Q8_0 => (32, 34),
            Quant::Q4K => (256, 144),
        }
    }

    /// Appends the values of whole blocks.
    pub fn widen(self, bytes: &[u8], values: &mut Vec<f32>) {
        let blocks = bytes.chunks_exact(self.block().1);
        match self {
            Quant::F32 => values.extend(blocks.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            Quant::F16 => values.extend(blocks.map(half)),
            Quant::Bf16 => values.extend(blocks.map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())),
            Quant::Q8_0 => blocks.for_each(|b| {
                let scale = half(b);
                values.extend(b[2..].iter().map(|&q| scale * f32::from(q as i8)));
            }),
            Quant::Q4K => blocks.for_each(|b| q4_k(b, values)),
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

/// Scale and minimum of sub-block `j`: the first four stand in bytes of their own, the top bits of which belong to the
/// last four.
fn six_bits(b: &[u8], j: usize) -> (u8, u8) {
    match j {
        0..4 => (b[j] & 63, b[j + 4] & 63),
        _ => (b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4),
    }
}
