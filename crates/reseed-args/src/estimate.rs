//! Options of `reseed estimate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reseed::Hw;
use reseed::media::video::Codec;

use super::SEGMENTS;
use super::upscale::JobArgs;
use super::{Direction, RunArgs, size};

#[derive(Subcommand)]
pub enum Estimate {
    /// Memory and arithmetic of the video VAE.
    Vae(EstimateArgs),
    /// Time, memory and disk of a whole job.
    Upscale(Box<UpscaleEstimateArgs>),
}

#[derive(Args)]
pub struct EstimateArgs {
    /// Encoder or decoder.
    pub direction: Direction,
    /// Size of the frames, width x height.
    #[arg(long, value_parser = size, value_name = "WxH")]
    pub size: Hw,
    /// Number of frames.
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
    /// The input of the job.
    pub input: PathBuf,
    /// Number of frames, for an input of unknown length.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub frames: Option<u32>,
    #[command(flatten)]
    pub job: JobArgs,
    /// Frames that go through the model together.
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Frames that neighbouring batches share. Default: 1.
    #[arg(long, alias = "temporal_overlap", value_name = "N")]
    pub overlap: Option<u16>,
    /// Estimate a job in shards on so many machines like this one, too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub machines: Option<u32>,
    /// Segments of 120 frames in a shard.
    #[arg(long, value_name = "N", default_value_t = SEGMENTS, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    /// Codec of the output.
    #[arg(long, value_name = "CODEC")]
    pub codec: Option<Codec>,
    /// Constant quality of the codec.
    #[arg(long, value_name = "N")]
    pub crf: Option<u32>,
}
