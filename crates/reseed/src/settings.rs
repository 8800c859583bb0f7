//! What a user chooses.

use std::path::PathBuf;

use reseed_media::Info;
use reseed_model::plan::Tiling;
use reseed_ops::Hw;

use crate::alpha::AlphaRange;
use crate::batch::Batching;
use crate::color::Color;
use crate::error::{Error, Result};
use crate::join::Overlap;
use crate::noise::{Noise, Seeded};
use crate::size::{Geometry, Target};

/// Pixels per latent of every VAE of the family.
const PIXELS_PER_LATENT: usize = 8;

/// What a user chooses for a job. The defaults are those of the public pipeline, except for the size, the overlap, the
/// cross-fade and shots.
///
/// What the planner decides, such as slices and the place of weights, is in a [`JobPlan`](crate::JobPlan).
///
/// ```
/// use reseed::{Color, Settings, Target};
///
/// let settings = Settings { target: Target::Scale(2.0), color: Some(Color::Wavelet), ..Settings::default() };
/// let output = settings.output(reseed::media::sample().info())?;
/// assert_eq!(output.size.to_string(), "192x128");
/// # Ok::<(), reseed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Size of the output.
    pub target: Target,
    /// Longest side of the output in pixels.
    pub longest: Option<usize>,
    /// Whether odd sides of the output are cropped by one pixel, as 4:2:0 video needs; an exact target is never
    /// cropped. A [`Job`](crate::Job) sets it where its output needs it.
    pub even_sides: bool,
    /// How shots are cut into batches.
    pub batching: Batching,
    /// How batches that share frames are cross-faded.
    pub overlap: Overlap,
    /// Whether a cut starts a new batch.
    pub detect_shots: bool,
    /// Mirrored frames before the first, removed from the output.
    pub lead_in: usize,
    /// The noise that the transformer starts from.
    pub noise: NoiseSource,
    /// Strength of the noise in the condition, 0 to 1.
    pub latent_noise: f32,
    /// How far the result may leave the input, 0 to 1: at 1 all frequencies come from the networks, at 0 those that the
    /// input has come from the input. What the model asks for unless given, which may be an estimate for every frame.
    pub strength: Option<f32>,
    /// Colour correction; unless given [`Color::Lab`], and none for a model that asks for a low band.
    pub color: Option<Color>,
    /// The value range that the alpha channel assumes for restored frames.
    pub alpha_range: AlphaRange,
    /// Tiles and slices of the VAE.
    pub vae: VaeSettings,
}

/// What a user chooses for the VAE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VaeSettings {
    /// Spatial tiles as in the public implementations, which are approximate.
    pub tiling: Option<Tiling>,
    /// Latent frames per slice; chosen by the budget unless given. The result is the same.
    pub slice: Option<usize>,
}

impl VaeSettings {
    /// Tiles of this size in pixels, with an overlap or an eighth of their sides.
    pub fn tiled(tile: Hw, overlap: Option<Hw>) -> VaeSettings {
        let overlap = overlap.unwrap_or(Hw::new(tile.h / 8, tile.w / 8));
        VaeSettings { tiling: Some(Tiling { tile, overlap }), slice: None }
    }

    /// The tiles, unless they cannot be laid with `factor` pixels per latent.
    pub(crate) fn checked_tiling(&self, factor: usize) -> Result<Option<Tiling>> {
        let Some(Tiling { tile, overlap }) = self.tiling else { return Ok(None) };
        if tile.h < factor || tile.w < factor {
            return Err(Error::TileTooSmall { tile, least: factor });
        }
        if overlap.h >= tile.h || overlap.w >= tile.w {
            return Err(Error::TileOverlap { overlap, tile });
        }
        Ok(self.tiling)
    }
}

/// Where the noise of a job comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoiseSource {
    /// Drawn from this seed.
    Seed(u64),
    /// Tensors `noise0`, `noise1`, ... of a safetensors file, `[L, C, h, w]`, one per batch.
    File(PathBuf),
}

impl NoiseSource {
    pub(crate) fn open(&self) -> Result<Noise> {
        match self {
            NoiseSource::Seed(seed) => Ok(Noise::Seed(Seeded::new(*seed))),
            NoiseSource::File(path) => Noise::open(path),
        }
    }
}

impl Settings {
    /// How a clip is split with networks or without: without them, all batches have the same frames.
    pub(crate) fn batching_with(&self, networks: bool) -> Batching {
        let overlap = if networks { self.batching.overlap } else { 0 };
        Batching { overlap, ..self.batching }
    }

    /// The sizes of a job on this input.
    pub fn geometry(&self, input: &Info) -> Result<Geometry> {
        let geometry = Geometry::new(input.size, self.target, self.longest)?;
        match self.target {
            Target::ShortSide(_) | Target::Scale(_) if self.even_sides => geometry.even(),
            _ => Ok(geometry),
        }
    }

    /// The output for an input, to create a sink with.
    pub fn output(&self, input: &Info) -> Result<Info> {
        Ok(Info { size: self.geometry(input)?.output, ..input.clone() })
    }

    /// An error where a setting is out of its range or contradicts another.
    pub fn check(&self) -> Result<()> {
        let Batching { size, overlap, .. } = self.batching;
        if overlap >= size {
            return Err(Error::OverlapTooLong { overlap, batch: size });
        }
        let fractions = [("latent noise", self.latent_noise), ("strength", self.strength.unwrap_or_default())];
        if let Some((setting, value)) = fractions.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return Err(Error::OutOfUnit { setting, value });
        }
        self.vae.checked_tiling(PIXELS_PER_LATENT).map(drop)
    }

    /// The colour correction in force.
    pub(crate) fn color(&self) -> Color {
        self.color.unwrap_or_default()
    }

    /// Whether frames that no network sees leave as they came.
    pub(crate) fn hands_on(&self, input: &Info) -> bool {
        let resized = self.geometry(input).is_ok_and(|geometry| !geometry.steps.is_empty());
        !resized && !input.alpha && self.batching.shared() == 0 && self.color() == Color::None
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            target: Target::Scale(2.0),
            longest: None,
            even_sides: false,
            batching: Batching::default(),
            overlap: Overlap::default(),
            detect_shots: true,
            lead_in: 0,
            noise: NoiseSource::Seed(42),
            latent_noise: 0.0,
            strength: None,
            color: None,
            alpha_range: AlphaRange::default(),
            vae: VaeSettings::default(),
        }
    }
}
