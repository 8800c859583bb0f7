//! Golden tests of whole jobs on any device: the error of each intermediate and final result, and its bound.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reseed::internals::{Checkpoint, Model, RunPlan, Step, Transformer, Upscaler};
use reseed::{Batching, Color, Latent, NoiseSource, Overlap, Settings, Target};
use reseed_media::{Frame, Samples};
use reseed_model::dit::{B3, B7};
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, Dit, TextEmbedding, Vae, dit};
use reseed_ops::{Device, Precision, Shape, Thw, relative_error};

use super::job::{MemorySource, run_job};
use super::{PipelineGolden, distance, golden_path, number, numbers};
use crate::golden::dit::{allowed as transformer_allowed, allowed_on as transformer_allowed_on};
use crate::golden::{allowed as vae_allowed, roundings};

/// The devices of the networks of a job.
#[derive(Clone, Copy)]
pub struct Devices<'a> {
    pub vae: &'a dyn Device,
    pub transformer: &'a dyn Device,
}

impl Devices<'_> {
    fn are_f32(&self) -> bool {
        [self.vae, self.transformer].iter().all(|ops| ops.precision() == Precision::F32)
    }
}

/// The error of a result against its golden, and the bound for a correct run.
#[derive(Debug)]
pub struct GoldenError {
    pub name: String,
    pub error: f64,
    pub allowed: f64,
}

impl GoldenError {
    /// Whether the error is within its bound; false for NaN.
    pub fn is_allowed(&self) -> bool {
        self.error <= self.allowed
    }
}

/// A golden job: its inputs and outputs, and the latents between its networks in the file `NAME_taps.safetensors`.
pub struct GoldenJob {
    pub name: String,
    pub golden: PipelineGolden,
    taps: PipelineGolden,
    path: PathBuf,
}

impl GoldenJob {
    pub fn open(name: &str) -> GoldenJob {
        GoldenJob::read(&golden_path(&format!("{name}.safetensors")))
    }

    pub fn read(path: &Path) -> GoldenJob {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let taps = PipelineGolden::read(&path.with_file_name(format!("{name}_taps.safetensors")));
        GoldenJob { golden: PipelineGolden::read(path), taps, path: path.into(), name }
    }

    /// The settings of the job. Its noise is in the golden file.
    pub fn settings(&self) -> Settings {
        let options = &self.golden.case["options"];
        let flag = |key: &str| options[key].as_bool().unwrap();
        Settings {
            target: Target::ShortSide(number(&options["resolution"])),
            longest: Some(number(&options["max_resolution"])).filter(|&longest| longest > 0),
            even_sides: true,
            batching: Batching {
                size: number(&options["batch_size"]),
                overlap: number(&options["temporal_overlap"]),
                uniform: flag("uniform_batch_size"),
            },
            overlap: if options["blend"] == "smooth" { Overlap::Smooth } else { Overlap::Reference },
            detect_shots: false,
            lead_in: number(&options["prepend_frames"]),
            color: Some(if options["color"] == "lab" { Color::Lab } else { Color::Wavelet }),
            noise: NoiseSource::File(self.path.clone()),
            ..Settings::default()
        }
    }

    fn vae_config(&self) -> Config {
        let sizes = &self.golden.case["vae"];
        Config::with_channels(&numbers(&sizes["channels"]), number(&sizes["groups"]))
    }

    fn seed(&self) -> u64 {
        self.golden.case["seed"].as_u64().unwrap()
    }

    fn vae(&self, ops: &dyn Device) -> Vae {
        let config = self.vae_config();
        Vae::load(ops, &Formula::new(config.tensors(), config.groups, self.seed())).unwrap()
    }

