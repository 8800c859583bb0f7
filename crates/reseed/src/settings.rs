//! What a user can choose.

use reseed_media::Info;
use reseed_model::plan::{CachePlan, Tiling};

use crate::alpha::AlphaRange;
use crate::batch::Batching;
use crate::color::Color;
use crate::error::Result;
use crate::join::Overlap;
use crate::noise::Noise;
use crate::size::{Geometry, Target};

/// What a job shall do. The defaults are those of the public pipeline, but for the cross-fade and for shots.
pub struct Settings {
    /// The size of the result.
    pub target: Target,
    /// The longest side of the result.
    pub longest: Option<usize>,
    /// How shots are cut into batches.
    pub batching: Batching,
    /// How batches that share frames are joined.
    pub overlap: Overlap,
    /// Whether a cut starts a new batch.
    pub detect_shots: bool,
    /// Mirrored frames before the clip's first, taken off the result.
    pub lead_in: usize,
    /// What the transformer starts from.
    pub noise: Noise,
    /// Noise in what the transformer is shown of the input, from 0 to 1.
    pub latent_noise: f32,
    /// How much of what the input holds the result is given back, from 0 to 1, before its colours are corrected.
    pub low_band: f32,
    /// How colours are corrected.
    pub color: Color,
    /// How alpha takes the restored picture.
    pub alpha_range: AlphaRange,
    /// How the VAE computes.
    pub vae: VaePlan,
    /// How the networks take turns.
    pub turns: WindowPlan,
}

/// How the networks take turns on the device. Whatever it says, the result is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    /// Batches that one network sees before the next one has its turn. Their frames and latents wait on the host.
    pub window: usize,
    /// Layers of the transformer that come for its turn, of those that wait in the host's memory.
    pub layers: usize,
}

/// How the VAE computes; all but tiles gives the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaePlan {
    /// Latent frames a slice.
    pub slice: usize,
    /// What the encoder keeps where between slices.
    pub encode: CachePlan,
    /// The same of the decoder.
    pub decode: CachePlan,
    /// The encoder's spatial tiles, approximate.
    pub encode_tiling: Option<Tiling>,
    /// The decoder's.
    pub decode_tiling: Option<Tiling>,
    /// Tiles that run at the same time.
    pub workers: usize,
}

impl Settings {
    /// The sizes of a job on this input.
    pub fn geometry(&self, input: &Info) -> Result<Geometry> {
        Geometry::new(input.size, self.target, self.longest)
    }

    /// Whether frames of this input that no network sees come out as they went in.
    pub(crate) fn hands_on(&self, input: &Info) -> bool {
        let resized = self.geometry(input).is_ok_and(|geometry| !geometry.steps.is_empty());
        !resized && !input.alpha && self.batching.shared() == 0 && self.color == Color::None
    }

    /// What the result of an input will be, for the sink to be created with.
    pub fn output(&self, input: &Info) -> Result<Info> {
        Ok(Info { size: self.geometry(input)?.output, ..input.clone() })
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            target: Target::ShortSide(1080),
            longest: None,
            batching: Batching { size: 5, overlap: 0, uniform: false },
            overlap: Overlap::default(),
            detect_shots: true,
            lead_in: 0,
            noise: Noise::Seed(42),
            latent_noise: 0.0,
            low_band: 0.0,
            color: Color::default(),
            alpha_range: AlphaRange::default(),
            vae: VaePlan {
                slice: 1,
                encode: CachePlan::default(),
                decode: CachePlan::default(),
                encode_tiling: None,
                decode_tiling: None,
                workers: 1,
            },
            turns: WindowPlan { window: 1, layers: 0 },
        }
    }
}
