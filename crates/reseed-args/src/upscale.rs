//! Options of `reseed upscale` and `reseed image`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use reseed::internals::AUTO;
use reseed::media::Size;
use reseed::{Batching, Color, Hw, NoiseSource, Overlap, Settings, Target, models};

use super::values::{Fraction, fraction};
use super::video::VideoArgs;
use super::{ComputeArgs, MEMORY, memory, plane, size, vae_settings};

/// Headings of the help.
const SIZE: &str = "Size";
const MODEL: &str = "Model and result";
const BATCHES: &str = "Batches";

#[derive(Args, Clone)]
pub struct UpscaleArgs {
    /// A video, an image, a folder of either, or - for y4m on stdin.
    pub input: PathBuf,
    /// .mp4, .mkv, .mov, .webm or .y4m, an image, a folder, or - for y4m on stdout.
    pub output: PathBuf,
    /// Print sizes, time, memory and disk space, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Continue an interrupted run with the same settings.
    #[arg(long)]
    pub resume: bool,
    /// Replace an existing output, or the work of an interrupted run.
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Exit with code 3 if the input is damaged; what can be read is still restored.
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub job: JobArgs,
    #[command(flatten)]
    pub video: VideoArgs,
    #[command(flatten)]
    pub batches: BatchArgs,
}

/// How a clip is split into batches.
#[derive(Args, Clone)]
pub struct BatchArgs {
    /// Frames that go through the model together; best 4n+1.
    #[arg(long, alias = "batch_size", value_name = "N", default_value_t = 5, help_heading = BATCHES)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_size: u16,
    /// Pad the last batch of a shot to the full number of frames.
    #[arg(long, alias = "uniform_batch_size", help_heading = BATCHES)]
    pub uniform_batch_size: bool,
    /// Frames that neighbouring batches share [default: 1]
    #[arg(long, alias = "temporal_overlap", value_name = "N", help_heading = BATCHES)]
    pub overlap: Option<u16>,
    /// auto keeps one shared frame and fades over more, smooth always
    /// fades, reference as the public pipeline does
    #[arg(long, value_enum, value_name = "MODE", default_value_t = OverlapMode::Auto, help_heading = BATCHES)]
    #[arg(hide_possible_values = true, verbatim_doc_comment)]
    pub overlap_mode: OverlapMode,
    /// Mirrored frames before the first, removed from the output.
    #[arg(long, alias = "prepend_frames", value_name = "N", default_value_t = 0, help_heading = BATCHES)]
    pub prepend_frames: u16,
    /// Let batches extend across cuts.
    #[arg(long, help_heading = BATCHES)]
    pub no_shot_detection: bool,
}

impl UpscaleArgs {
    pub fn settings(&self) -> Settings {
        self.batches.settings(&self.job)
    }
}

impl BatchArgs {
    /// The settings of a job on a clip.
    pub fn settings(&self, job: &JobArgs) -> Settings {
        Settings {
            batching: batching(self.batch_size, self.overlap, self.uniform_batch_size),
            overlap: match self.overlap_mode {
                OverlapMode::Auto => Overlap::Auto,
                OverlapMode::Smooth => Overlap::Smooth,
                OverlapMode::Reference => Overlap::Reference,
            },
            detect_shots: !self.no_shot_detection,
            lead_in: self.prepend_frames.into(),
            ..job.settings()
        }
    }
}

#[derive(Args, Clone)]
pub struct ImageArgs {
    /// An image: PNG, JPEG, WebP, TIFF, BMP, PNM or TGA; AVIF, HEIC and JPEG XL with ffmpeg.
    pub input: PathBuf,
    /// The image to write; its extension sets the format.
    pub output: PathBuf,
    /// Print sizes, time and memory, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Replace an existing output.
    #[arg(long)]
    pub overwrite: bool,
    /// Exit with code 3 if the input is damaged; what can be read is still restored.
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub job: JobArgs,
}

