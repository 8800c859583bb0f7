//! Frames through encoder and decoder, slice by slice, and the loss.

use std::cell::RefCell;
use std::collections::VecDeque;

use reseed_media::{Depth, Frame, Info, Samples, Sink, Size, Source, metrics};
use reseed_model::plan::{TileInput, padded_frames};
use reseed_model::{Coder, SliceData, Vae};
use reseed_ops::{Device, Hw, Pixels};

use super::extend::{Extended, crop};
use crate::devices::DeviceHandle;
use crate::error::{Error, Result};
use crate::observer::{Event, Observer};
use crate::planner::clip::{self, CoderClip};
use crate::settings::VaeSettings;

/// Frames that a clip of unknown length is planned for: more would not change the plan.
const UNKNOWN: usize = 33;

/// Encodes and decodes clips of any length.
pub struct Roundtrip<'a> {
    /// The VAE.
    pub vae: &'a Vae,
    /// The device that it is loaded on.
    pub device: &'a DeviceHandle,
    /// That device, or a wrapper of it, such as a profiler.
    pub ops: &'a dyn Device,
    /// Tiles and slices.
    pub settings: VaeSettings,
}

/// The loss, summed over frames.
#[derive(Default)]
pub struct Loss {
    /// Number of frames.
    pub frames: usize,
    psnr: f64,
    ssim: f64,
}

impl Loss {
    fn add(&mut self, before: &Frame, after: &Frame) {
        self.frames += 1;
        // Identical frames have no finite PSNR; 100 dB is more than 16 bits can show.
        self.psnr += metrics::psnr(before, after).min(100.0);
        self.ssim += metrics::ssim(before, after);
    }

    /// Mean PSNR and SSIM.
    pub fn mean(&self) -> (f64, f64) {
        (self.psnr / self.frames as f64, self.ssim / self.frames as f64)
    }
}

impl Roundtrip<'_> {
    /// Runs every frame of `source` to `sink`, which is not finished.
    pub fn run(&self, source: &mut dyn Source, sink: &mut dyn Sink, observer: &mut dyn Observer) -> Result<Loss> {
        let (vae, config, ops) = (self.vae, &self.vae.config, self.ops);
        let info: Info = source.info().clone();
        let originals = RefCell::new(VecDeque::new());
        let next = || -> Result<Option<Pixels>> {
            let Some(frame) = source.next().map_err(Error::Input)? else { return Ok(None) };
            let pixels = pixels(&frame, info.depth);
            originals.borrow_mut().push_back(frame);
            Ok(Some(pixels))
        };
        let plane = Hw::new(info.size.h, info.size.w);
        let mut extended = Extended::new(next, plane, config.spatial_factor(), config.temporal_factor());
        let padded = extended.padded();
        let latent = vae.encoder.plane_out(padded);
        let frames = padded_frames(info.frames.unwrap_or(UNKNOWN).max(1), config.temporal_factor());
        let latents = vae.encoder.frames_out(frames, true);
        let encode = CoderClip { coder: &vae.encoder, config, input: TileInput::Frames, plane: padded, frames };
        let decode =
            CoderClip { coder: &vae.decoder, config, input: TileInput::Latents, plane: latent, frames: latents };
        let plans = clip::reserve(self.device, &self.settings, &[encode, decode])?;
        let warnings = plans.iter().filter_map(|plan| plan.warning().cloned());
        warnings.for_each(|warning| observer.event(&Event::Warning(warning)));
        let mut encoder = plans[0].stream(ops, &vae.encoder, padded);
        let mut decoder = plans[1].stream(ops, &vae.decoder, latent);
        let step = plans[0].step();
        observer.event(&Event::Started { frames: info.frames, done: 0 });
        let (mut loss, mut decoded) = (Loss::default(), Pixels::default());
        let mut slice = extended.slice(step + 1)?;
        while !slice.is_empty() {
            if observer.cancelled() {
                return Err(Error::Cancelled);
            }
            let ahead = extended.slice(step)?;
            let last = ahead.is_empty();
            let moments = ops.download(&encoder.run(SliceData::Pixels(&slice), last)?)?;
            let means = moments.chunks_exact(2 * config.latent).flat_map(|m| &m[..config.latent]);
            let means: Vec<f32> = means.copied().collect();
            ops.start_download_pixels(&decoder.run(SliceData::Values(&means), last)?, slice.depth())?
                .wait(&mut decoded)?;
            for i in 0..decoded.len() / (padded.count() * config.image) {
                // Frames that only extend the clip have no original.
                let Some(before) = originals.borrow_mut().pop_front() else { break };
                let after = frame(&decoded, i, padded, info.size);
                sink.write(&after).map_err(Error::Output)?;
                loss.add(&before, &after);
                observer.event(&Event::Frames(1));
            }
            slice = ahead;
        }
        Ok(loss)
    }
}

/// The samples of a frame in the depth of its clip; images of a folder may have another depth. A device takes integer
/// codes.
fn pixels(frame: &Frame, depth: Depth) -> Pixels {
    match frame.samples.to_depth(depth) {
        Samples::U8(samples) => Pixels::U8(samples),
        Samples::U16(samples) => Pixels::U16(samples),
        floats => match floats.to_depth(Depth::Sixteen) {
            Samples::U16(samples) => Pixels::U16(samples),
            _ => unreachable!("converted to sixteen bits"),
        },
    }
}

/// Frame `i` of a slice without its padding.
fn frame(decoded: &Pixels, i: usize, padded: Hw, size: Size) -> Frame {
    let (plane, whole) = (Hw::new(size.h, size.w), 3 * padded.count());
    let samples = match decoded {
        Pixels::U8(codes) => Samples::U8(crop(&codes[i * whole..][..whole], padded, plane)),
        Pixels::U16(codes) => Samples::U16(crop(&codes[i * whole..][..whole], padded, plane)),
    };
    Frame { size, samples, alpha: None }
}
