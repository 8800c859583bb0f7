//! Golden cases of the transformer: inputs and outputs of the published one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reseed_model::dit::{B3, B7, Config};
use reseed_model::weights::Source;
use reseed_model::weights::formula::{self, Formula};
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Dit, Result};
use reseed_ops::{Hw, Ops, Shape, Tensor, Thw};

use super::{Clip, golden_path};

/// Files of `tests/golden/dit`.
pub const NAMES: &[&str] = &[
    "3b_image",
    "3b_image_windows",
    "3b_frames_2",
    "3b_clip_5",
    "3b_clip_5_windows",
    "3b_clip_34",
    "3b_image_sample",
    "7b_image",
    "7b_image_windows",
    "7b_frames_2",
    "7b_clip_5",
    "7b_clip_5_windows",
    "7b_clip_34",
    "7b_image_sample",
];

/// A file of `tests/golden/dit`.
pub struct Golden {
    pub name: String,
    pub config: Config,
    pub seed: u64,
    /// Whether the output is the restored latent instead of the velocity.
    pub sample: bool,
    /// Frames of noise, then frames of condition.
    pub latents: Clip,
    pub text: Vec<f32>,
    pub output: Clip,
}

impl Golden {
    pub fn open(name: &str) -> Golden {
        let file = Safetensors::open(&golden_path(&format!("dit/{name}"))).unwrap();
        let case: serde_json::Value = serde_json::from_str(file.metadata("case").unwrap()).unwrap();
        let layout = if case["kind"] == "3b" { B3 } else { B7 };
        let sample = case["op"] == "sample";
        let latents = match sample {
            true => joined(Clip::read(&file, "noise"), Clip::read(&file, "condition")),
            false => parted(&Clip::read(&file, "input")),
        };
        Golden {
            name: name.into(),
            config: Config::tiny(layout, case["layers"].as_u64().unwrap() as usize),
            seed: case["seed"].as_u64().unwrap(),
            sample,
            latents,
            text: file.read("text").unwrap(),
            output: Clip::read(&file, "output"),
        }
    }

    pub fn source(&self) -> Formula {
        Formula::plain(self.config.tensors(), self.seed)
    }

    pub fn run(&self, ops: &dyn Ops, dit: &Dit) -> Vec<f32> {
        let latents = self.latents.upload(ops, 0..self.latents.t);
        let text = text(ops, &dit.config, &self.text);
        let latent = Thw::new(self.output.t, self.output.plane.h, self.output.plane.w);
        let plan = dit.plan(ops, latent, text.rows()).unwrap();
        let result = match self.sample {
            true => dit.sample(ops, &latents, &text, &plan),
            false => dit.velocity(ops, &latents, &text, &plan),
        };
        ops.download(&result.unwrap()).unwrap()
    }
}

pub fn text(ops: &dyn Ops, config: &Config, values: &[f32]) -> Tensor {
    ops.upload(Shape::from([values.len() / config.text_width, config.text_width]), values).unwrap()
}

fn joined(mut noise: Clip, condition: Clip) -> Clip {
    noise.t += condition.t;
    noise.values.extend(condition.values);
    noise
}

/// From pixels of noise, condition and a one.
fn parted(input: &Clip) -> Clip {
    let latent = input.channels / 2;
    let part = |first: usize| Clip {
        channels: latent,
        values: input.values.chunks_exact(input.channels).flat_map(|p| &p[first..][..latent]).copied().collect(),
        ..*input
    };
    assert!(input.values.chunks_exact(input.channels).all(|pixel| pixel[2 * latent] == 1.0));
    joined(part(0), part(latent))
}

/// The velocity of a latent of the formula, with six tokens of text.
pub fn velocity(ops: &dyn Ops, dit: &Dit, latent: Thw) -> Vec<f32> {
    let plane = Hw::new(latent.h, latent.w);
    let latents = Clip::uniform("latents", 2 * latent.t, plane, dit.config.latent).upload(ops, 0..2 * latent.t);
    let words = formula::uniform("text", 6 * dit.config.text_width, 1);
    let text = text(ops, &dit.config, &words.into_iter().map(|v| v as f32).collect::<Vec<_>>());
    let plan = dit.plan(ops, latent, 6).unwrap();
    ops.download(&dit.velocity(ops, &latents, &text, &plan).unwrap()).unwrap()
}

/// Tensors in memory, and a count of how often each was read.
pub struct Held {
    pub path: PathBuf,
    pub shapes: BTreeMap<String, Shape>,
    pub values: BTreeMap<String, Vec<f32>>,
    pub reads: Mutex<BTreeMap<String, usize>>,
}

impl Held {
    /// The formula's tensors, each changed on its way.
    pub fn new(config: &Config, change: impl Fn(&str, Vec<f32>) -> Vec<f32>) -> Held {
        let source = Formula::plain(config.tensors(), 1);
        let values = config.tensors().into_iter().map(|(name, _)| {
            let values = change(&name, source.read(&name).unwrap());
            (name, values)
        });
        Held { path: "held".into(), values: values.collect(), shapes: source.shapes().clone(), reads: Mutex::default() }
    }
}

impl Source for Held {
    fn path(&self) -> &Path {
        &self.path
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        &self.shapes
    }

    fn metadata(&self, _: &str) -> Option<&str> {
        None
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        *self.reads.lock().unwrap().entry(name.into()).or_default() += 1;
        Ok(self.values[name].clone())
    }
}
