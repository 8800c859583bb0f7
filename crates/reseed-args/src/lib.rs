//! The command line of `reseed`: commands, options and their help.
#![allow(missing_docs, rustdoc::broken_intra_doc_links, reason = "doc comments are the help texts")]

pub mod bench;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod estimate;
pub mod models;
pub mod preview;
#[cfg(feature = "serve")]
pub mod serve;
pub mod upscale;
mod values;
pub mod version;
pub mod video;

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use reseed::internals::{AUTO, ComputeOptions, most_threads};
use reseed::{Budget, Builder, Hw, MathMode, Precision, Session, VaeSettings};

use reseed_terminal::console;
use reseed_terminal::failure::{Failure, Result as CommandResult};
use values::{device, math, memory, plane, precision, size, switch};

pub use bench::{Bench, BenchArgs};
pub use estimate::{Estimate, EstimateArgs};
pub use preview::PreviewArgs;
#[cfg(feature = "serve")]
pub use serve::ServeArgs;
pub use upscale::{ImageArgs, JobArgs, UpscaleArgs, batching};

/// Headings of the help.
const DEVICE: &str = "Device";
const MEMORY: &str = "Memory";

/// Segments of a shard: 2,880 frames, some minutes of a GPU.
const SEGMENTS: u16 = 24;

/// Ends the help of `reseed`.
const EXAMPLES: &str = "\
Examples:
  reseed upscale tape.mp4 restored.mkv               restore a video with the small built-in model
  reseed models pull 3b                              download a large model
  reseed upscale tape.mp4 restored.mkv --model 3b    restore the video with it

Exit codes: 0 done, 1 failed, 2 usage, 3 input, 4 model, 5 memory, 6 device, 130 cancelled";

/// Ends the help of `reseed upscale`.
const UPSCALE_EXAMPLES: &str = "\
Examples:
  reseed upscale tape.mp4 restored.mkv --model 3b --scale 2
  reseed upscale tapes/ restored/ --model 3b --resume    every video of a folder that is not done
  reseed upscale tape.mp4 restored.mkv --dry-run         sizes, time and memory, without a run";

/// Ends the help of `reseed preview`.
const PREVIEW_EXAMPLES: &str = "\
Examples:
  reseed preview tape.mp4 --at 1:30 -o frame.png --model 3b
  reseed preview tape.mp4 --at 1:30 -o frame.png --compare wipe";

/// Ends the help of `reseed plan`.
#[cfg(feature = "cluster")]
const CLUSTER_EXAMPLES: &str = "\
Examples:
  reseed plan tape.mp4 restored.mkv --out tape.json --model 3b    on one machine
  reseed shard tape.json 0                                        on any machine, for every shard
  reseed join tape.json                                           on one machine, when all are done";

/// Restores and upscales video with SeedVR2-family models.
#[derive(Parser)]
#[command(name = "reseed", version = version::line(), max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Print errors and requested JSON only.
    #[arg(long, short, global = true, display_order = 100)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Restore and upscale a video, an image, or a folder of either.
    #[command(after_help = UPSCALE_EXAMPLES)]
    Upscale(Box<UpscaleArgs>),
    /// Restore and upscale one image.
    Image(Box<ImageArgs>),
    /// Restore one frame of a video as `upscale` would, into an image.
    #[command(after_help = PREVIEW_EXAMPLES)]
    Preview(Box<PreviewArgs>),
    /// List, download and verify the public models.
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Estimate time and memory before a run.
    #[command(subcommand)]
    Estimate(Estimate),
    /// Upscale a built-in clip and photograph, beside bicubic and the originals.
    Demo(DemoArgs),
    /// Show the devices and tools of this machine.
    Doctor(DoctorArgs),
    /// Show the settings of the configuration file, and all presets.
    Config(ConfigArgs),
    /// Serve a job queue over HTTP.
    #[cfg(feature = "serve")]
    Serve(Box<ServeArgs>),
    /// Split a video into shards for many machines, and write the plan.
    #[cfg(feature = "cluster")]
    #[command(after_help = CLUSTER_EXAMPLES)]
    Plan(Box<cluster::ShardPlanArgs>),
    /// Compute one shard of a plan.
    #[cfg(feature = "cluster")]
    Shard(cluster::ShardArgs),
    /// Join the shards of a plan into the output.
    #[cfg(feature = "cluster")]
    Join(cluster::JoinArgs),
    /// Run the video autoencoder (VAE) by itself.
    #[command(subcommand)]
    Vae(VaeCommand),
    /// Measure this machine or a model.
    #[command(subcommand)]
    Bench(Bench),
    /// Print completions for a shell.
    Completions(CompletionArgs),
    /// Print the manual page.
    Man,
}

