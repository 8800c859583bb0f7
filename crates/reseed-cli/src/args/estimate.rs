//! What can be typed behind `reseed estimate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reseed_media::video::Codec;
use reseed_ops::Hw;

use super::upscale::JobArgs;
use super::{Direction, RunArgs, size};

#[derive(Subcommand)]
pub enum Estimate {
    /// Memory and arithmetic of the video autoencoder.
    Vae(EstimateArgs),
    /// Time, memory and disk of a whole job.
    Upscale(Box<UpscaleEstimateArgs>),
}

#[derive(Args)]
pub struct EstimateArgs {
    /// Which half.
    pub direction: Direction,
    /// Size of the pictures, width x height.
    #[arg(long, value_parser = size, value_name = "WxH")]
    pub size: Hw,
    /// Number of pictures.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub frames: u32,
    /// The VAE: a safetensors file, or formula:tiny, formula:full.
    #[arg(long, value_name = "FILE", default_value = "formula:full")]
    pub weights: String,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct UpscaleEstimateArgs {
    /// What would be restored.
    pub input: PathBuf,
    /// Number of frames, where the input does not say.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub frames: Option<u32>,
    #[command(flatten)]
    pub job: JobArgs,
    /// Frames that go through the model together.
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Frames that a batch shares with the one before it.
    #[arg(long, alias = "temporal_overlap", value_name = "N", default_value_t = 0)]
    pub overlap: u16,
    /// What the output would be compressed with.
    #[arg(long, value_name = "CODEC")]
    pub codec: Option<Codec>,
    /// Its constant quality.
    #[arg(long, value_name = "N")]
    pub crf: Option<u32>,
}
