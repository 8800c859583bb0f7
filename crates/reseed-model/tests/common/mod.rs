//! Models and clips from the formula, and golden cases: inputs and outputs of the published model.
#![allow(dead_code, clippy::unwrap_used)]

pub mod distant;
pub mod dit;
pub mod files;
pub mod gguf;

use std::path::{Path, PathBuf};

use reseed_model::plan::{Cut, Keeping, Tiling, slices};
use reseed_model::weights::Source;
use reseed_model::weights::formula::{self, Formula};
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Config, Half, State, Stream, Vae};
use reseed_ops::{Hw, Ops, Shape, Tensor, Thw};

/// One half of the VAE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Encode,
    Decode,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Encode, Side::Decode];

    pub fn half(self, vae: &Vae) -> &dyn Half {
        match self {
            Side::Encode => &vae.encoder,
            Side::Decode => &vae.decoder,
        }
    }

    pub fn cut(self) -> Cut {
        match self {
            Side::Encode => Cut::Pictures,
            Side::Decode => Cut::Latents,
        }
    }

    /// A clip that is `latents` frames of `plane` on the latent side.
    pub fn input(self, config: &Config, latents: usize, plane: Hw) -> Clip {
        let (time, space) = (config.temporal_factor(), config.spatial_factor());
        let name = format!("{self:?} {latents} {plane}");
        match self {
            Side::Encode => {
                let plane = Hw::new(plane.h * space, plane.w * space);
                Clip::uniform(&name, 1 + (latents - 1) * time, plane, config.image)
            }
            Side::Decode => Clip::uniform(&name, latents, plane, config.latent),
        }
    }

    /// Input frames of slices given in latent frames.
    pub fn slices(self, config: &Config, latents: &[usize]) -> Vec<std::ops::Range<usize>> {
        let position = |latents: usize| match self {
            Side::Encode if latents > 0 => 1 + (latents - 1) * config.temporal_factor(),
            _ => latents,
        };
        let mut seen = 0;
        let slice = |&n: &usize| {
            seen += n;
            position(seen - n)..position(seen)
        };
        latents.iter().map(slice).collect()
    }
}

/// A VAE whose weights come from the formula.
pub fn load(ops: &dyn Ops, config: &Config) -> Vae {
    Vae::load(ops, &formula(config)).unwrap()
}

pub fn formula(config: &Config) -> Formula {
    Formula::new(config.tensors(), config.groups, 1)
}

/// Runs a clip in slices given in latent frames.
pub fn run_slices(ops: &dyn Ops, vae: &Vae, side: Side, clip: &Clip, latents: &[usize]) -> Vec<f32> {
    let mut state = State::new();
    let slices = side.slices(&vae.config, latents);
    slices.into_iter().flat_map(|slice| step(ops, side.half(vae), clip, slice, &mut state)).collect()
}

/// Runs one slice of a clip and moves its state on.
pub fn step(
    ops: &dyn Ops,
    half: &dyn Half,
    clip: &Clip,
    frames: std::ops::Range<usize>,
    state: &mut State,
) -> Vec<f32> {
    ops.download(&half.run(ops, clip.upload(ops, frames), state).unwrap()).unwrap()
}

/// Files of `tests/golden` of models small enough for every level.
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

/// A file of `tests/golden`.
pub struct Golden {
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
    /// Numbers in [-1, 1), others for every name.
    pub fn uniform(name: &str, t: usize, plane: Hw, channels: usize) -> Clip {
        let values = formula::uniform(name, t * plane.count() * channels, 1).into_iter().map(|v| v as f32).collect();
        Clip { t, plane, channels, values }
    }

    /// Some of the frames, on a device.
    pub fn upload(&self, ops: &dyn Ops, frames: std::ops::Range<usize>) -> Tensor {
        let thw = Thw::new(frames.len(), self.plane.h, self.plane.w);
        ops.upload(Shape::clip(thw, self.channels), self.frames(frames)).unwrap()
    }

    /// From a tensor `[T, C, H, W]`.
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

pub fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.safetensors"))
}

impl Golden {
    pub fn open(name: &str) -> Golden {
        let file = Safetensors::open(&golden_path(name)).unwrap();
        let case: serde_json::Value = serde_json::from_str(file.metadata("case").unwrap()).unwrap();
        let number = |v: &serde_json::Value| v.as_u64().unwrap() as usize;
        let numbers = |key: &str| case[key].as_array().map(|list| list.iter().map(number).collect::<Vec<_>>());
        let pair = |key: &str| numbers(key).map(|v| Hw::new(v[0], v[1]));
        Golden {
            name: name.into(),
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

    pub fn half<'a>(&self, vae: &'a Vae) -> &'a dyn Half {
        if self.encode { &vae.encoder } else { &vae.decoder }
    }

    /// Runs the case in slices of `step` latent frames and returns the output's values.
    pub fn run(&self, ops: &dyn Ops, vae: &Vae, step: usize, workers: usize) -> Vec<f32> {
        let cut = if self.encode { Cut::Pictures } else { Cut::Latents };
        let tiles = self.tiling.and_then(|t| t.tiles(cut, self.input.plane, self.config.spatial_factor()));
        let mut stream = Stream::new(ops, self.half(vae), self.input.plane, &Keeping::default()).tiled(tiles, workers);
        let step_frames = if self.encode { step * self.config.temporal_factor() } else { step };
        let last = self.input.t;
        let step = |s: std::ops::Range<usize>| stream.step(self.input.frames(s.clone()), s.end == last).unwrap();
        slices(self.input.t, step_frames).into_iter().flat_map(step).collect()
    }
}
