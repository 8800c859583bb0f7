//! Options of `reseed upscale` and `reseed image`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use reseed::media::Size;
use reseed::{Batching, Color, Hw, NoiseSource, Overlap, Settings, Target, models};

use super::video::VideoArgs;
use super::{ComputeArgs, memory, plane, size, vae_settings};

#[derive(Args, Clone)]
pub struct UpscaleArgs {
    /// A video of any kind (- for y4m on stdin), a folder of videos, a folder of images in name order, or an image.
    pub input: PathBuf,
    /// Output: .mp4, .mkv, .mov, .webm or .y4m (- for stdout), a folder, or an image for an image.
    pub output: PathBuf,
    #[command(flatten)]
    pub job: JobArgs,
    #[command(flatten)]
    pub video: VideoArgs,
    /// Frames that go through the model together; best 4n+1. More are steadier and need more memory.
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Pad the last batch of a shot to the full number of frames.
    #[arg(long, alias = "uniform_batch_size")]
    pub uniform_batch_size: bool,
    /// Frames that neighbouring batches share. Default: 1, which keeps the sharpness even.
    #[arg(long, alias = "temporal_overlap", value_name = "N")]
    pub overlap: Option<u16>,
    /// How shared frames are joined: auto keeps one of the earlier batch and cross-fades more, smooth cross-fades,
    /// reference has the weights of the public pipeline.
    #[arg(long, value_enum, default_value_t = OverlapMode::Auto)]
    pub overlap_mode: OverlapMode,
    /// Mirrored frames before the first, removed from the output.
    #[arg(long, alias = "prepend_frames", value_name = "N", default_value_t = 0)]
    pub prepend_frames: u16,
    /// Let batches extend across cuts.
    #[arg(long)]
    pub no_shot_detection: bool,
    /// Continue an interrupted run with the same settings.
    #[arg(long)]
    pub resume: bool,
    /// Replace an existing output, or the work of an interrupted run.
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
}

impl UpscaleArgs {
    pub fn settings(&self) -> Settings {
        Settings {
            batching: batching(self.batch_size, self.overlap, self.uniform_batch_size),
            overlap: match self.overlap_mode {
                OverlapMode::Auto => Overlap::Auto,
                OverlapMode::Smooth => Overlap::Smooth,
                OverlapMode::Reference => Overlap::Reference,
            },
            detect_shots: !self.no_shot_detection,
            lead_in: self.prepend_frames.into(),
            ..self.job.settings()
        }
    }
}

#[derive(Args, Clone)]
pub struct ImageArgs {
    /// A PNG, JPEG, WebP or TIFF image.
    pub input: PathBuf,
    /// The image to write; its extension sets the format.
    pub output: PathBuf,
    #[command(flatten)]
    pub job: JobArgs,
    /// Replace an existing output.
    #[arg(long)]
    pub overwrite: bool,
}

/// Options of every job.
#[derive(Args, Clone)]
pub struct JobArgs {
    /// A public model such as 3b or 7b-q4 (see `reseed models list`); a folder with vae.safetensors, dit.safetensors or
    /// dit.gguf, and pos_emb.pt, or with the public file names; or formula:tiny, formula:3b, formula:7b. Default: nano,
    /// a small embedded model.
    #[arg(long, alias = "dit_model", value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Multiply both sides by this factor. Default: 2, unless --resolution or --size is given.
    #[arg(long, value_name = "X", conflicts_with_all = ["resolution", "size"])]
    pub scale: Option<f64>,
    /// Shorter side of the output in pixels, or 720p, 1080p, 4k, ...
    #[arg(long, value_name = "PIXELS", value_parser = short_side, conflicts_with = "size")]
    pub resolution: Option<usize>,
    /// Size of the output, whatever its proportions.
    #[arg(long, value_parser = size, value_name = "WxH", conflicts_with = "max_resolution")]
    pub size: Option<Hw>,
    /// Longest side of the output in pixels.
    #[arg(long, alias = "max_resolution", value_name = "PIXELS")]
    pub max_resolution: Option<u32>,
    /// Seed of the noise that the model starts from.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Safetensors file with that noise: tensors noise0, noise1, ... one per batch, [L,16,h,w].
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub noise_file: Option<PathBuf>,
    /// Strength of noise added to the encoded input, 0 to 1.
    #[arg(long, alias = "latent_noise_scale", value_name = "S", default_value_t = 0.0)]
    pub latent_noise: f32,
    /// Fraction of the input's low frequencies blended back into the result, 0 to 1. Default: what the model asks for.
    #[arg(long, value_name = "X")]
    pub low_band: Option<f32>,
    /// Colour correction towards the input. Default: lab, and none for a model that asks for a low band.
    #[arg(long, alias = "color_correction", value_enum)]
    pub color: Option<ColorMode>,
    /// Spatial tiles of the VAE in pixels, as in the public implementations; approximate.
    #[arg(long, value_parser = plane, value_name = "HxW")]
    pub tile: Option<Hw>,
    /// Overlap of tiles in pixels. Default: an eighth of the tile.
    #[arg(long, value_parser = plane, value_name = "HxW", requires = "tile")]
    pub tile_overlap: Option<Hw>,
    /// Latent frames per slice of the VAE; the result is the same, more need more memory. Default: chosen by the
    /// budget.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub slice: Option<u16>,
    /// GPU memory budget, such as 6G. Default: what is free, less a margin. A model that does not fit is streamed from
    /// host memory; the result is the same.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_vram: Option<usize>,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

impl JobArgs {
    /// The chosen model, or the embedded one.
    pub fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(models::EMBEDDED)
    }

    pub fn settings(&self) -> Settings {
        let target = match (self.scale, self.resolution, self.size) {
            (Some(scale), ..) => Target::Scale(scale),
            (_, Some(short), _) => Target::ShortSide(short),
            (.., Some(Hw { h, w })) => Target::Exact(Size { h, w }),
            (None, None, None) => Settings::default().target,
        };
        Settings {
            target,
            longest: self.max_resolution.map(|side| side as usize),
            noise: self.noise_file.clone().map_or(NoiseSource::Seed(self.seed), NoiseSource::File),
            latent_noise: self.latent_noise,
            low_band: self.low_band,
            color: self.color.map(Color::from),
            vae: vae_settings(self.tile, self.tile_overlap, self.slice),
            ..Settings::default()
        }
    }
}

/// Batches with a chosen overlap, or the default one where it fits.
pub fn batching(size: u16, overlap: Option<u16>, uniform: bool) -> Batching {
    let size = usize::from(size);
    let overlap = overlap.map_or(Settings::default().batching.overlap.min(size - 1), usize::from);
    Batching { size, overlap, uniform }
}

/// A shorter side in pixels, or a word for one.
fn short_side(text: &str) -> Result<usize, String> {
    match text.parse()? {
        Target::ShortSide(side) => Ok(side),
        _ => Err(format!("`{text}` is no shorter side; use pixels, or a word such as 720p, 1080p or 4k")),
    }
}

/// Weights of the cross-fade.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverlapMode {
    Auto,
    Smooth,
    Reference,
}

/// Colour correction.
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

impl From<ColorMode> for Color {
    fn from(mode: ColorMode) -> Color {
        match mode {
            ColorMode::Lab => Color::Lab,
            ColorMode::Wavelet => Color::Wavelet,
            ColorMode::WaveletAdaptive => Color::WaveletAdaptive,
            ColorMode::Hsv => Color::Hsv,
            ColorMode::Adain => Color::Adain,
            ColorMode::None => Color::None,
        }
    }
}
