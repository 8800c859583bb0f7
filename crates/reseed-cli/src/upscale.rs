//! `reseed upscale` and `reseed image`: pictures in, restored pictures out.

use std::path::Path;

use reseed_media::{Info, Kind, Sink, Size, Source};
use reseed_model::dit::Needs;
use reseed_model::plan::Tiling;
use reseed_ops::{Hw, Ops, ProfileOps};
use reseed_upscale::batch::Batching;
use reseed_upscale::join::Overlap;
use reseed_upscale::noise::Noise;
use reseed_upscale::{Error, Report, Settings, Target, Upscaler, VaePlan};
use serde_json::json;

use crate::args::upscale::OverlapMode;
use crate::args::{ImageArgs, JobArgs, PlanArgs, UpscaleArgs};
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::outline::Outline;
use crate::progress::Progress;
use crate::report::{self, MemoryWatch, bytes};
use crate::vae::refuse_same_file;

/// Of every VAE of the family.
const PIXELS_A_LATENT: usize = 8;

pub fn run(args: &UpscaleArgs) -> Result<()> {
    if args.overlap >= args.batch_size {
        let (overlap, batch) = (args.overlap, args.batch_size);
        return Err(Failure::Usage(format!("--overlap {overlap} must be smaller than --batch-size {batch}")));
    }
    let settings = Settings {
        batching: Batching {
            size: args.batch_size.into(),
            overlap: args.overlap.into(),
            uniform: args.uniform_batch_size,
        },
        overlap: match args.overlap_mode {
            OverlapMode::Smooth => Overlap::Smooth,
            OverlapMode::Reference => Overlap::Reference,
        },
        detect_shots: !args.no_shot_detection,
        lead_in: args.prepend_frames.into(),
        ..settings(&args.job)?
    };
    let source = open(&args.input, &args.output)?;
    Job { name: "upscale", args: &args.job, input: &args.input, output: &args.output }.run(source, settings)
}

pub fn image(args: &ImageArgs) -> Result<()> {
    let settings = settings(&args.job)?;
    let source = open(&args.input, &args.output)?;
    if source.info().kind != Kind::Image {
        let path = args.input.display();
        return Err(Failure::Usage(format!("{path}: is not one image; use `reseed upscale` for videos and folders")));
    }
    Job { name: "image", args: &args.job, input: &args.input, output: &args.output }.run(source, settings)
}

fn open(input: &Path, output: &Path) -> Result<Box<dyn Source>> {
    report::make_way_for(output);
    if input != Path::new("-") {
        refuse_same_file(input, output)?;
    }
    reseed_media::open(input).map_err(Failure::input)
}

fn settings(args: &JobArgs) -> Result<Settings> {
    let target = match (args.scale, args.resolution, args.size) {
        (Some(scale), ..) => Target::Scale(scale),
        (_, Some(short), _) => Target::ShortSide(short as usize),
        (.., Some(Hw { h, w })) => Target::Exact(Size { h, w }),
        (None, None, None) => Settings::default().target,
    };
    if !(0.0..=1.0).contains(&args.latent_noise) {
        return Err(Failure::Usage(format!("--latent-noise {}: it lies between 0 and 1", args.latent_noise)));
    }
    Ok(Settings {
        target,
        longest: args.max_resolution.map(|side| side as usize),
        noise: match &args.noise_file {
            Some(path) => Noise::open(path)?,
            None => Noise::Seed(args.seed),
        },
        latent_noise: args.latent_noise,
        color: args.color.into(),
        vae: VaePlan { tiling: tiling(args)?, ..Settings::default().vae },
        ..Settings::default()
    })
}

fn tiling(args: &JobArgs) -> Result<Option<Tiling>> {
    let Some(tile) = args.tile else { return Ok(None) };
    let overlap = args.tile_overlap.unwrap_or(Hw::new(tile.h / 8, tile.w / 8));
    engine::checked_tiling(tile, overlap, PIXELS_A_LATENT, "--tile-overlap").map(Some)
}

/// One run of the pipeline.
struct Job<'a> {
    name: &'static str,
    args: &'a JobArgs,
    input: &'a Path,
    output: &'a Path,
}

