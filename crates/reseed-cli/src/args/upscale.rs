//! What can be typed behind `reseed upscale` and `reseed image`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use reseed_model::nano;
use reseed_ops::Hw;

use super::video::VideoArgs;
use super::{ComputeArgs, memory, plane, size};

#[derive(Args, Clone)]
pub struct UpscaleArgs {
    /// A video of any kind (- for y4m on stdin), a folder of videos, a folder of images in name order, or an image.
    pub input: PathBuf,
    /// What to write: .mp4, .mkv, .mov, .webm or .y4m (- for stdout), a folder, or an image as the input is.
    pub output: PathBuf,
    #[command(flatten)]
    pub job: JobArgs,
    #[command(flatten)]
    pub video: VideoArgs,
    /// Frames that go through the model together; best 4n+1. More are steadier and take more memory.
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Pad the last batch of a shot to the full number of frames too.
    #[arg(long, alias = "uniform_batch_size")]
    pub uniform_batch_size: bool,
    /// Frames that a batch shares with the one before it, cross-faded.
    #[arg(long, alias = "temporal_overlap", value_name = "N", default_value_t = 0)]
    pub overlap: u16,
    /// Weights of the cross-fade: over all shared frames, or those of the public pipeline.
    #[arg(long, value_enum, default_value_t = OverlapMode::Smooth)]
    pub overlap_mode: OverlapMode,
    /// Mirrored frames before the first, taken off the result.
    #[arg(long, alias = "prepend_frames", value_name = "N", default_value_t = 0)]
    pub prepend_frames: u16,
    /// Let batches reach across cuts.
    #[arg(long)]
    pub no_shot_detection: bool,
    /// Go on where an interrupted run with the same options stopped.
    #[arg(long)]
    pub resume: bool,
    /// Replace an output that is there already, or what an interrupted run left of it.
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
}

#[derive(Args, Clone)]
pub struct ImageArgs {
    /// A PNG, JPEG, WebP or TIFF image.
    pub input: PathBuf,
    /// The image to write; its name says its format.
    pub output: PathBuf,
    #[command(flatten)]
    pub job: JobArgs,
    /// Replace an output that is there already.
    #[arg(long)]
    pub overwrite: bool,
}

/// Options of every job.
#[derive(Args, Clone)]
pub struct JobArgs {
    /// A public model such as 3b or 7b-q4 (see `reseed models list`); a folder with vae.safetensors, dit.safetensors or
    /// dit.gguf, and pos_emb.pt, or the public names; or formula:tiny, formula:3b, formula:7b. Unless given nano, a small
    /// model inside this program.
    #[arg(long, alias = "dit_model", value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Multiply both sides by this.
    #[arg(long, value_name = "X", conflicts_with_all = ["resolution", "size"])]
    pub scale: Option<f64>,
    /// Shorter side of the result in pixels; 1080 where nothing else is asked for.
    #[arg(long, value_name = "PIXELS", conflicts_with = "size")]
    pub resolution: Option<u32>,
    /// Size of the result, whatever it does to the proportions.
    #[arg(long, value_parser = size, value_name = "WxH", conflicts_with = "max_resolution")]
    pub size: Option<Hw>,
    /// Longest side of the result in pixels.
    #[arg(long, alias = "max_resolution", value_name = "PIXELS")]
    pub max_resolution: Option<u32>,
    /// Seed of the noise that the model starts from.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Safetensors file with that noise: tensors noise0, noise1, ... one a batch, [L,16,h,w].
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub noise_file: Option<PathBuf>,
    /// Noise in what the model is shown of the input, from 0 to 1.
    #[arg(long, alias = "latent_noise_scale", value_name = "S", default_value_t = 0.0)]
    pub latent_noise: f32,
    /// How much of what the input holds the result is given back, from 0 to 1. What the model asks for unless given.
    #[arg(long, value_name = "X")]
    pub low_band: Option<f32>,
    /// How colours are corrected after the input's; lab unless given, and none for a model that asks for a low band.
    #[arg(long, alias = "color_correction", value_enum)]
    pub color: Option<ColorMode>,
    /// Spatial tiles of the autoencoder in pixels, compatible with the public implementations and approximate.
    #[arg(long, value_parser = plane, value_name = "HxW")]
    pub tile: Option<Hw>,
    /// Overlap of tiles in pixels; an eighth of the tile unless given.
    #[arg(long, value_parser = plane, value_name = "HxW", requires = "tile")]
    pub tile_overlap: Option<Hw>,
    /// Latent frames that the autoencoder takes at a time; the result is the same, more take more memory. Chosen by what
    /// is free unless given.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub slice: Option<u16>,
    /// Memory of the card that may be taken, such as 6G; what is free, less a margin, unless given. Where the model does
    /// not fit, its layers wait in the host's memory; the result is the same.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_vram: Option<usize>,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

impl JobArgs {
    /// The model that was asked for, or the one that is always there.
    pub fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(nano::NAME)
    }
}

/// Weights of the cross-fade.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverlapMode {
    Smooth,
    Reference,
}

/// How colours are corrected.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    Lab,
    Wavelet,
    #[value(alias = "wavelet_adaptive")]
    WaveletAdaptive,
    Hsv,
    Adain,
    None,
}
