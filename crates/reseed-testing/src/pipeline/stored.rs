//! Stored whole jobs, run again on any devices: how far each is from what is stored, and how far a correct one may be.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reseed::batch::Batching;
use reseed::join::Overlap;
use reseed::noise::Noise;
use reseed::{Checkpoint, Color, Latent, Model, Settings, Step, Target, Transformer, Upscaler};
use reseed_media::{Frame, Samples};
use reseed_model::dit::{B3, B7};
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, Dit, TextEmbedding, Vae, dit};
use reseed_ops::{Device, Precision, Shape, Thw, relative_error};

use super::job::{Film, show};
use super::{Golden, distance, golden_path, number, numbers};
use crate::golden::dit::allowed as transformer_allowed;
use crate::golden::{allowed as vae_allowed, roundings};

/// Where the networks of a job run.
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

/// How far something is from what is stored, and how far a correct run may be.
#[derive(Debug)]
pub struct Off {
    pub what: String,
    pub error: f64,
    pub allowed: f64,
}

impl Off {
    /// What is not a number is too far.
    pub fn is_near(&self) -> bool {
        self.error <= self.allowed
    }
}

/// A stored job: a case and, in a file beside it, what passed between its networks.
pub struct Job {
    pub name: String,
    pub golden: Golden,
    taps: Golden,
    path: PathBuf,
}

impl Job {
    pub fn open(name: &str) -> Job {
        Job::read(&golden_path(&format!("{name}.safetensors")))
    }

    pub fn read(path: &Path) -> Job {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let taps = Golden::read(&path.with_file_name(format!("{name}_taps.safetensors")));
        Job { golden: Golden::read(path), taps, path: path.into(), name }
    }

