//! A writer of safetensors files with quantised matrices, as ComfyUI stores them.

use half::f16;
use reseed_model::dit::Config;
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_ops::Shape;
use reseed_ops::quant::{e2m1, e4m3, e8m0, hadamard};
use serde_json::{Map, Value, json};

use crate::dit::MemoryWeights;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    pub name: String,
    pub dtype: &'static str,
    pub dims: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl StoredTensor {
    pub fn new(name: impl Into<String>, dtype: &'static str, dims: &[usize], bytes: Vec<u8>) -> StoredTensor {
        StoredTensor { name: name.into(), dtype, dims: dims.to_vec(), bytes }
    }

    /// A tensor in F32.
    pub fn floats(name: impl Into<String>, dims: &[usize], values: &[f32]) -> StoredTensor {
        StoredTensor::new(name, "F32", dims, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// The description of a layer.
    pub fn description(base: &str, text: &str) -> StoredTensor {
        StoredTensor::new(format!("{base}.comfy_quant"), "U8", &[text.len()], text.into())
    }
}

/// A safetensors file with these tensors.
pub fn file(tensors: &[StoredTensor], metadata: &[(&str, &str)]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), metadata.iter().map(|(key, value)| (*key, *value)).collect());
    }
    for StoredTensor { name, dtype, dims, bytes } in tensors {
        let place = [data.len(), data.len() + bytes.len()];
        header.insert(name.clone(), json!({"dtype": dtype, "shape": dims, "data_offsets": place}));
        data.extend(bytes);
    }
    let text = Value::Object(header).to_string();
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat()
}

/// A format of quantised matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredFormat {
    /// E4M3 with one scale and a description.
    Fp8,
    /// E4M3 with one scale under its older name, and no description.
    OldFp8,
    /// E5M2 with one scale.
    E5m2,
    /// Integers with a scale per row.
    Int8,
    /// Rotated integers with a scale per row.
    Int8ConvRot,
    Mxfp8,
    Nvfp4,
}

impl StoredFormat {
    pub const ALL: [StoredFormat; 7] = [
        StoredFormat::Fp8,
        StoredFormat::OldFp8,
        StoredFormat::E5m2,
        StoredFormat::Int8,
        StoredFormat::Int8ConvRot,
        StoredFormat::Mxfp8,
        StoredFormat::Nvfp4,
    ];

    /// Description of a layer.
    pub fn description(self) -> &'static str {
        match self {
            StoredFormat::Fp8 | StoredFormat::OldFp8 => r#"{"format": "float8_e4m3fn"}"#,
            StoredFormat::E5m2 => r#"{"format": "float8_e5m2", "full_precision_matrix_mult": true}"#,
            StoredFormat::Int8 => r#"{"format": "int8_tensorwise"}"#,
            StoredFormat::Int8ConvRot => r#"{"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 256}"#,
            StoredFormat::Mxfp8 => r#"{"format": "mxfp8"}"#,
            StoredFormat::Nvfp4 => r#"{"format": "nvfp4"}"#,
        }
    }

    /// Whether rows of so many values can be stored.
    pub fn accepts(self, columns: usize) -> bool {
        self != StoredFormat::Int8ConvRot || columns.is_multiple_of(256)
    }

    /// Quantises a matrix: its tensors, and the values that they stand for.
    pub fn store(self, base: &str, values: &[f32], [rows, columns]: [usize; 2]) -> (Vec<StoredTensor>, Vec<f32>) {
        let (weight, scale) = (format!("{base}.weight"), format!("{base}.weight_scale"));
        let description = StoredTensor::description(base, self.description());
        let (mut tensors, held) = match self {
            StoredFormat::Fp8 => fp8(&weight, &scale, "F8_E4M3", &e4m3, values, [rows, columns]),
            StoredFormat::OldFp8 => {
                let old = format!("{base}.scale_weight");
                return fp8(&weight, &old, "F8_E4M3", &e4m3, values, [rows, columns]);
            }
            StoredFormat::E5m2 => {
                let e5m2 = |byte| f16::from_bits(u16::from(byte) << 8).to_f32();
                fp8(&weight, &scale, "F8_E5M2", &e5m2, values, [rows, columns])
            }
            StoredFormat::Int8 => int8(&weight, &scale, values, [rows, columns], 1),
            StoredFormat::Int8ConvRot => int8(&weight, &scale, values, [rows, columns], 256),
            StoredFormat::Mxfp8 => mxfp8(&weight, &scale, values, [rows, columns]),
            StoredFormat::Nvfp4 => nvfp4(&weight, &scale, values, [rows, columns]),
        };
        tensors.push(description);
        (tensors, held)
    }
}

