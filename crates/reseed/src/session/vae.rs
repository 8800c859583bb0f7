//! The VAE of a session by itself.

use std::sync::Arc;

use reseed_media::{Depth, Frame, Size};
use reseed_model::Coder;
use reseed_model::plan::{TileInput, padded_frames, padded_plane};
use reseed_ops::{Hw, Thw};

use super::coder::CoderRun;
use super::extend::{Extended, crop};
use super::{IDENTITY, Session};
use crate::devices::{DeviceHandle, Devices};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::models;
use crate::observer::Observer;
use crate::planner::clip::CoderClip;
use crate::read::check_numbers;
use crate::settings::VaeSettings;

/// The VAE of a session: frames to latents and back. Loaded for as long as it lives.
///
/// ```
/// use reseed::Session;
///
/// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
/// let mut clip = reseed::media::sample();
/// let frames = vec![clip.next()?.expect("a frame")];
/// let vae = session.vae()?;
/// let encoded = vae.encode(&frames)?;
/// assert_eq!(encoded.latent.thw.to_string(), "1x8x12");
/// assert_eq!(vae.decode(&encoded)?[0].size, frames[0].size);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Vae {
    /// Dropped before its devices.
    pub(super) vae: reseed_model::Vae,
    pub(super) devices: Arc<Devices>,
    pub(super) settings: VaeSettings,
}

/// The latent of a clip, and what decoding needs to restore its length and size.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedClip {
    /// The mean of the latent's distribution, scaled as the transformer sees it.
    pub latent: Latent,
    /// Frames of the clip; the latent may hold more.
    pub frames: usize,
    /// Size of the frames; the latent may be larger.
    pub size: Size,
    /// Depth of the frames.
    pub depth: Depth,
}

impl Session {
    /// The VAE by itself.
    pub fn vae(&self) -> Result<Vae> {
        let known = || models::all().iter().map(|model| model.name).collect();
        let missing = || Error::UnknownModel { name: IDENTITY.into(), known: known() };
        let weights = self.weights.as_ref().ok_or_else(missing)?;
        let devices = self.first_lane()?;
        let coders = [&*devices.encoder().ops, &*devices.vae.ops];
        let vae = reseed_model::Vae::load_on(coders, weights.vae())?;
        Ok(Vae { vae, devices, settings: VaeSettings::default() })
    }
}

impl Vae {
    /// With these tiles and slices.
    pub fn with_settings(self, settings: VaeSettings) -> Vae {
        Vae { settings, ..self }
    }

    /// Encodes frames of one size.
    pub fn encode(&self, frames: &[Frame]) -> Result<EncodedClip> {
        self.encode_watched(frames, &mut ())
    }

    /// The same with an observer, which can cancel.
    pub fn encode_watched(&self, frames: &[Frame], observer: &mut dyn Observer) -> Result<EncodedClip> {
        frames.iter().enumerate().try_for_each(|(number, frame)| check_numbers(frame, number))?;
        let first = frames.first().ok_or(Error::NoFrames { path: None })?;
        let (config, encoder) = (&self.vae.config, &self.vae.encoder);
        let (size, plane) = (first.size, Hw::new(first.size.h, first.size.w));
        let mut rest = frames.iter();
        let next = || -> Result<Option<Vec<f32>>> {
            Ok(rest.next().map(|frame| frame.to_unit().iter().map(|value| 2.0 * value - 1.0).collect()))
        };
        let mut source_frame = Extended::new(next, plane, config.spatial_factor(), config.temporal_factor());
        let total = padded_frames(frames.len(), config.temporal_factor());
        let padded = padded_plane(plane, config.spatial_factor());
        let clip = CoderClip { coder: encoder, config, input: TileInput::Frames, plane: padded, frames: total };
        let mut values = Vec::new();
        self.run(
            self.devices.encoder(),
            clip,
            |count| source_frame.slice(count),
            |moments| {
                let means = moments.chunks_exact(2 * config.latent).flat_map(|moments| &moments[..config.latent]);
                values.extend(means.map(|mean| mean * config.scaling_factor));
                Ok(())
            },
            observer,
        )?;
        let latent = encoder.plane_out(padded);
        let thw = Thw::new(encoder.frames_out(total, true), latent.h, latent.w);
        Ok(EncodedClip { latent: Latent { thw, values }, frames: frames.len(), size, depth: first.depth() })
    }

    /// Decodes a clip.
    pub fn decode(&self, clip: &EncodedClip) -> Result<Vec<Frame>> {
        self.decode_watched(clip, &mut ())
    }

    /// The same with an observer, which can cancel.
    pub fn decode_watched(&self, clip: &EncodedClip, observer: &mut dyn Observer) -> Result<Vec<Frame>> {
        let (config, decoder) = (&self.vae.config, &self.vae.decoder);
        let Thw { t, h, w } = clip.latent.thw;
        let (plane, size) = (Hw::new(h, w), Hw::new(clip.size.h, clip.size.w));
        let (latent, padded) = (h * w * config.latent, decoder.plane_out(plane));
        let mut rest = clip.latent.values.as_slice();
        let next = |count: usize| -> Result<Vec<f32>> {
            let (slice, left) = rest.split_at((count * latent).min(rest.len()));
            rest = left;
            Ok(slice.iter().map(|value| value / config.scaling_factor).collect())
        };
        let coder = CoderClip { coder: decoder, config, input: TileInput::Latents, plane, frames: t };
        let mut frames = Vec::new();
        let write = |values: &[f32]| {
            let wanted = values.chunks_exact(padded.count() * config.image).take(clip.frames - frames.len());
            frames.extend(wanted.map(|frame| {
                let unit: Vec<f32> = crop(frame, padded, size).iter().map(|value| 0.5 * value + 0.5).collect();
                Frame::from_unit(clip.size, &unit, clip.depth)
            }));
            Ok(())
        };
        self.run(&self.devices.vae, coder, next, write, observer)?;
        Ok(frames)
    }

    fn run(
        &self,
        device: &DeviceHandle,
        clip: CoderClip,
        next: impl FnMut(usize) -> Result<Vec<f32>>,
        write: impl FnMut(&[f32]) -> Result<()>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        CoderRun { device, ops: &*device.ops, clip, settings: self.settings }.run(next, write, observer)
    }

    /// Channels of a latent, pixels per latent and frames per latent after the first.
    pub fn factors(&self) -> [usize; 3] {
        let config = &self.vae.config;
        [config.latent, config.spatial_factor(), config.temporal_factor()]
    }
}
