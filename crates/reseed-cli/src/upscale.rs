//! `reseed upscale` and `reseed image`: pictures in, restored pictures out.

use std::path::Path;

use reseed_media::video::{Clip, Options};
use reseed_media::{Info, Kind, Size, Source};
use reseed_model::plan::Tiling;
use reseed_ops::{CopyTime, Hw, Ops, ProfileOps};
use reseed_upscale::batch::Batching;
use reseed_upscale::join::Overlap;
use reseed_upscale::noise::Noise;
use reseed_upscale::{Color, Error, Fit, Report, Settings, Target, Upscaler, VaePlan};
use serde_json::json;

use crate::args::upscale::OverlapMode;
use crate::args::{ImageArgs, JobArgs, PlanArgs, UpscaleArgs};
use crate::batch;
use crate::ending;
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::job::settings::Settings as TypedSettings;
use crate::job::{Leftovers, Work};
use crate::model::Weights;
use crate::outline::{Choice, Outline, Shrinking};
use crate::progress::Progress;
use crate::report::{self, MemoryWatch, bytes};
use crate::vae::refuse_same_file;

/// The model that gives back what it is given: everything but networks.
const IDENTITY: &str = "identity";
/// Of every VAE of the family.
const PIXELS_A_LATENT: usize = 8;

pub fn run(args: &UpscaleArgs, typed: TypedSettings) -> Result<()> {
    say_default(&args.job);
    if args.overlap >= args.batch_size {
        let (overlap, batch) = (args.overlap, args.batch_size);
        return Err(Failure::Usage(format!("--overlap {overlap} must be smaller than --batch-size {batch}")));
    }
    let ignored = args.video.public.given();
    if !ignored.is_empty() {
        report::warn(&format!("{}: chosen by the engine itself, and ignored", ignored.join(", ")));
    }
    batch::each(&args.input, &args.output, |input, output| {
        engine::in_range(
            args,
            input,
            |args| &mut args.job.compute.dtype,
            |now| {
                // What a first run in another type left is of no use to the second.
                let anew = now.job.compute.dtype != args.job.compute.dtype;
                let (resume, overwrite) = (now.resume && !anew, now.overwrite || anew);
                one(&UpscaleArgs { resume, overwrite, ..now.clone() }, input, output, typed.clone())
            },
        )
    })
}

/// One file, or one folder of images.
fn one(args: &UpscaleArgs, input: &Path, output: &Path, mut typed: TypedSettings) -> Result<()> {
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
    let source = open(input, output, args.video.clip()?)?;
    let options = args.video.options();
    let leftovers = Leftovers { resume: args.resume, overwrite: args.overwrite };
    if input != Path::new("-") {
        typed = typed.with_input("input", input)?;
    }
    if let Some(path) = &args.job.noise_file {
        typed = typed.with_input("noise", path)?;
    }
    let work = Work::begin(input, output, &source.info().kind, leftovers, typed)?;
    if !args.overwrite && !work.goes_on() {
        refuse_existing(output)?;
    }
    if let Kind::Video(video) = &source.info().kind {
        video.losses(output, &options).iter().for_each(|line| report::warn(line));
    }
    Job { name: "upscale", args: &args.job, input, output, options }.run(source, settings, work)
}

/// A line for those who did not choose a model.
fn say_default(args: &JobArgs) {
    if args.model.is_none() {
        eprintln!(
            "reseed: using nano, the small model inside this program; `reseed models pull 3b` gets a large one, then --model 3b"
        );
    }
}

pub fn image(args: &ImageArgs) -> Result<()> {
    say_default(&args.job);
    engine::in_range(args, &args.input, |args| &mut args.job.compute.dtype, image_once)
}

fn image_once(args: &ImageArgs) -> Result<()> {
    let settings = settings(&args.job)?;
    let source = open(&args.input, &args.output, Clip::default())?;
    if source.info().kind != Kind::Image {
        let path = args.input.display();
        return Err(Failure::Usage(format!("{path}: is not one image; use `reseed upscale` for videos and folders")));
    }
    let (input, output) = (&args.input, &args.output);
    let work = Work::begin(input, output, &Kind::Image, Leftovers::default(), TypedSettings::default())?;
    if !args.overwrite {
        refuse_existing(output)?;
    }
    Job { name: "image", args: &args.job, input, output, options: Options::default() }.run(source, settings, work)
}