impl Job<'_> {
    /// What is quickly found wrong is found before the model is loaded, which takes long.
    fn run(&self, mut source: Box<dyn Source>, settings: Settings) -> Result<()> {
        engine::catch_ctrl_c();
        let info = settings.output(source.info())?;
        let weights = Weights::open(&self.args.model, None)?;
        let device = engine::device(&self.args.compute, self.args.max_vram)?;
        let other = engine::transformer_device(&self.args.compute, self.args.max_vram, &device)?;
        let transformer = other.as_ref().unwrap_or(&device);
        let (dit_ops, padded) = (&*transformer.ops, settings.geometry(source.info())?.padded);
        let (plan, batch) = (plan_args(self.args), settings.batching.size);
        let outline = Outline { weights: &weights, device: &device, transformer, plan, padded, batch };
        let share = outline.share()?;
        let sink = reseed_media::create(self.output, &info).map_err(Failure::output)?;
        let networks = weights.load(&*device.ops, dit_ops, share.step.resident)?;
        let settings = outline.reserve(settings, &share, networks.model().vae)?;
        let watch = MemoryWatch::start();

        let profilers = self.args.compute.profile.then(|| (ProfileOps::new(&*device.ops), ProfileOps::new(dit_ops)));
        let (vae_ops, networks): (&dyn Ops, _) = match &profilers {
            Some((vae, dit)) => (vae, networks.through(dit)),
            None => (&*device.ops, networks),
        };
        let upscaler = Upscaler::new(vae_ops, networks.model(), settings);
        let report = self.pump(&upscaler, &mut *source, sink)?;
        if let Some(((vae, dit), ceiling)) = profilers.as_ref().zip(device.ceiling.as_ref()) {
            report::profile(&[vae.records()?, dit.records()?].concat(), ceiling, self.args.compute.json);
        }
        self.tell(&report, &info, &watch, &device, &share.step);
        Ok(())
    }

    fn pump(&self, upscaler: &Upscaler, source: &mut dyn Source, sink: Box<dyn Sink>) -> Result<Report> {
        let mut bar = Bar(Progress::new(self.name, source.info().frames, self.args.compute.json));
        upscaler.run(source, sink, &mut bar).map_err(|error| match error {
            Error::NoFrames => Failure::Input(format!("{}: there are no frames in it", self.input.display())),
            error => error.into(),
        })
    }

    fn tell(&self, report: &Report, info: &Info, watch: &MemoryWatch, device: &Device, step: &Needs) {
        let card = device.card.as_ref().map(|card| card.peak_bytes());
        let (seconds, device) = (report.times.total.as_secs_f64(), &device.ops);
        if self.args.compute.json {
            let times = phases(report).into_iter().map(|(name, seconds)| (name.replace('-', "_"), json!(seconds)));
            let mut done = json!({
                "event": "done", "command": self.name, "device": device.device(), "dtype": device.precision().to_string(),
                "frames": report.frames, "batches": report.batches, "shots": report.shots,
                "width": info.size.w, "height": info.size.h, "seconds": seconds, "fps": report.fps(),
                "phases": times.collect::<serde_json::Map<_, _>>(), "output": self.output.to_string_lossy(),
                "layers": step.layers, "resident_layers": step.resident, "card_peak_bytes": card,
                "streaming_seconds": report.streaming.copying, "streaming_hidden": report.streaming.hidden(),
            });
            done.as_object_mut().expect("an object").extend(watch.json().as_object().expect("an object").clone());
            say!("{done}");
            return;
        }
        let Report { frames, batches, shots, .. } = report;
        let (frames, batches, shots) = (counted(*frames, "frame"), counted(*batches, "batch"), counted(*shots, "shot"));
        say!("{}: {frames} of {}, {batches}, {shots}", self.output.display(), info.size);
        for (name, seconds) in phases(report) {
            say!("{name:<13} {seconds:>9.2} s");
        }
        say!("{:<13} {seconds:>9.2} s, {:.2} fps on {}", "total", report.fps(), device.device());
        say!("{}", watch.line());
        if let Some(peak) = card {
            say!("card: {} of its memory", bytes(peak));
        }
        if step.resident < step.layers {
            let Needs { layers, resident, hosted, .. } = *step;
            say!(
                "{resident} of {layers} layers stayed on the card, {} of others came anew for every batch: {:.2} s of \
                 copies, {:.0}% hidden",
                bytes(hosted),
                report.streaming.copying,
                100.0 * report.streaming.hidden(),
            );
        }
    }
}

/// The options of a job that plans of the autoencoder want.
pub fn plan_args(args: &JobArgs) -> PlanArgs {
    let JobArgs { tile, tile_overlap: overlap, slice, max_vram, .. } = *args;
    PlanArgs { tile, overlap, slice, max_vram }
}

/// 1 batch, 2 batches.
fn counted(count: usize, word: &str) -> String {
    let ending = if count == 1 {
        ""
    } else if word.ends_with("ch") {
        "es"
    } else {
        "s"
    };
    format!("{count} {word}{ending}")
}

/// Stages in their order. They overlap, so that they may add up to more than the total.
fn phases(report: &Report) -> [(&'static str, f64); 7] {
    let times = &report.times;
    [
        ("read", times.read),
        ("resize", times.resize),
        ("encode", times.encode),
        ("upscale", times.upscale),
        ("decode", times.decode),
        ("post-process", times.post_process),
        ("write", times.write),
    ]
    .map(|(name, time)| (name, time.as_secs_f64()))
}

/// A line on the terminal, and Ctrl-C.
struct Bar(Progress);

impl reseed_upscale::Progress for Bar {
    fn advance(&mut self, frames: usize) {
        self.0.advance(frames);
    }

    fn cancelled(&mut self) -> bool {
        engine::check_cancelled().is_err()
    }
}