/// Options of every job.
#[derive(Args, Clone)]
pub struct JobArgs {
    /// A named set of settings, such as 4k or archive; `reseed config` lists
    /// them. Other options override it
    #[arg(long, value_name = "NAME", verbatim_doc_comment)]
    pub preset: Option<String>,
    /// Multiply both sides by this factor [default: 2]
    #[arg(long, value_name = "X", conflicts_with_all = ["resolution", "size"], help_heading = SIZE)]
    pub scale: Option<f64>,
    /// Shorter side of the output: pixels, or 720p, 1080p, 4k, ...
    #[arg(long, value_name = "PIXELS", value_parser = short_side, conflicts_with = "size", help_heading = SIZE)]
    pub resolution: Option<usize>,
    /// Size of the output, whatever its proportions.
    #[arg(long, value_parser = size, value_name = "WxH", conflicts_with = "max_resolution", help_heading = SIZE)]
    pub size: Option<Hw>,
    /// Longest side of the output in pixels.
    #[arg(long, alias = "max_resolution", value_name = "PIXELS", help_heading = SIZE)]
    pub max_resolution: Option<u32>,
    /// A model such as 3b (see `reseed models list`), a transformer file, or
    /// a folder with model files [default: nano, small and built in]
    #[arg(long, alias = "dit_model", value_name = "NAME|PATH", help_heading = MODEL, verbatim_doc_comment)]
    pub model: Option<String>,
    /// File of the VAE [default: beside the transformer or among the models]
    #[arg(long, alias = "vae_model", value_name = "FILE", help_heading = MODEL)]
    pub vae: Option<PathBuf>,
    /// File of the text embedding [default: found as the VAE is]
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub text_embedding: Option<PathBuf>,
    /// Match the colours of the input: lab, wavelet, wavelet-adaptive, hsv,
    /// adain or none [default: lab; none for nano]
    #[arg(long, alias = "color_correction", value_enum, value_name = "MODE", help_heading = MODEL)]
    #[arg(hide_possible_values = true, verbatim_doc_comment)]
    pub color: Option<ColorMode>,
    /// How far the result may leave the input, 0 to 1: 0 is most faithful,
    /// 1 cleans most; auto is what the model asks for, estimated from every
    /// frame by nano
    #[arg(long, value_name = "X|auto", value_parser = fraction, default_value = AUTO, help_heading = MODEL)]
    #[arg(verbatim_doc_comment)]
    pub strength: Fraction,
    /// Seed of the noise that the model starts from.
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = MODEL)]
    pub seed: u64,
    /// Safetensors file with that noise: noise0, noise1, ... one per batch.
    #[arg(long, value_name = "FILE", conflicts_with = "seed", help_heading = MODEL)]
    pub noise_file: Option<PathBuf>,
    /// Strength of noise added to the encoded input, 0 to 1.
    #[arg(long, alias = "latent_noise_scale", value_name = "S", default_value_t = 0.0, help_heading = MODEL)]
    pub latent_noise: f32,
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// GPU memory to use at most, such as 6G; the result is the same
    /// [default: what is free, less a margin]
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = MEMORY, verbatim_doc_comment)]
    pub max_vram: Option<usize>,
    /// Latent frames at a time in the VAE; the result is the same
    /// [default: chosen by the planner]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..), help_heading = MEMORY)]
    #[arg(verbatim_doc_comment)]
    pub slice: Option<u16>,
    /// Run the VAE in spatial tiles of this size in pixels; approximate.
    #[arg(long, value_parser = plane, value_name = "HxW", help_heading = MEMORY)]
    pub tile: Option<Hw>,
    /// Overlap of the tiles in pixels [default: an eighth of the tile]
    #[arg(long, value_parser = plane, value_name = "HxW", requires = "tile", help_heading = MEMORY)]
    pub tile_overlap: Option<Hw>,
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
            strength: self.strength.0,
            color: self.color.map(Color::from),
            vae: vae_settings(self.tile, self.tile_overlap, self.slice),
            ..Settings::default()
        }
    }
}

/// Batches with a chosen overlap, or the default one where it fits.
pub fn batching(size: u16, overlap: Option<u16>, uniform: bool) -> Batching {
    Batching::new(size.into(), overlap.map(usize::from), uniform)
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
