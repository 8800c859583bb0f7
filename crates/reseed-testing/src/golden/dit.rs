//! Golden tests of the diffusion transformer.

use std::path::Path;

use reseed_model::Dit;
use reseed_model::dit::{B3, B7, Config};
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{DType, Device, Precision, Shape, Tensor, Thw};

use super::{Clip, golden_path};

/// Golden files of the DiT.
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

/// A golden file of the DiT.
pub struct DitGolden {
    pub name: String,
    pub config: Config,
    pub seed: u64,
    /// Whether the output is the restored latent; otherwise it is the velocity.
    pub sample: bool,
    /// The frames of the noise, followed by the frames of the condition.
    pub latents: Clip,
    pub text: Vec<f32>,
    pub output: Clip,
}

impl DitGolden {
    pub fn open(name: &str) -> DitGolden {
        DitGolden::read(&golden_path("dit", name))
    }

    pub fn read(path: &Path) -> DitGolden {
        let file = Safetensors::open(path).unwrap();
        let case: serde_json::Value = serde_json::from_str(file.metadata("case").unwrap()).unwrap();
        let layout = if case["kind"] == "3b" { B3 } else { B7 };
        let sample = case["op"] == "sample";
        let latents = match sample {
            true => concat(Clip::read(&file, "noise"), Clip::read(&file, "condition")),
            false => split_channels(&Clip::read(&file, "input")),
        };
        DitGolden {
            name: path.file_stem().unwrap().to_string_lossy().into(),
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

    pub fn run(&self, ops: &dyn Device, dit: &Dit) -> Vec<f32> {
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

/// Bound on the relative error of a correct run at `precision`.
pub fn allowed(precision: Precision) -> f64 {
    match precision {
        // About a dozen consecutive sums of a few hundred f32 products.
        Precision::F32 => 2e-5,
        // In bf16 each layer rounds a value to 8 bits about twenty times; the published precision policy differs from
        // f32 by 0.6%. The bound of the other precisions scales with their unit roundoff.
        other => 1e-2 * f64::from(other.rounding() / Precision::Bf16.rounding()),
    }
}

/// The same with linear layers in 8-bit products.
///
/// A rotated row of n = 2560 values is nearly normal, its largest value about √(2 ln n) = 3.9 of its deviation. A
/// rounding to 127 steps of that is off by 3.9 / 127 / √12 = 0.9% in the mean, that of both operands by 1.25%. A value
/// passes two such layers on its way to the residual stream, whose sum over blocks keeps their relative error: 1.8%.
pub fn allowed_int8(precision: Precision) -> f64 {
    allowed(precision).hypot(1.8e-2)
}

/// The bound of a device in its mode.
pub fn allowed_on(device: &dyn Device) -> f64 {
    let int8 = device.math_mode().is_fast() && device.dtype() != DType::F32;
    if int8 { allowed_int8(device.precision()) } else { allowed(device.precision()) }
}

pub fn text(ops: &dyn Device, config: &Config, values: &[f32]) -> Tensor {
    ops.upload(Shape::from([values.len() / config.text_width, config.text_width]), values).unwrap()
}

/// Concatenates noise and condition in time.
fn concat(mut noise: Clip, condition: Clip) -> Clip {
    noise.t += condition.t;
    noise.values.extend(condition.values);
    noise
}

/// Converts pixels `[noise, condition, 1]` to the frames of the noise followed by the frames of the condition.
fn split_channels(input: &Clip) -> Clip {
    let latent = input.channels / 2;
    let part = |first: usize| Clip {
        channels: latent,
        values: input.values.chunks_exact(input.channels).flat_map(|p| &p[first..][..latent]).copied().collect(),
        ..*input
    };
    assert!(input.values.chunks_exact(input.channels).all(|pixel| pixel[2 * latent] == 1.0));
    concat(part(0), part(latent))
}