impl Command {
    /// Whether the command ends by itself after a signal.
    pub fn handles_signals(&self) -> bool {
        #[cfg(feature = "serve")]
        return matches!(self, Command::Serve(_));
        #[cfg(not(feature = "serve"))]
        false
    }

    /// Whether `--json` is given.
    pub fn prints_json(&self) -> bool {
        match self {
            Command::Upscale(args) => args.job.compute.json,
            Command::Image(args) => args.job.compute.json,
            Command::Preview(args) => args.job.compute.json,
            Command::Models(command) => command.prints_json(),
            Command::Estimate(Estimate::Upscale(args)) => args.job.compute.json,
            Command::Estimate(Estimate::Vae(args)) => args.run.compute.json,
            Command::Demo(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::Config(args) => args.json,
            #[cfg(feature = "serve")]
            Command::Serve(args) => args.json,
            #[cfg(feature = "cluster")]
            Command::Plan(args) => args.job.compute.json,
            #[cfg(feature = "cluster")]
            Command::Shard(args) => args.json,
            #[cfg(feature = "cluster")]
            Command::Join(args) => args.json,
            Command::Vae(VaeCommand::Encode(args) | VaeCommand::Decode(args)) => args.run.compute.json,
            Command::Vae(VaeCommand::Roundtrip(args)) => args.run.compute.json,
            Command::Bench(bench) => bench.prints_json(),
            Command::Completions(_) | Command::Man => false,
        }
    }
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ConfigArgs {
    /// Show the settings with this preset.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CompletionArgs {
    /// The shell.
    pub shell: Shell,
}

#[derive(Subcommand)]
pub enum VaeCommand {
    /// Frames [T,3,H,W] in [-1,1] to moments [L,32,H/8,W/8]: mean, then log-variance.
    Encode(TensorArgs),
    /// Latents [L,16,h,w], or moments, to frames [T,3,8h,8w].
    Decode(TensorArgs),
    /// Encode and decode an image, a y4m video or a folder of images, and measure the loss.
    Roundtrip(RoundtripArgs),
}

/// Encoder or decoder.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    Encode,
    Decode,
}

impl From<Direction> for reseed::internals::Direction {
    fn from(direction: Direction) -> reseed::internals::Direction {
        match direction {
            Direction::Encode => reseed::internals::Direction::Encode,
            Direction::Decode => reseed::internals::Direction::Decode,
        }
    }
}

#[derive(Args, Clone)]
pub struct TensorArgs {
    /// Safetensors file; its tensor `input`, or its only one.
    pub input: PathBuf,
    /// Safetensors file to write; the result is its tensor `output`.
    pub output: PathBuf,
    /// The VAE: a safetensors file such as ema_vae_fp16.safetensors, or formula:tiny, formula:full.
    #[arg(long, value_name = "FILE")]
    pub weights: String,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Clone)]
pub struct RoundtripArgs {
    /// Image, y4m video (- for stdin) or folder of images.
    pub input: PathBuf,
    /// Output of the same kind.
    pub output: PathBuf,
    /// The VAE: a safetensors file such as ema_vae_fp16.safetensors, or formula:tiny, formula:full.
    #[arg(long, value_name = "FILE")]
    pub weights: String,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Clone)]
