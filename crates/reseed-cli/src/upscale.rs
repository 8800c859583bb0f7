//! `reseed upscale` and `reseed image`: pictures in, restored pictures out.

mod once;
mod tell;

use std::path::Path;

use reseed::batch::Batching;
use reseed::join::Overlap;
use reseed::noise::Noise;
use reseed::{Color, Settings, Target, VaePlan};
use reseed_media::video::{Clip, Options};
use reseed_media::{Kind, Size, Source};
use reseed_model::plan::Tiling;
use reseed_ops::Hw;

use crate::args::upscale::OverlapMode;
use crate::args::{ImageArgs, JobArgs, PlanArgs, UpscaleArgs};
use crate::batch;
use crate::crew::Crew;
use crate::engine;
use crate::failure::{Failure, Result};
use crate::job::settings::Settings as TypedSettings;
use crate::job::{Leftovers, Work};
use crate::report;
use crate::vae::refuse_same_file;
use once::Job;
pub use tell::phases;

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
    let mut crew = None;
    batch::each(&args.input, &args.output, |input, output| {
        engine::in_range(
            args,
            input,
            |args| &mut args.job.compute.dtype,
            |now| {
                // What a first run in another type left is of no use to the second.
                let anew = now.job.compute.dtype != args.job.compute.dtype;
                let (resume, overwrite) = (now.resume && !anew, now.overwrite || anew);
                one(&UpscaleArgs { resume, overwrite, ..now.clone() }, [input, output], typed.clone(), &mut crew)
            },
        )
    })
}

/// One file, or one folder of images, with what the one before left.
fn one(
    args: &UpscaleArgs,
    [input, output]: [&Path; 2],
    mut typed: TypedSettings,
    crew: &mut Option<Crew>,
) -> Result<()> {
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
    Job { name: "upscale", args: &args.job, input, output, options }.run(source, settings, work, crew)
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
    let options = Options::default();
    Job { name: "image", args: &args.job, input, output, options }.run(source, settings, work, &mut None)
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

/// The options of a job that plans of the autoencoder want.
pub fn plan_args(args: &JobArgs) -> PlanArgs {
    let JobArgs { tile, tile_overlap: overlap, slice, max_vram, .. } = *args;
    PlanArgs { tile, overlap, slice, max_vram }
}