    /// A case is its own file of noise.
    pub fn settings(&self) -> Settings {
        let options = &self.golden.case["options"];
        let flag = |key: &str| options[key].as_bool().unwrap();
        Settings {
            target: Target::ShortSide(number(&options["resolution"])),
            longest: Some(number(&options["max_resolution"])).filter(|&longest| longest > 0),
            batching: Batching {
                size: number(&options["batch_size"]),
                overlap: number(&options["temporal_overlap"]),
                uniform: flag("uniform_batch_size"),
            },
            overlap: if options["blend"] == "smooth" { Overlap::Smooth } else { Overlap::Reference },
            detect_shots: false,
            lead_in: number(&options["prepend_frames"]),
            color: if options["color"] == "lab" { Color::Lab } else { Color::Wavelet },
            noise: Noise::open(&self.path).unwrap(),
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

    /// What the job makes of `frames`, and how far the latents on the way are off.
    pub fn run(&self, devices: Devices, frames: &[Frame]) -> (Vec<Off>, Vec<Frame>) {
        let (vae, transformer) = (self.vae(devices.vae), self.transformer(devices.transformer));
        let ([shown, made, _], seen) = (self.allowed(devices), Mutex::new(Vec::new()));
        let step = |condition: &Latent, noise: &Latent| {
            let mut seen = seen.lock().unwrap();
            let k = seen.len() / 2;
            assert_eq!(noise, &latent(&self.golden, &format!("noise{k}")), "{}", self.name);
            seen.push(self.off(&format!("condition{k}"), condition, shown));
            let restored = transformer.run(condition, noise)?;
            seen.push(self.off(&format!("x0_{k}"), &restored, made));
            Ok(restored)
        };
        let (settings, film) = (self.settings(), Film::new(frames));
        let size = self.golden.frames("output")[0].size;
        let upscaler = Upscaler::new(devices.vae, Model { vae: &vae, step: &step }, settings);
        let (report, frames) = show(&upscaler, size, film, (Checkpoint::default(), &mut ()));
        let report = report.unwrap();
        assert_eq!(report.batches, self.golden.case["batches"].as_array().unwrap().len());
        assert_eq!((report.frames, report.shots), (frames.len(), 1));
        (seen.into_inner().unwrap(), frames)
    }

    /// How far a latent is from the stored one.
    fn off(&self, tap: &str, got: &Latent, allowed: f64) -> Off {
        let want = latent(&self.taps, tap);
        assert_eq!(got.thw, want.thw, "{} {tap}", self.name);
        let error = relative_error(&want.values, &got.values);
        Off { what: format!("{}_{tap}", self.name), error, allowed }
    }

    /// Runs the job on its own frames; everything that is stored of it.
    pub fn check(&self, devices: Devices) -> Vec<Off> {
        let (mut seen, frames) = self.run(devices, &self.golden.frames("frames"));
        seen.extend(self.frames_off(devices, &frames));
        seen
    }

    fn frames_off(&self, devices: Devices, frames: &[Frame]) -> Vec<Off> {
        let (got, want) = (codes(frames), codes(&self.golden.frames("output")));
        let distance = distance(&got, &want);
        let off = |what: &str, error, allowed| Off { what: format!("{}_{what}", self.name), error, allowed };
        if !devices.are_f32() {
            return vec![off("output", distance.mean / 255.0, self.frames_allowed(devices))];
        }
        let differ = got.iter().flatten().zip(want.iter().flatten()).filter(|(got, want)| got != want).count();
        let count = want.iter().map(Vec::len).sum::<usize>();
        // Values that lie on the border of two codes to within rounding: a mean error of 2e-6 puts 1 in 1000 there. A
        // swap of neighbours in rank moves single pixels; in double precision the stored case moves one by 0.019.
        vec![off("codes", differ as f64 / count as f64, 1e-3), off("furthest", distance.max, 5.0)]
    }

    /// Relative errors of a correct run: of what the transformer is shown, of what it makes of that, and of the pictures that
    /// are made of that.
    fn allowed(&self, devices: Devices) -> [f64; 3] {
        if devices.are_f32() {
            // Sums alone are rounded, and a job keeps to the bound that its widest network has by itself.
            return [transformer_allowed(Precision::F32); 3];
        }
        // A network hands on the relative error that it is given, since its norms keep that from growing, and adds its own.
        // Roundings of one are independent of another's: squares add up.
        let config = self.vae_config();
        let half = |layers| vae_allowed(roundings(&config, layers), devices.vae.precision());
        let condition = half(config.layers);
        let restored = condition.hypot(transformer_allowed(devices.transformer.precision()));
        [condition, restored, restored.hypot(half(config.decoder_layers))]
    }

    /// The mean distance from stored frames where networks compute in few bits. Relative errors are of a root of a mean
    /// square, which no mean exceeds and the mean of a normal error is 0.8 of. Ranks that swap throw single pixels far, yet
    /// matching colours has moved this mean by a twentieth at most, and rounding to codes leaves it where it is: as many
    /// differences grow as shrink. Pictures are in [-1, 1], frames in [0, 1].
    fn frames_allowed(&self, devices: Devices) -> f64 {
        let [.., pictures] = self.allowed(devices);
        let joined = &self.taps.tensor("joined").values;
        let square = joined.iter().map(|v| f64::from(v * v)).sum::<f64>() / joined.len() as f64;
        pictures * square.sqrt() / 2.0
    }
}

fn latent(golden: &Golden, name: &str) -> Latent {
    let dims = &golden.tensor(name).dims;
    Latent { thw: Thw::new(dims[0], dims[2], dims[3]), values: golden.pictures(name).concat() }
}

/// Eight-bit codes of colours and alphas.
fn codes(frames: &[Frame]) -> Vec<Vec<f32>> {
    let samples = frames.iter().flat_map(|frame| std::iter::once(&frame.samples).chain(&frame.alpha));
    let codes = |samples: &Samples| match samples {
        Samples::U8(codes) => codes.iter().map(|code| f32::from(*code)).collect(),
        Samples::U16(_) => panic!("sixteen bits"),
    };
    samples.map(codes).collect()
}
