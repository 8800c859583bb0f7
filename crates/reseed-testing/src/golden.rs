//! Golden tests of the VAE: inputs and outputs of the published architecture with formula weights.

pub mod dit;

use std::path::{Path, PathBuf};

use reseed_model::plan::{CachePlan, TileInput, Tiling, slices};
use reseed_model::weights::Source;
use reseed_model::weights::formula::{self, Formula};
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Coder, Config, Stream, Vae};
use reseed_ops::{Device, Hw, Precision, Shape, Tensor, Thw};

/// Golden files of small models, which run at every CPU level.
pub const SMALL: &[&str] = &[
    "tiny_decode_image",
    "tiny_decode_5",
    "tiny_decode_17",
    "tiny_decode_tiled",
    "tiny_decode_tiled_uneven",
    "tiny_decode_tiled_no_overlap",
    "tiny_encode_image",
    "tiny_encode_5",
    "tiny_encode_17",
    "tiny_encode_tiled",
    "nano_decode_9",
    "nano_encode_9",
];

/// Golden files of the model of published size.
pub const FULL: &[&str] = &["full_decode_image", "full_decode_9", "full_encode_9"];

/// A golden file of the VAE.
pub struct VaeGolden {
    pub name: String,
    pub encode: bool,
    pub config: Config,
    pub seed: u64,
    pub tiling: Option<Tiling>,
    pub input: Clip,
    pub output: Clip,
}

/// Frames `[T, H, W, C]` on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    pub t: usize,
    pub plane: Hw,
    pub channels: usize,
    pub values: Vec<f32>,
}

impl Clip {
    /// Uniform pseudo-random values in [-1, 1); `name` is the seed.
    pub fn uniform(name: &str, t: usize, plane: Hw, channels: usize) -> Clip {
        let values = formula::uniform(name, t * plane.count() * channels, 1).into_iter().map(|v| v as f32).collect();
        Clip { t, plane, channels, values }
    }

    /// Uploads a range of frames.
    pub fn upload(&self, ops: &dyn Device, frames: std::ops::Range<usize>) -> Tensor {
        let thw = Thw::new(frames.len(), self.plane.h, self.plane.w);
        ops.upload(Shape::clip(thw, self.channels), self.frames(frames)).unwrap()
    }

    /// Reads a tensor `[T, C, H, W]`.
    pub fn read(file: &Safetensors, name: &str) -> Clip {
        let shape = file.shapes()[name];
        let &[t, channels, h, w] = shape.dims() else { panic!("{name} is {shape}") };
        let from = file.read(name).unwrap();
        let mut values = vec![0.0; from.len()];
        for (i, value) in from.iter().enumerate() {
            let (x, y, c, frame) = (i % w, i / w % h, i / (w * h) % channels, i / (w * h * channels));
            values[((frame * h + y) * w + x) * channels + c] = *value;
        }
        Clip { t, plane: Hw::new(h, w), channels, values }
    }

    pub fn frames(&self, range: std::ops::Range<usize>) -> &[f32] {
        let frame = self.plane.count() * self.channels;
        &self.values[range.start * frame..range.end * frame]
    }
}

/// Path of the golden file `name` of a network: `vae` or `dit`.
pub fn golden_path(network: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(network).join(format!("{name}.safetensors"))
}

impl VaeGolden {
    pub fn open(name: &str) -> VaeGolden {
        VaeGolden::read(&golden_path("vae", name))
    }