/// The byte of the nearest value; bytes of one sign are in the order of their values.
fn nearest(decode: &dyn Fn(u8) -> f32, value: f32) -> u8 {
    let (mut below, mut above) = (0u8, 0x7B);
    while above - below > 1 {
        let middle = below.midpoint(above);
        *if decode(middle) <= value.abs() { &mut below } else { &mut above } = middle;
    }
    let is_below = value.abs() - decode(below) <= decode(above) - value.abs();
    (if is_below { below } else { above }) | if value < 0.0 { 0x80 } else { 0 }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0f32, |top, v| top.max(v.abs()))
}

type Stored = (Vec<StoredTensor>, Vec<f32>);

fn fp8(
    weight: &str,
    scale: &str,
    dtype: &'static str,
    decode: &dyn Fn(u8) -> f32,
    values: &[f32],
    d: [usize; 2],
) -> Stored {
    let factor = largest(values) / 300.0;
    let bytes: Vec<u8> = values.iter().map(|v| nearest(decode, v / factor)).collect();
    let held = bytes.iter().map(|&byte| decode(byte) * factor).collect();
    (vec![StoredTensor::new(weight, dtype, &d, bytes), StoredTensor::floats(scale, &[], &[factor])], held)
}

/// Rotated in groups of so many values; one means not at all.
fn int8(weight: &str, scale: &str, values: &[f32], [rows, columns]: [usize; 2], group: usize) -> Stored {
    let root = (group as f64).sqrt();
    let (mut bytes, mut factors, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for row in values.chunks_exact(columns) {
        let mut row: Vec<f64> = row.iter().map(|v| f64::from(*v) / root).collect();
        row.chunks_exact_mut(group).for_each(hadamard);
        let factor = row.iter().fold(0f64, |top, v| top.max(v.abs())) as f32 / 127.0;
        let mut sums: Vec<i32> = row.iter().map(|v| (v / f64::from(factor)).round() as i32).collect();
        bytes.extend(sums.iter().map(|&q| q as i8 as u8));
        sums.chunks_exact_mut(group).for_each(hadamard);
        held.extend(sums.iter().map(|&sum| (f64::from(sum) * f64::from(factor) / root) as f32));
        factors.push(factor);
    }
    let weight = StoredTensor::new(weight, "I8", &[rows, columns], bytes);
    (vec![weight, StoredTensor::floats(scale, &[rows, 1], &factors)], held)
}

/// Values padded with zeros to multiples of `block` rows and columns.
fn padded(values: &[f32], [rows, columns]: [usize; 2], block: usize) -> ([usize; 2], Vec<f32>) {
    let [r, c] = [rows, columns].map(|n| n.next_multiple_of(block));
    let mut all = vec![0.0; r * c];
    for (to, from) in all.chunks_exact_mut(c).zip(values.chunks_exact(columns)) {
        to[..columns].copy_from_slice(from);
    }
    ([r, c], all)
}

/// The values without padding.
fn cropped(values: &[f32], stored: [usize; 2], [rows, columns]: [usize; 2]) -> Vec<f32> {
    values.chunks_exact(stored[1]).take(rows).flat_map(|row| row[..columns].to_vec()).collect()
}

/// Scales of rows and columns of blocks in tiles of 128 rows and four columns.
fn tiled(scales: &[u8], [rows, columns]: [usize; 2]) -> ([usize; 2], Vec<u8>) {
    let dims = [rows.next_multiple_of(128), columns.next_multiple_of(4)];
    let mut bytes = Vec::with_capacity(dims[0] * dims[1]);
    for tile_row in (0..dims[0]).step_by(128) {
        for tile in (0..dims[1]).step_by(4) {
            for row in 0..32 {
                for part in 0..4 {
                    let (r, c) = (tile_row + 32 * part + row, tile);
                    let at = |c| if r < rows && c < columns { scales[r * columns + c] } else { 0 };
                    bytes.extend((c..c + 4).map(at));
                }
            }
        }
    }
    (dims, bytes)
}

fn mxfp8(weight: &str, scale: &str, values: &[f32], shape: [usize; 2]) -> Stored {
    let (dims, all) = padded(values, shape, 32);
    let exponent = |block: &[f32]| match largest(block) {
        0.0 => 0,
        top => (127.0 + (top / 448.0).log2().ceil()) as u8,
    };
    let exponents: Vec<u8> = all.chunks_exact(32).map(exponent).collect();
    let factor = |i: usize| e8m0(exponents[i / 32].max(1));
    let bytes: Vec<u8> = all.iter().enumerate().map(|(i, v)| nearest(&e4m3, v / factor(i))).collect();
    let held: Vec<f32> = bytes.iter().enumerate().map(|(i, &byte)| e4m3(byte) * e8m0(exponents[i / 32])).collect();
    let (tiles, exponents) = tiled(&exponents, [dims[0], dims[1] / 32]);
    let tensors =
        [StoredTensor::new(weight, "F8_E4M3", &dims, bytes), StoredTensor::new(scale, "U8", &tiles, exponents)];
    (tensors.into(), cropped(&held, dims, shape))
}

fn nvfp4(weight: &str, scale: &str, values: &[f32], shape: [usize; 2]) -> Stored {
    let (dims, all) = padded(values, shape, 16);
    let second = largest(&all) / (448.0 * 6.0);
    let scales: Vec<u8> = all.chunks_exact(16).map(|block| nearest(&e4m3, largest(block) / 6.0 / second)).collect();
    let factor = |i: usize| second * e4m3(scales[i / 16]);
    let nibble = |value: f32| {
        let distance = |nibble: &u8| (e2m1(*nibble) - value.abs()).abs();
        let nearest = (0..8).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap();
        nearest | if value < 0.0 { 8 } else { 0 }
    };
    let quants: Vec<u8> =
        all.iter().enumerate().map(|(i, v)| if factor(i) > 0.0 { nibble(v / factor(i)) } else { 0 }).collect();
    let held: Vec<f32> = quants.iter().enumerate().map(|(i, &q)| e2m1(q) * factor(i)).collect();
    let bytes = quants.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let (tiles, scales) = tiled(&scales, [dims[0], dims[1] / 16]);
    let tensors = vec![
        StoredTensor::new(weight, "U8", &[dims[0], dims[1] / 2], bytes),
        StoredTensor::new(scale, "F8_E4M3", &tiles, scales),
        StoredTensor::floats(format!("{scale}_2"), &[], &[second]),
    ];
    (tensors, cropped(&held, dims, shape))
}

/// The tensors of a transformer with formula weights whose matrices that `is_quantized` accepts are in this format and
/// whose other tensors are in F16, and a source with the same values.
pub fn transformer(
    config: &Config,
    format: StoredFormat,
    is_quantized: impl Fn(&str) -> bool,
) -> (Vec<StoredTensor>, MemoryWeights) {
    let source = Formula::plain(config.tensors(), 1);
    let store = |name: &str, shape: Shape, values: &[f32]| match (name.strip_suffix(".weight"), shape.dims()) {
        (Some(base), &[rows, columns]) if is_quantized(name) && format.accepts(columns) => {
            format.store(base, values, [rows, columns])
        }
        _ => {
            let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
            let bytes = halves.iter().flat_map(|v| v.to_le_bytes()).collect();
            let held = halves.iter().map(|v| v.to_f32()).collect();
            (vec![StoredTensor::new(name, "F16", shape.dims(), bytes)], held)
        }
    };
    let mut tensors = Vec::new();
    for (name, shape) in config.tensors() {
        tensors.extend(store(&name, shape, &source.read(&name).unwrap()).0);
    }
    if format == StoredFormat::OldFp8 {
        tensors.push(StoredTensor::new("scaled_fp8", "F8_E4M3", &[0], Vec::new()));
    }
    let held = MemoryWeights::new(config, |name, values| store(name, source.shapes()[name], &values).1);
    (tensors, held)
}
