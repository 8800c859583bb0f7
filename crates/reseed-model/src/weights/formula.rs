//! Weights from a formula: a model of any size without a file, the same numbers in every language.
//!
//! ```text
//! h   = FNV-1a 64 of the tensor's name, xor seed · 0x9E3779B97F4A7C15
//! r_i = splitmix64 finaliser of h + (i + 1) · 0x9E3779B97F4A7C15
//! v_i = (r_i >> 40) / 2^23 - 1
//! ```
//! Matrices and kernels are v · sqrt(3 / fan in), norm gains 1 + 0.2 v, modulation scales 1 + 0.1 v, biases 0.1 v;
//! rotary frequencies are what they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use reseed_ops::Shape;

use super::Source;
use crate::dit::Rope;
use crate::error::Result;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Number `i` of the stream called `name`, in [-1, 1).
fn value(start: u64, i: usize) -> f64 {
    let mut s = start.wrapping_add((i as u64 + 1).wrapping_mul(GOLDEN));
    s = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    s = (s ^ (s >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    s ^= s >> 31;
    (s >> 40) as f64 / f64::from(1 << 23) - 1.0
}

fn start(name: &str, seed: u64) -> u64 {
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3);
    name.bytes().fold(0xCBF2_9CE4_8422_2325, fnv) ^ seed.wrapping_mul(GOLDEN)
}

/// The first `count` numbers of the stream called `name`, in [-1, 1).
pub fn uniform(name: &str, count: usize, seed: u64) -> Vec<f64> {
    let start = start(name, seed);
    (0..count).map(|i| value(start, i)).collect()
}

/// A tensor by its name and shape.
pub fn tensor(name: &str, shape: Shape, seed: u64) -> Vec<f32> {
    if name.ends_with(".rope.freqs") {
        let known = [Rope::Counted, Rope::Stretched].map(Rope::frequencies);
        return known.into_iter().find(|f| f.len() == shape.count()).expect("frequencies of a public layout");
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

/// A model whose every tensor is [`tensor`].
pub struct Formula {
    shapes: BTreeMap<String, Shape>,
    metadata: BTreeMap<String, String>,
    seed: u64,
    path: PathBuf,
}

impl Formula {
    /// Tensors of these names and shapes.
    pub fn new(shapes: Vec<(String, Shape)>, groups: usize, seed: u64) -> Formula {
        let metadata = BTreeMap::from([("groups".to_string(), groups.to_string())]);
        Formula { shapes: shapes.into_iter().collect(), metadata, seed, path: PathBuf::from("formula weights") }
    }

    /// The same with a word of metadata more.
    pub fn saying(mut self, key: &str, value: &str) -> Formula {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The same without a word about groups.
    pub fn plain(shapes: Vec<(String, Shape)>, seed: u64) -> Formula {
        Formula { metadata: BTreeMap::new(), ..Formula::new(shapes, 1, seed) }
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
        Ok(tensor(name, self.shapes[name], self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // From the published formula, evaluated once in Python: numpy 2, float64.
    #[test]
    fn the_stream_is_the_published_one() {
        let want = [-0.6390390396118164, 0.2695959806442261, -0.3266117572784424];
        assert_eq!(uniform("encoder.conv_in.weight", 3, 1), want);
    }
}
