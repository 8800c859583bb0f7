//! What can be typed.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments are the help texts, where brackets are shapes")]

pub mod bench;
pub mod estimate;
pub mod models;
pub mod upscale;
pub mod video;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use reseed_ops::{Hw, Precision};

pub use bench::{Bench, BenchArgs};
pub use estimate::{Estimate, EstimateArgs};
pub use upscale::{ImageArgs, JobArgs, UpscaleArgs};

/// Restores and upscales video with SeedVR2-family models.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the video autoencoder by itself.
    #[command(subcommand)]
    Vae(VaeCommand),
    /// Say what a run would need, before it starts.
    #[command(subcommand)]
    Estimate(Estimate),
    /// Measure this machine.
    #[command(subcommand)]
    Bench(Bench),
    /// Restore and upscale a video, a folder of videos or of images, or an image.
    Upscale(Box<UpscaleArgs>),
    /// Restore and upscale one image.
    Image(Box<ImageArgs>),
    /// Find, download and check the public models.
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Upscale an embedded clip and an embedded photograph with the embedded model, beside bicubic and the originals.
    Demo(DemoArgs),
    /// Show what this machine offers.
    Doctor,
}

#[derive(Subcommand)]
pub enum VaeCommand {
    /// Pictures [T,3,H,W] in [-1,1] to moments [L,32,H/8,W/8]: mean, then log-variance.
    Encode(TensorArgs),
    /// Latents [L,16,h,w], or moments, to pictures [T,3,8h,8w].
    Decode(TensorArgs),
    /// Encode and decode an image, a y4m video or a folder of images, and measure what is lost.
    Roundtrip(RoundtripArgs),
}

/// Which half of the autoencoder.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    Encode,
    Decode,
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
    /// What to write, of the same kind.
    pub output: PathBuf,
    /// The VAE: a safetensors file such as ema_vae_fp16.safetensors, or formula:tiny, formula:full.
    #[arg(long, value_name = "FILE")]
    pub weights: String,
    #[command(flatten)]
    pub run: RunArgs,
}

/// A card where there is one, and else the processor.
pub const AUTO: &str = "auto";

#[derive(Args, Clone)]
pub struct DemoArgs {
    /// Folder that the results go to.
    #[arg(default_value = "reseed-demo")]
    pub output: PathBuf,
    /// Where to compute: cpu, cuda or cuda:N; auto is a card where there is one, and else the processor.
    #[arg(long, default_value = AUTO, value_parser = device)]
    pub device: String,
    /// Type of the activations; what suits the device unless given.
    #[arg(long, value_parser = precision, value_name = "f32|tf32|f16|bf16")]
    pub dtype: Option<Precision>,
    /// Threads; all cores unless given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// One JSON object a line on stdout instead of text.
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
    /// Where to compute: cpu, cuda or cuda:N; auto is a card where there is one, and else the processor.
    #[arg(long, alias = "cuda_device", default_value = AUTO, value_parser = device)]
    pub device: String,
    /// Type of the activations; sums are always f32. Unless given: f16 on cuda, and bf16 where values leave the range of
    /// f16; bf16 on a cpu with AMX, for nano f32 in its decoder; f32 on any other.
    #[arg(long, value_parser = precision, value_name = "f32|tf32|f16|bf16")]
    pub dtype: Option<Precision>,
    /// Threads; all cores unless given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// One JSON object a line on stdout instead of text.
    #[arg(long)]
    pub json: bool,
    /// Time per op and per stage at the end.
    #[arg(long)]
    pub profile: bool,
    /// On a card that has cuBLASLt: on measures it against Reseed's own kernel for every linear layer that is new, and keeps
    /// the faster one in a record; off goes by the record and measures nothing.
    #[arg(long, action = ArgAction::Set, value_parser = switch, value_name = "off|on", default_value = "off")]
    pub tune: bool,
}

#[derive(Args, Clone)]
pub struct PlanArgs {
    /// Spatial tiles in pixels, compatible with the public implementations; off unless given, and approximate.
    #[arg(long, value_parser = plane, value_name = "HxW")]
    pub tile: Option<Hw>,
    /// Overlap of tiles in pixels; an eighth of the tile unless given.
    #[arg(long, value_parser = plane, value_name = "HxW", requires = "tile")]
    pub overlap: Option<Hw>,
    /// Latent frames a slice; the result is the same, long slices take more memory. Chosen by the budget unless given.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub slice: Option<u16>,
    /// Memory of the card that may be taken, such as 6G; what is free, less a margin, unless given.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_vram: Option<usize>,
}

/// A bare number is that of a card.
fn device(text: &str) -> Result<String, String> {
    let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Ok(if number { format!("cuda:{text}") } else { text.to_owned() })
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}` is not off or on")),
    }
}

fn pair(text: &str, what: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once(['x', 'X']).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers.ok_or_else(|| format!("`{text}` is not {what}, such as 512x512"))
}

pub(crate) fn plane(text: &str) -> Result<Hw, String> {
    pair(text, "HEIGHTxWIDTH").map(|(h, w)| Hw::new(h, w))
}

pub(crate) fn size(text: &str) -> Result<Hw, String> {
    match pair(text, "WIDTHxHEIGHT")? {
        (w, h) if w > 0 && h > 0 && w <= 1 << 16 && h <= 1 << 16 => Ok(Hw::new(h, w)),
        _ => Err(format!("`{text}`: sides are between 1 and 65536")),
    }
}

pub(crate) fn memory(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a size such as 6G, 7.5G or 900M");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(wrong()),
    };
    let count: f64 = digits.parse().map_err(|_| wrong())?;
    match count * (1u64 << shift) as f64 {
        bytes if bytes >= 1.0 && bytes < (1u64 << 50) as f64 => Ok(bytes as usize),
        _ => Err(wrong()),
    }
}

pub(crate) fn precision(text: &str) -> Result<Precision, String> {
    match text {
        "f32" => Ok(Precision::F32),
        "tf32" => Ok(Precision::Tf32),
        "f16" => Ok(Precision::F16),
        "bf16" => Ok(Precision::Bf16),
        _ => Err(format!("`{text}` is not f32, tf32, f16 or bf16")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn memory_is_written_as_people_write_it() {
        let sizes = ["6G", "6GiB", "6gb", "7.5g", "900M", "4096"].map(memory);
        assert_eq!(sizes, [6 << 30, 6 << 30, 6 << 30, 15 << 29, 900 << 20, 4096].map(Ok));
        assert!(["", "G", "6T", "-1G", "0", "six"].iter().all(|text| memory(text).is_err()));
    }

    #[test]
    fn tiles_are_height_first_and_sizes_width_first() {
        assert_eq!(plane("64x96"), Ok(Hw::new(64, 96)));
        assert_eq!(size("1280x720"), Ok(Hw::new(720, 1280)));
        assert!(plane("64").is_err() && plane("64x").is_err() && size("0x5").is_err());
    }
}
