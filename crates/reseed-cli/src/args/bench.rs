//! What can be typed behind `reseed bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reseed_ops::{Hw, Precision, Thw};

use super::upscale::{ColorMode, JobArgs};
use super::{ComputeArgs, Direction, RunArgs, memory, precision, size};

#[derive(Subcommand)]
pub enum Bench {
    /// Time the video autoencoder.
    Vae(BenchArgs),
    /// Time one step of the diffusion transformer.
    Dit(DitBenchArgs),
    /// Time a whole job, behind its first batch, with frames from memory.
    Upscale(Box<JobBenchArgs>),
    /// Time what the processor does with frames: resizing and the correction of colours.
    Color(ColorBenchArgs),
    /// Measure how near a model comes to photographs and clips that were made smaller, beside bicubic.
    Quality(QualityArgs),
    /// Time a 3x3x3 convolution on one core of the processor, beside what that core can do.
    Conv(ConvBenchArgs),
}

#[derive(Args)]
pub struct BenchArgs {
    /// Which half; both unless given.
    pub direction: Option<Direction>,
    /// Size of the pictures, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "128x128")]
    pub size: Hw,
    /// Number of pictures.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: u32,
    /// Timed runs; the median counts.
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
    /// A model folder, or formula:tiny, formula:3b, formula:7b; with -q8, -q4 or -fp8 behind it in few bits.
    #[arg(long, value_name = "DIR", default_value = "formula:3b")]
    pub model: String,
    /// So many layers of a formula's network; all unless given.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub layers: Option<u8>,
    /// Size of the latent: frames, rows and columns, the latter two even.
    #[arg(long, value_parser = latent, value_name = "TxHxW", default_value = "1x16x16")]
    pub latent: Thw,
    /// Timed runs; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Memory of the card that may be taken, such as 6G; layers that find no place come from the host's.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_vram: Option<usize>,
    /// Also compare the result with that of the processor in f32.
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
    /// Batches, the first of which is not counted.
    #[arg(long, default_value_t = 5)]
    pub batches: u32,
}

#[derive(Args)]
pub struct ColorBenchArgs {
    /// How colours are corrected.
    #[arg(long, value_enum, default_value_t = ColorMode::Lab)]
    pub color: ColorMode,
    /// Size of the input, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "640x360")]
    pub from: Hw,
    /// Size of the result, width x height.
    #[arg(long, value_parser = size, value_name = "WxH", default_value = "1280x720")]
    pub size: Hw,
    /// Frames of a batch.
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: u32,
    /// Timed runs; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Threads; all cores unless given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ConvBenchArgs {
    /// Channels, in and out.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub channels: u16,
    /// Rows and columns.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub side: u16,
    /// Timed runs; the median counts.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Type of the activations; what suits the processor unless given.
    #[arg(long, value_parser = precision, value_name = "f32|f16|bf16")]
    pub dtype: Option<Precision>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct QualityArgs {
    /// The pictures: a tar file or a folder with photographs in img/ and the frames of clips in vid/NAME/.
    #[arg(long, value_name = "TAR|DIR")]
    pub data: PathBuf,
    /// Only so many photographs and so many clips.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub limit: Option<u16>,
    /// The model, as for `reseed upscale`; nano unless given.
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Strength of the low band; what the model asks for, or 1 where it asks for none, unless given.
    #[arg(long, value_name = "X")]
    pub low_band: Option<f32>,
    /// How colours are corrected.
    #[arg(long, value_enum, default_value_t = ColorMode::None)]
    pub color: ColorMode,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

fn latent(text: &str) -> Result<Thw, String> {
    let sides: Vec<usize> = text.split(['x', 'X']).map_while(|side| side.parse().ok()).collect();
    match sides[..] {
        [t, h, w] if text.split(['x', 'X']).count() == 3 && sides.iter().all(|side| (1..=1 << 14).contains(side)) => {
            match h % 2 + w % 2 {
                0 => Ok(Thw::new(t, h, w)),
                _ => Err(format!("`{text}`: rows and columns of a latent are even")),
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
