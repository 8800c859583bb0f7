//! Element types of safetensors files.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::Quant;
use reseed_ops::quant::e8m0;

/// Element types of every source.
pub const SUPPORTED: &str = "F32, F16, BF16 or F8_E4M3";

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    F32,
    F16,
    Bf16,
    /// Four exponent bits, three mantissa bits, no scale.
    F8E4m3,
    /// Five exponent bits, two mantissa bits, no scale.
    F8E5m2,
    /// A power of two, as a scale.
    F8E8m0,
    I8,
    U8,
}

impl ElementType {
    pub fn parse(dtype: &str) -> Option<ElementType> {
        Some(match dtype {
            "F32" => ElementType::F32,
            "F16" => ElementType::F16,
            "BF16" => ElementType::Bf16,
            "F8_E4M3" => ElementType::F8E4m3,
            "F8_E5M2" => ElementType::F8E5m2,
            "F8_E8M0" => ElementType::F8E8m0,
            "I8" => ElementType::I8,
            "U8" => ElementType::U8,
            _ => return None,
        })
    }

    /// Its name in a file.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::F32 => "F32",
            ElementType::F16 => "F16",
            ElementType::Bf16 => "BF16",
            ElementType::F8E4m3 => "F8_E4M3",
            ElementType::F8E5m2 => "F8_E5M2",
            ElementType::F8E8m0 => "F8_E8M0",
            ElementType::I8 => "I8",
            ElementType::U8 => "U8",
        }
    }

    /// Whether its values mean something without scales.
    pub fn is_float(self) -> bool {
        self.is_common() || self == ElementType::F8E5m2
    }

    /// Whether every source has it. Others occur in quantised files alone.
    pub fn is_common(self) -> bool {
        matches!(self, ElementType::F32 | ElementType::F16 | ElementType::Bf16 | ElementType::F8E4m3)
    }

    pub fn bytes(self) -> usize {
        match self {
            ElementType::F32 => 4,
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::F8E4m3 | ElementType::F8E5m2 | ElementType::F8E8m0 | ElementType::I8 | ElementType::U8 => 1,
        }
    }

    pub fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        let pair = |b: &[u8]| [b[0], b[1]];
        match self {
            ElementType::F32 => {
                values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
            }
            ElementType::F16 => widen_f16(bytes, values),
            ElementType::Bf16 => values.extend(bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(pair(b)).to_f32())),
            ElementType::F8E4m3 => Quant::E4m3.widen(bytes, values),
            ElementType::F8E5m2 => values.extend(bytes.iter().map(|&byte| e5m2(byte))),
            ElementType::F8E8m0 => values.extend(bytes.iter().map(|&byte| e8m0(byte))),
            ElementType::I8 => values.extend(bytes.iter().map(|&byte| f32::from(byte as i8))),
            ElementType::U8 => values.extend(bytes.iter().map(|&byte| f32::from(byte))),
        }
    }
}

/// Widens values in slices, for which [`half`] has the instruction of the CPU.
fn widen_f16(bytes: &[u8], values: &mut Vec<f32>) {
    const COUNT: usize = 256;
    for bytes in bytes.chunks(2 * COUNT) {
        let (mut halves, mut wide) = ([f16::ZERO; COUNT], [0.0; COUNT]);
        let pairs = bytes.as_chunks().0;
        halves.iter_mut().zip(pairs).for_each(|(half, pair)| *half = f16::from_le_bytes(*pair));
        halves.convert_to_f32_slice(&mut wide);
        values.extend_from_slice(&wide[..pairs.len()]);
    }
}

/// The value of an e5m2 byte: the upper half of an f16.
pub fn e5m2(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte) << 8).to_f32()
}
