//! Options of `reseed bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reseed::{Hw, Precision, Thw};

use super::upscale::{ColorMode, JobArgs};
use super::{ComputeArgs, Direction, RunArgs, memory, precision, size};

#[derive(Subcommand)]
pub enum Bench {
    /// Time the video VAE.
    Vae(BenchArgs),
    /// Time one step of the diffusion transformer.
    Dit(DitBenchArgs),
    /// Time a whole job with frames from memory.
    Upscale(Box<JobBenchArgs>),
    /// Time resizing and colour correction of finished frames.
    Color(ColorBenchArgs),
    /// Measure how close a model comes to downscaled photographs and clips, beside bicubic.
    Quality(QualityArgs),
    /// Measure how far the networks in every mode of --precision are from f32 on this machine.
    Accuracy(AccuracyArgs),
    /// Time a 3x3x3 convolution on one CPU core, beside the peak of that core.
    Conv(ConvBenchArgs),
}

impl Bench {
    pub fn prints_json(&self) -> bool {
        match self {
            Bench::Vae(args) => args.run.compute.json,
            Bench::Dit(args) => args.compute.json,
            Bench::Upscale(args) => args.job.compute.json,
            Bench::Color(args) => args.json,
            Bench::Quality(args) => args.compute.json,
            Bench::Accuracy(args) => args.compute.json,
            Bench::Conv(args) => args.json,
        }
    }
}

#[derive(Args)]
pub struct BenchArgs {
    /// Encoder or decoder. Default: both.
    pub direction: Option<Direction>,
    /// Size of the frames, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "128x128")]
    pub size: Hw,
    /// Number of frames.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: u32,
    /// Timed runs; the median is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// The VAE: a safetensors file, or formula:tiny, formula:full.
    #[arg(long, value_name = "FILE", default_value = "formula:full")]
    pub weights: String,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct DitBenchArgs {
    /// A model folder, or formula:tiny, formula:3b, formula:7b, each also with -q8, -q4, -fp8, -int8, -mxfp8 or -nvfp4.
    #[arg(long, value_name = "DIR", default_value = "formula:3b")]
    pub model: String,
    /// Layers of a formula model. Default: all.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub layers: Option<u8>,
    /// Size of the latent: frames, rows and columns; rows and columns are even.
    #[arg(long, value_parser = latent, value_name = "TxHxW", default_value = "1x16x16")]
    pub latent: Thw,
    /// Timed runs; the median is reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// GPU memory budget, such as 6G; layers that do not fit are streamed from host memory.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_vram: Option<usize>,
    /// Also compare the result with that of the CPU in f32.
    #[arg(long)]
    pub accuracy: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

#[derive(Args)]
pub struct JobBenchArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Size of the input, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "640x360")]
    pub from: Hw,
    /// Frames of a batch.
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Number of batches. The steady-state rate does not count the first window.
    #[arg(long, default_value_t = 5)]
    pub batches: u32,
}

#[derive(Args)]
pub struct ColorBenchArgs {
    /// Colour correction.
    #[arg(long, value_enum, default_value_t = ColorMode::Lab)]
    pub color: ColorMode,
    /// Size of the input, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "640x360")]
    pub from: Hw,
    /// Size of the output, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "1280x720")]
    pub size: Hw,
    /// Frames of a batch.
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: u32,
    /// Timed runs; the median is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Strength, 0 to 1: below 1, low frequencies of the input are blended back.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub strength: f32,
    /// The device: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// CPU threads. Default: one per core.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct AccuracyArgs {
    #[command(flatten)]
    pub compute: ComputeArgs,
}

#[derive(Args)]
pub struct ConvBenchArgs {
    /// Channels, in and out.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub channels: u16,
    /// Rows and columns.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub side: u16,
    /// Timed runs; the median is reported.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Type of the activations. Default: what suits the CPU.
    #[arg(long, value_parser = precision, value_name = "f32|f16|bf16")]
    pub dtype: Option<Precision>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct QualityArgs {
    /// A tar file or a folder with photographs in img/ and the frames of clips in vid/NAME/.
    #[arg(long, value_name = "TAR|DIR")]
    pub data: PathBuf,
    /// Compare with another program: a folder with its results for the inputs that --write-inputs writes. May be given
    /// several times.
    #[arg(long, value_name = "NAME=DIR", value_parser = results)]
    pub results: Vec<(String, PathBuf)>,
    /// Write the inputs of every case to this folder as PNG files, for another program, and measure nothing.
    #[arg(long, value_name = "DIR", conflicts_with = "results")]
    pub write_inputs: Option<PathBuf>,
    /// Use only so many photographs and so many clips.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub limit: Option<u16>,
    /// The model, as for `reseed upscale`. Default: nano.
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Strength, 0 to 1. Default: what the model asks for, or 0 if it asks for none.
    #[arg(long, value_name = "X")]
    pub strength: Option<f32>,
    /// Colour correction.
    #[arg(long, value_enum, default_value_t = ColorMode::None)]
    pub color: ColorMode,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

fn results(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => Ok((name.into(), folder.into())),
        _ => Err(format!("`{text}` is not NAME=DIR, such as other=results")),
    }
}

fn latent(text: &str) -> Result<Thw, String> {
    let sides: Vec<usize> = text.split(['x', 'X']).map_while(|side| side.parse().ok()).collect();
    match sides[..] {
        [t, h, w] if text.split(['x', 'X']).count() == 3 && sides.iter().all(|side| (1..=1 << 14).contains(side)) => {
            match h % 2 + w % 2 {
                0 => Ok(Thw::new(t, h, w)),
                _ => Err(format!("`{text}`: rows and columns of a latent must be even")),
            }
        }
        _ => Err(format!("`{text}` is not FRAMESxROWSxCOLUMNS, such as 5x90x160")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latents_are_frames_first_and_of_even_sides() {
        assert_eq!(latent("5x90x160"), Ok(Thw::new(5, 90, 160)));
        assert!(["5x90", "5x90x160x1", "5x91x160", "0x2x2", "5xax6"].iter().all(|text| latent(text).is_err()));
    }
}