    pub fn read(path: &Path) -> VaeGolden {
        let file = Safetensors::open(path).unwrap();
        let case: serde_json::Value = serde_json::from_str(file.metadata("case").unwrap()).unwrap();
        let number = |v: &serde_json::Value| v.as_u64().unwrap() as usize;
        let numbers = |key: &str| case[key].as_array().map(|list| list.iter().map(number).collect::<Vec<_>>());
        let pair = |key: &str| numbers(key).map(|v| Hw::new(v[0], v[1]));
        VaeGolden {
            name: path.file_stem().unwrap().to_string_lossy().into(),
            encode: case["op"] == "encode",
            config: Config::with_channels(&numbers("channels").unwrap(), number(&case["groups"])),
            seed: case["seed"].as_u64().unwrap(),
            tiling: pair("tile").map(|tile| Tiling { tile, overlap: pair("overlap").unwrap() }),
            input: Clip::read(&file, "input"),
            output: Clip::read(&file, "output"),
        }
    }

    pub fn source(&self) -> Formula {
        Formula::new(self.config.tensors(), self.config.groups, self.seed)
    }

    pub fn coder<'a>(&self, vae: &'a Vae) -> &'a dyn Coder {
        if self.encode { &vae.encoder } else { &vae.decoder }
    }

    /// Runs the VAE on the input in slices of `step` latent frames and returns the output values.
    pub fn run(&self, ops: &dyn Device, vae: &Vae, step: usize, workers: usize) -> Vec<f32> {
        let cut = if self.encode { TileInput::Frames } else { TileInput::Latents };
        let tiles = self.tiling.and_then(|t| t.tiles(cut, self.input.plane, self.config.spatial_factor()));
        let mut stream =
            Stream::new(ops, self.coder(vae), self.input.plane, &CachePlan::default()).tiled(tiles, workers);
        let step_frames = if self.encode { step * self.config.temporal_factor() } else { step };
        let last = self.input.t;
        let step = |s: std::ops::Range<usize>| stream.step(self.input.frames(s.clone()), s.end == last).unwrap();
        slices(self.input.t, step_frames).into_iter().flat_map(step).collect()
    }

    /// Bound on the relative error of a correct run at `precision`.
    pub fn allowed(&self, precision: Precision) -> f64 {
        let blending = if self.tiling.is_some() { 4 } else { 0 }; // at most four tiles cover a pixel
        let layers = if self.encode { self.config.layers } else { self.config.decoder_layers };
        allowed(roundings(&self.config, layers) + blending, precision)
    }
}

/// Bound on the relative error of a correct run with `roundings` roundings on the longest path:
/// sqrt(roundings) · u / sqrt(3), with u the unit roundoff of the precision.
pub fn allowed(roundings: usize, precision: Precision) -> f64 {
    if precision == Precision::F32 {
        return 1e-5; // about fifty consecutive layers that sum a few thousand products each
    }
    // A rounding error is uniform in ±u, so its root mean square is u/√3. Rounding errors are independent, and the
    // normalisation between layers keeps them from growing.
    (roundings as f64).sqrt() * f64::from(precision.rounding()) / 3f64.sqrt()
}

/// Number of roundings on the longest path of a coder with `layers` layers per level, including those of the weights.
pub fn roundings(config: &Config, layers: usize) -> usize {
    let levels = config.channels.len();
    let blocks = 2 + levels * layers;
    let input = 1;
    let conv = 2; // the kernel and the output
    let norm = 1;
    let attention = norm + 2 * conv + 1; // two linear layers and the attention itself
    input + conv + blocks * 2 * (norm + conv) + attention + (levels - 1) * conv + norm + conv
}

/// Runs golden files and passes each with its result to `check`. Consecutive files that share a model load it once.
pub fn run_all(ops: &dyn Device, goldens: Vec<VaeGolden>, mut check: impl FnMut(&VaeGolden, Vec<f32>)) {
    let mut loaded: Option<(Config, u64, Vae)> = None;
    for golden in goldens {
        let vae = match loaded.take() {
            Some((config, seed, vae)) if (&config, seed) == (&golden.config, golden.seed) => vae,
            _ => Vae::load(ops, &golden.source()).unwrap(),
        };
        check(&golden, golden.run(ops, &vae, 1, 1));
        loaded = Some((golden.config, golden.seed, vae));
    }
}
