//! Weights from a formula: a model of any size without a file, with the same values in every implementation.
//!
//! ```text
//! h   = FNV-1a 64 of the tensor name, xor seed · 0x9E3779B97F4A7C15
//! r_i = splitmix64 finaliser of h + (i + 1) · 0x9E3779B97F4A7C15
//! v_i = (r_i >> 40) / 2^23 - 1
//! ```
//! Matrices and kernels are v · sqrt(3 / fan in), norm gains 1 + 0.2 v, modulation scales 1 + 0.1 v, biases 0.1 v.
//! Rotary frequencies are those of the public checkpoints. Matrices of layers can be quantised, as in public files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::f16;
use rayon::prelude::*;
use reseed_ops::quant::{e2m1, hadamard};
use reseed_ops::{Numbers, Quant, Shape};

use super::Source;
use crate::dit::Rope;
use crate::error::Result;

/// 2^64 divided by the golden ratio.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Value `i` of the stream with initial state `start`, in [-1, 1).
fn value(start: u64, i: usize) -> f64 {
    let mut s = start.wrapping_add((i as u64 + 1).wrapping_mul(GOLDEN_GAMMA));
    s = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    s = (s ^ (s >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    s ^= s >> 31;
    (s >> 40) as f64 / f64::from(1 << 23) - 1.0
}

/// Initial state of the stream named `name`.
fn start(name: &str, seed: u64) -> u64 {
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3);
    name.bytes().fold(0xCBF2_9CE4_8422_2325, fnv) ^ seed.wrapping_mul(GOLDEN_GAMMA)
}

/// The first `count` values of the stream named `name`, in [-1, 1).
pub fn uniform(name: &str, count: usize, seed: u64) -> Vec<f64> {
    let start = start(name, seed);
    (0..count).map(|i| value(start, i)).collect()
}

/// Values of a tensor.
pub fn tensor(name: &str, shape: Shape, seed: u64) -> Vec<f32> {
    if name.ends_with(".rope.freqs") {
        let known = [Rope::Lang, Rope::Pixel].map(Rope::frequencies);
        return known
            .into_iter()
            .find(|f| f.len() == shape.count())
            .expect("`.rope.freqs` has the length of a public layout");
    }
    let dims = shape.dims();
    let (scale, offset) = match dims {
        [_, rest @ ..] if !rest.is_empty() => ((3.0 / rest.iter().product::<usize>() as f64).sqrt(), 0.0),
        _ if name.ends_with(".weight") => (0.2, 1.0),
        _ if name.ends_with("_scale") => (0.1, 1.0),
        _ => (0.1, 0.0),
    };
    let start = start(name, seed);
    (0..shape.count()).into_par_iter().map(|i| (offset + scale * value(start, i)) as f32).collect()
}

/// Weights from the formula.
pub struct Formula {
    shapes: BTreeMap<String, Shape>,
    metadata: BTreeMap<String, String>,
    seed: u64,
    path: PathBuf,
    quant: Option<Quant>,
}

impl Formula {
    /// Tensors of these names and shapes, with `groups` as metadata.
    pub fn new(shapes: Vec<(String, Shape)>, groups: usize, seed: u64) -> Formula {
        let metadata = BTreeMap::from([("groups".to_string(), groups.to_string())]);
        let (shapes, path) = (shapes.into_iter().collect(), PathBuf::from("formula weights"));
        Formula { shapes, metadata, seed, path, quant: None }
    }

    /// Adds a metadata string.
    pub fn with_metadata(mut self, key: &str, value: &str) -> Formula {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Tensors of these names and shapes, without metadata.
    pub fn plain(shapes: Vec<(String, Shape)>, seed: u64) -> Formula {
        Formula { metadata: BTreeMap::new(), ..Formula::new(shapes, 1, seed) }
    }

    /// Quantises the matrices of layers whose rows are a whole number of blocks.
    pub fn quantized(self, quant: Quant) -> Formula {
        Formula { quant: Some(quant), ..self }
    }
}

impl Source for Formula {
    fn path(&self) -> &Path {
        &self.path
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        &self.shapes
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        match self.quant(name) {
            None => Ok(tensor(name, self.shapes[name], self.seed)),
            Some(_) => Ok(self.numbers(name)?.floats()),
        }
    }

    fn quant(&self, name: &str) -> Option<Quant> {
        let quant = self.quant.filter(|_| name.starts_with("blocks."))?;
        matches!(self.shapes[name].dims(), [_, row] if row.is_multiple_of(quant.block().0)).then_some(quant)
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        let values = tensor(name, self.shapes[name], self.seed);
        let Some(quant) = self.quant(name) else { return Ok(Numbers::Floats(values)) };
        let max = (3.0 / self.shapes[name].dims()[1] as f32).sqrt();
        let blocks = values.par_chunks(quant.block().0).flat_map_iter(|values| quantize_block(quant, values, max));
        Ok(Numbers::Quant(quant, blocks.collect()))
    }
}

/// Quantises a block of values in [-max, max] with a fixed scale.
fn quantize_block(quant: Quant, values: &[f32], max: f32) -> Vec<u8> {
    /// Scale and minimum of every sub-block, out of 64.
    const SUB_SCALE: u8 = 32;
    let half = |value: f32| f16::from_f32(value).to_le_bytes();
    let byte = |value: &f32| (value / max * 127.0).round() as i8 as u8;
    let nibble = |value: f32| ((value / max + 1.0) * 7.5).round() as u8;
    match quant {
        Quant::Q8_0 => half(max / 127.0).into_iter().chain(values.iter().map(byte)).collect(),
        Quant::Q4K => {
            let step = [half(max / 7.5 / f32::from(SUB_SCALE)), half(max / f32::from(SUB_SCALE))].concat();
            // The first eight bytes also contain the upper two bits of the last four sub-blocks.
            let scales =
                [[SUB_SCALE | SUB_SCALE >> 4 << 6; 8].as_slice(), &[SUB_SCALE & 15 | (SUB_SCALE & 15) << 4; 4]]
                    .concat();
            let pairs =
                values.chunks_exact(64).flat_map(|pair| (0..32).map(|i| nibble(pair[i]) | nibble(pair[i + 32]) << 4));
            step.into_iter().chain(scales).chain(pairs).collect()
        }
        Quant::E4m3 => values.iter().map(|value| to_e4m3(*value)).collect(),
        Quant::ScaledE4m3 => {
            let scale = max / LARGEST_E4M3;
            scale.to_le_bytes().into_iter().chain(values.iter().map(|value| to_e4m3(value / scale))).collect()
        }
        Quant::Mxfp8 => {
            let exponent = (max / LARGEST_E4M3).log2().ceil();
            let power = [(127.0 + exponent) as u8; 4];
            power.into_iter().chain(values.iter().map(|value| to_e4m3(value / exponent.exp2()))).collect()
        }
        Quant::Nvfp4 => {
            let step = max / LARGEST_E2M1;
            let pairs = values.chunks_exact(2).map(|pair| to_e2m1(pair[0] / step) << 4 | to_e2m1(pair[1] / step));
            // The second scales are one.
            step.to_le_bytes().into_iter().chain([0x38; 4]).chain(pairs).collect()
        }
        Quant::Int8ConvRot => {
            let mut rotated: Vec<f32> = values.iter().map(|value| value / 16.0).collect();
            hadamard(&mut rotated);
            // Sums of uniform values are normal: hardly any is larger than 2.5 max.
            let scale = 2.5 * max / 127.0;
            let bytes = rotated.iter().map(|value| (value / scale).round() as i8 as u8);
            scale.to_le_bytes().into_iter().chain(bytes).collect()
        }
    }
}

/// The largest values of the formats.
const LARGEST_E4M3: f32 = 448.0;
const LARGEST_E2M1: f32 = 6.0;

/// Rounds towards zero: the upper bits of an f16, whose exponent bias is eight larger.
fn to_e4m3(value: f32) -> u8 {
    let bits = f16::from_f32(value / 256.0).to_bits();
    (bits >> 8 & 0x80 | bits >> 7 & 0x7F) as u8
}

/// Rounds to the nearest value.
fn to_e2m1(value: f32) -> u8 {
    let distance = |nibble: &u8| (e2m1(*nibble) - value.abs()).abs();
    let nearest = (0..8).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or_default();
    nearest | if value < 0.0 { 8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Reference values from the published formula in Python: numpy 2, float64.
    #[test]
    fn values_match_the_published_formula() {
        let want = [-0.6390390396118164, 0.2695959806442261, -0.3266117572784424];
        assert_eq!(uniform("encoder.conv_in.weight", 3, 1), want);
    }

    #[test]
    fn quantised_values_are_within_one_step() {
        let name = "blocks.0.attn.proj_out.all.weight";
        let shapes =
            || vec![(name.to_string(), Shape::from([3, 512])), ("txt_in.weight".into(), Shape::from([2, 256]))];
        let exact = Formula::plain(shapes(), 1).read(name).unwrap();
        let max = (3.0f32 / 512.0).sqrt();
        for (quant, step) in [
            (Quant::Q8_0, max / 127.0),
            (Quant::Q4K, max / 7.5),
            (Quant::E4m3, max / 8.0),
            (Quant::ScaledE4m3, max / 8.0),
            (Quant::Mxfp8, max / 8.0),
            (Quant::Nvfp4, max / 6.0),
            // The steps of 256 rotated values.
            (Quant::Int8ConvRot, 2.5 * max / 127.0 * 3.0),
        ] {
            let formula = Formula::plain(shapes(), 1).quantized(quant);
            assert_eq!((formula.quant(name), formula.quant("txt_in.weight")), (Some(quant), None));
            let values = formula.read(name).unwrap();
            let error = exact.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error <= 1.01 * step && error > 0.1 * step, "{quant:?}: error {error}, step {step}");
        }
    }
}