    fn transformer<'a>(&self, ops: &'a dyn Device) -> Transformer<'a> {
        let sizes = &self.golden.case["dit"];
        let layout = if sizes["kind"] == "3b" { B3 } else { B7 };
        let config = dit::Config::tiny(layout, number(&sizes["layers"]));
        let dit = Dit::load(ops, &Formula::plain(config.tensors(), self.seed())).unwrap();
        let text = self.golden.tensor("text");
        Transformer::new(ops, dit, TextEmbedding { shape: Shape::from(&text.dims[..]), values: text.values.clone() })
    }

    /// Runs the job on `frames`; returns the errors of its latents and its output frames.
    pub fn run(&self, devices: Devices, frames: &[Frame]) -> (Vec<GoldenError>, Vec<Frame>) {
        let (vae, transformer) = (self.vae(devices.vae), self.transformer(devices.transformer));
        let ([encoded_bound, restored_bound, _], errors) = (self.allowed(devices), Mutex::new(Vec::new()));
        let step = |condition: &Latent, noise: &Latent| {
            let mut errors = errors.lock().unwrap();
            let k = errors.len() / 2;
            assert_eq!(noise, &latent(&self.golden, &format!("noise{k}")), "{}", self.name);
            errors.push(self.latent_error(&format!("condition{k}"), condition, encoded_bound));
            let restored = transformer.run(condition, noise)?;
            errors.push(self.latent_error(&format!("x0_{k}"), &restored, restored_bound));
            Ok(restored)
        };
        let (settings, source) = (self.settings(), MemorySource::new(frames));
        let size = self.golden.frames("output")[0].size;
        let upscaler = Upscaler::new(devices.vae, Model { vae: &vae, step: &step }, settings, RunPlan::default());
        let (report, frames) = run_job(&upscaler, size, source, (Checkpoint::default(), &mut (), None));
        let report = report.unwrap();
        assert_eq!(report.batches, self.golden.case["batches"].as_array().unwrap().len());
        assert_eq!((report.frames, report.shots), (frames.len(), 1));
        (errors.into_inner().unwrap(), frames)
    }

    /// The relative error of a latent.
    fn latent_error(&self, tap: &str, got: &Latent, allowed: f64) -> GoldenError {
        let want = latent(&self.taps, tap);
        assert_eq!(got.thw, want.thw, "{} {tap}", self.name);
        let error = relative_error(&want.values, &got.values);
        GoldenError { name: format!("{}_{tap}", self.name), error, allowed }
    }

    /// Runs the job on its golden input; returns the errors of its latents and frames.
    pub fn check(&self, devices: Devices) -> Vec<GoldenError> {
        let (mut errors, frames) = self.run(devices, &self.golden.frames("frames"));
        errors.extend(self.frame_errors(devices, &frames));
        errors
    }

    fn frame_errors(&self, devices: Devices, frames: &[Frame]) -> Vec<GoldenError> {
        let (got, want) = (codes(frames), codes(&self.golden.frames("output")));
        let distance = distance(&got, &want);
        let entry = |part: &str, error, allowed| GoldenError { name: format!("{}_{part}", self.name), error, allowed };
        if !devices.are_f32() {
            return vec![entry("output", distance.mean / 255.0, self.frames_allowed(devices))];
        }
        let differ = got.iter().flatten().zip(want.iter().flatten()).filter(|(got, want)| got != want).count();
        let count = want.iter().map(Vec::len).sum::<usize>();
        // A mean error of 2e-6 puts 1 value in 1000 within rounding of the border between two codes. Two pixels of
        // adjacent rank that swap move single pixels far: evaluated in double precision, one pixel moves by 0.019.
        vec![entry("codes", differ as f64 / count as f64, 1e-3), entry("furthest", distance.max, 5.0)]
    }

    /// Bounds on the relative errors of the condition, the restored latent and the decoded frames of a correct run.
    fn allowed(&self, devices: Devices) -> [f64; 3] {
        if devices.are_f32() {
            // Only sums are rounded; the bound of the widest network holds for the whole job.
            return [transformer_allowed(Precision::F32); 3];
        }
        // A network passes on the relative error of its input, because its normalisation keeps errors from growing, and
        // adds its own. Rounding errors of two networks are independent: their squares add up.
        let config = self.vae_config();
        let coder = |layers| vae_allowed(roundings(&config, layers), devices.vae.precision());
        let condition = coder(config.layers);
        let restored = condition.hypot(transformer_allowed_on(devices.transformer));
        [condition, restored, restored.hypot(coder(config.decoder_layers))]
    }

    /// Bound on the mean absolute error of the frames of networks that compute below f32.
    ///
    /// Relative errors are root mean squares, which a mean absolute error never exceeds; for a normal distribution the
    /// mean is 0.8 of the root mean square. Pixels that swap ranks move far, but colour transfer changes this mean by
    /// at most 5%. Rounding to codes does not change it: as many differences grow as shrink. Decoded values are in
    /// [-1, 1], frames in [0, 1], hence the division by 2.
    fn frames_allowed(&self, devices: Devices) -> f64 {
        let [.., decoded] = self.allowed(devices);
        let joined = &self.taps.tensor("joined").values;
        let square = joined.iter().map(|v| f64::from(v * v)).sum::<f64>() / joined.len() as f64;
        decoded * square.sqrt() / 2.0
    }
}

fn latent(golden: &PipelineGolden, name: &str) -> Latent {
    let dims = &golden.tensor(name).dims;
    Latent { thw: Thw::new(dims[0], dims[2], dims[3]), values: golden.frame_values(name).concat() }
}

/// The 8-bit samples of colour and alpha.
fn codes(frames: &[Frame]) -> Vec<Vec<f32>> {
    let samples = frames.iter().flat_map(|frame| std::iter::once(&frame.samples).chain(&frame.alpha));
    let codes = |samples: &Samples| match samples {
        Samples::U8(codes) => codes.iter().map(|code| f32::from(*code)).collect(),
        _ => panic!("golden frames have 8 bits"),
    };
    samples.map(codes).collect()
}