/// A file that is there is replaced only where somebody asks for it.
fn refuse_existing(output: &Path) -> Result<()> {
    match output.is_file() {
        true => Err(Failure::Usage(format!("{}: is there already; --overwrite replaces it", output.display()))),
        false => Ok(()),
    }
}

fn open(input: &Path, output: &Path, clip: Clip) -> Result<Box<dyn Source>> {
    report::make_way_for(output);
    if input != Path::new("-") {
        refuse_same_file(input, output)?;
    }
    reseed_media::open_clip(input, clip).map_err(Failure::input)
}

pub fn settings(args: &JobArgs) -> Result<Settings> {
    let target = match (args.scale, args.resolution, args.size) {
        (Some(scale), ..) => Target::Scale(scale),
        (_, Some(short), _) => Target::ShortSide(short as usize),
        (.., Some(Hw { h, w })) => Target::Exact(Size { h, w }),
        (None, None, None) => Settings::default().target,
    };
    if !(0.0..=1.0).contains(&args.latent_noise) {
        return Err(Failure::Usage(format!("--latent-noise {}: it lies between 0 and 1", args.latent_noise)));
    }
    let low_band = args.low_band.map(low_band).transpose()?.unwrap_or_default();
    Ok(Settings {
        target,
        longest: args.max_resolution.map(|side| side as usize),
        noise: match &args.noise_file {
            Some(path) => Noise::open(path)?,
            None => Noise::Seed(args.seed),
        },
        latent_noise: args.latent_noise,
        low_band,
        color: args.color.map_or(Settings::default().color, Color::from),
        vae: VaePlan { encode_tiling: tiling(args)?, decode_tiling: tiling(args)?, ..Settings::default().vae },
        ..Settings::default()
    })
}

/// A low band that was asked for.
pub fn low_band(strength: f32) -> Result<f32> {
    match (0.0..=1.0).contains(&strength) {
        true => Ok(strength),
        false => Err(Failure::Usage(format!("--low-band {strength}: it lies between 0 and 1"))),
    }
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
    options: Options,
}