pub struct DemoArgs {
    /// Folder for the results.
    #[arg(default_value = "reseed-demo")]
    pub output: PathBuf,
    /// Frames of the clip; fewer of them for a slow computer.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u8).range(1..=40))]
    pub frames: u8,
    /// Device: cpu, cuda or cuda:N; auto is a GPU if there is one, else the CPU.
    #[arg(long, default_value = AUTO, value_parser = device)]
    pub device: String,
    /// Type of the activations. Default: what suits the device.
    #[arg(long, value_parser = precision, value_name = "f32|tf32|f16|bf16")]
    pub dtype: Option<Precision>,
    /// CPU threads. Default: one per core.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// One JSON object per line on stdout instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of commands that run the VAE by itself.
#[derive(Args, Clone)]
pub struct RunArgs {
    #[command(flatten)]
    pub compute: ComputeArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
}

#[derive(Args, Clone)]
pub struct ComputeArgs {
    /// cpu, cuda:N, cuda for all GPUs, or several such as cuda:0,cuda:1;
    /// auto is the first GPU if there is one
    #[arg(long, alias = "cuda_device", value_name = "NAME", default_value = AUTO, value_parser = device)]
    #[arg(help_heading = DEVICE, verbatim_doc_comment)]
    pub device: String,
    #[command(flatten)]
    pub math: MathArgs,
    /// Time cuBLASLt against the built-in kernels for new linear layers
    /// and record the faster one
    #[arg(long, action = ArgAction::Set, value_parser = switch, value_name = "off|on", default_value = "off")]
    #[arg(help_heading = DEVICE, verbatim_doc_comment)]
    pub tune: bool,
    /// Print one JSON object per line on stdout instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print the time per op and per stage at the end.
    #[arg(long)]
    pub profile: bool,
}

/// How a device computes.
#[derive(Args, Clone)]
pub struct MathArgs {
    /// Type of the activations: f32, tf32, f16 or bf16; sums are f32
    /// [default: f16 on a GPU, bf16 on a CPU with AMX, else f32]
    #[arg(long, value_parser = precision, value_name = "TYPE", help_heading = DEVICE, verbatim_doc_comment)]
    pub dtype: Option<Precision>,
    /// Accuracy of a GPU's products: exact may use Winograd, fast also sums
    /// of f16 and 8-bit products in the transformer, int8 also 8-bit products
    /// in the VAE (Hopper), reference none of these
    #[arg(long, value_parser = math, value_name = "exact|fast|int8|reference", default_value_t = MathMode::default())]
    #[arg(help_heading = DEVICE, verbatim_doc_comment)]
    pub precision: MathMode,
    /// CPU threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = DEVICE)]
    pub threads: Option<u16>,
}

impl ComputeArgs {
    /// The options of a device with a memory budget.
    pub fn options(&self, max_vram: Option<usize>) -> CommandResult<ComputeOptions> {
        Ok(ComputeOptions {
            device: self.device.clone(),
            dtype: self.math.dtype,
            math: self.math.precision,
            threads: threads(self.math.threads),
            budget: max_vram,
            tune: self.tune,
            measured_kernels: true,
            profile: self.profile,
            check: if checks_ops()? { Some(Arc::new(report_check)) } else { None },
        })
    }

    /// A session with a memory budget.
    pub fn builder(&self, model: &str, max_vram: Option<usize>) -> CommandResult<Builder> {
        let builder = Session::builder().model(model).device(&self.device).dtype(self.math.dtype).tune(self.tune);
        let builder = builder.math(self.math.precision).threads(threads(self.math.threads)).profile(self.profile);
        let builder = builder.budget(max_vram.map(Budget::bytes));
        Ok(if checks_ops()? { builder.check(report_check) } else { builder })
    }
}

/// The number of threads, with a warning where it is cut.
pub fn threads(chosen: Option<u16>) -> Option<usize> {
    let chosen = usize::from(chosen?);
    let (most, cores) = (most_threads(), available_parallelism().map_or(1, NonZeroUsize::get));
    if chosen > most {
        console::warn("threads", &format_args!("--threads {chosen}: using {most}, four for each of {cores} cores"));
    }
    Some(chosen.min(most))
}

/// Whether `RESEED_CHECK` asks to compare every op with the reference.
fn checks_ops() -> CommandResult<bool> {
    match std::env::var("RESEED_CHECK").as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(word) => Err(Failure::Usage(format!("RESEED_CHECK={word}: 1 compares every op with the CPU's"))),
    }
}

fn report_check(found: &dyn Display) {
    console::remark(&format_args!("reseed: check: {found}"));
}

#[derive(Args, Clone)]
#[command(next_help_heading = MEMORY)]
pub struct PlanArgs {
    /// GPU memory to use at most, such as 6G [default: what is free, less a margin]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_vram: Option<usize>,
    /// Latent frames at a time; the result is the same [default: chosen by the planner]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub slice: Option<u16>,
    /// Work in spatial tiles of this size in pixels; approximate.
    #[arg(long, value_parser = plane, value_name = "HxW")]
    pub tile: Option<Hw>,
    /// Overlap of the tiles in pixels [default: an eighth of the tile]
    #[arg(long, value_parser = plane, value_name = "HxW", requires = "tile")]
    pub overlap: Option<Hw>,
}

impl PlanArgs {
    pub fn settings(&self) -> VaeSettings {
        vae_settings(self.tile, self.overlap, self.slice)
    }
}

/// The tiles and slices of the VAE.
fn vae_settings(tile: Option<Hw>, overlap: Option<Hw>, slice: Option<u16>) -> VaeSettings {
    let tiled = tile.map(|tile| VaeSettings::tiled(tile, overlap)).unwrap_or_default();
    VaeSettings { slice: slice.map(usize::from), ..tiled }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