impl Job<'_> {
    /// What is quickly found wrong is found before the model is loaded, which takes long.
    fn run(&self, mut source: Box<dyn Source>, settings: Settings, mut work: Work) -> Result<()> {
        ending::catch_ctrl_c();
        let info = settings.output(source.info())?;
        let weights = match self.args.model() {
            IDENTITY => None,
            name => Some(Weights::open(name, None)?),
        };
        let mut settings = match &weights {
            Some(weights) => weights.suited(settings, self.args)?,
            None => settings,
        };
        let (device, other) = engine::devices(&self.args.compute, self.args.max_vram, weights.as_ref())?;
        let transformer = other.as_ref().unwrap_or(&device);
        let (dit_ops, geometry) = (&*transformer.ops, settings.geometry(source.info())?);
        let (plan, batch) = (plan_args(self.args), settings.batching.size);
        let outline =
            weights.as_ref().map(|weights| Outline { weights, device: &device, transformer, plan, geometry, batch });
        let choice = outline.as_ref().map(Outline::choose).transpose()?;
        let sink = work.sink(&info, &self.options)?;
        let loaded = outline.as_ref().zip(choice).map(|(outline, choice)| outline.load(choice, &mut settings));
        let (networks, choice) = loaded.transpose()?.unzip();
        let describe = |typed: TypedSettings| {
            let typed = typed.with("device", device.ops.device()).with("type", device.ops.precision());
            let typed = typed.with("transformer type", dit_ops.precision());
            let typed = typed.with("plan", format!("{:?}", settings.vae)).with("version", env!("CARGO_PKG_VERSION"));
            weights.as_ref().map_or(Ok(typed.clone()), |weights| weights.described(typed.clone()))
        };
        let from = work.start(describe, &info)?;
        let watch = MemoryWatch::start();

        let profilers = self.args.compute.profile.then(|| (ProfileOps::new(&*device.ops), ProfileOps::new(dit_ops)));
        let (vae_ops, dit_ops, networks): (&dyn Ops, &dyn Ops, _) = match &profilers {
            Some((vae, dit)) => (vae, dit, networks.map(|networks| networks.through(dit))),
            None => (&*device.ops, dit_ops, networks),
        };
        let encodes_apart = std::ptr::eq(engine::encoder(&device, transformer), transformer);
        let jobs = outline.as_ref().zip(networks.as_ref()).zip(choice.as_ref());
        let shrinking = jobs
            .filter(|_| device.card.is_some())
            .map(|((outline, networks), choice)| Shrinking::new(outline, networks.model().vae, choice, &settings));
        let upscaler = match &networks {
            Some(networks) => Upscaler::new(vae_ops, networks.model(), settings).encoding_on(if encodes_apart {
                dit_ops
            } else {
                vae_ops
            }),
            None => Upscaler::identity(settings),
        };
        let upscaler = upscaler.fitting(shrinking.as_ref().map(|fit| fit as &dyn Fit));
        let progress = Progress::new(self.name, source.info().frames, self.args.compute.json);
        let progress = progress.going_on_from(from.frames).on(device.card.clone());
        let (mut watch_work, keep) = work.watch(progress);
        let upscaler = upscaler.keeping(keep);
        let report = upscaler.resume(from, &mut *source, sink, &mut watch_work).map_err(|e| self.failure(e))?;
        work.finish();
        if let Some(((vae, dit), ceiling)) = profilers.as_ref().zip(device.ceiling.as_ref()) {
            report::profile(&[vae.records()?, dit.records()?].concat(), ceiling, self.args.compute.json);
        }
        self.tell(&report, &info, &watch, &device, choice.as_ref());
        Ok(())
    }

    fn failure(&self, error: Error) -> Failure {
        match error {
            Error::NoFrames => Failure::Input(format!("{}: there are no frames in it", self.input.display())),
            error => Failure::from(error).keeping(ending::frames_kept()),
        }
    }

    fn tell(&self, report: &Report, info: &Info, watch: &MemoryWatch, device: &Device, choice: Option<&Choice>) {
        let step = choice.map(|choice| &choice.turns.step);
        let card = device.card.as_ref().map(|card| card.peak_bytes());
        let (seconds, device) = (report.times.total.as_secs_f64(), &device.ops);
        if self.args.compute.json {
            let times = phases(report).into_iter().map(|(name, seconds)| (name.replace('-', "_"), json!(seconds)));
            let mut done = json!({
                "event": "done", "command": self.name, "device": device.device(), "dtype": device.precision().to_string(),
                "frames": report.frames, "batches": report.batches, "shots": report.shots,
                "width": info.size.w, "height": info.size.h, "seconds": seconds, "fps": report.fps(),
                "phases": times.collect::<serde_json::Map<_, _>>(), "output": self.output.to_string_lossy(),
                "layers": step.map(|step| step.layers), "resident_layers": step.map(|step| step.resident),
                "card_peak_bytes": card, "window": choice.map(|choice| choice.window),
                "swapped": choice.map(Choice::is_apart), "hosted_bytes": choice.map(|choice| choice.hosted),
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
        if let Some(choice) = choice {
            tell_choice(choice, report.streaming);
        }
    }
}

/// What did not stay on the card, and what that cost.
fn tell_choice(choice: &Choice, copies: CopyTime) {
    let (layers, resident, hosted) = (choice.turns.step.layers, choice.turns.step.resident, bytes(choice.hosted));
    let windows = format!("in windows of {}", counted(choice.window, "batch"));
    let what = match (choice.is_apart(), resident == layers) {
        (false, true) => return,
        (false, false) => {
            format!("{resident} of {layers} layers stayed on the card, {hosted} of others came anew for every batch")
        }
        (true, true) => format!("the networks took turns on the card {windows}, {hosted} in the host's memory"),
        (true, false) => format!(
            "the networks took turns on the card {windows}, {hosted} in the host's memory; {} of {layers} layers came \
             anew for every batch",
            layers - resident
        ),
    };
    say!("{what}: {:.2} s of copies during steps, {:.0}% hidden", copies.copying, 100.0 * copies.hidden());
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
pub fn phases(report: &Report) -> [(&'static str, f64); 7] {
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
