//! The encoder or the decoder alone over a clip of any length.

use std::cell::Cell;

use reseed_model::plan::TileInput;
use reseed_model::weights::Source;
use reseed_model::{Coder, Config, Vae};
use reseed_ops::PendingDownload;

use reseed_ops::Device;

use crate::devices::DeviceHandle;
use crate::error::{Error, Result};
use crate::observer::{Event, Observer};
use crate::planner::clip::{self, CoderClip, Direction};
use crate::settings::VaeSettings;

/// Loads the encoder or the decoder of a VAE alone.
pub fn load_coder(ops: &dyn Device, source: &dyn Source, direction: Direction) -> Result<(Config, Box<dyn Coder>)> {
    Ok(match direction {
        Direction::Encode => {
            let (config, encoder) = Vae::load_encoder(ops, source)?;
            (config, Box::new(encoder))
        }
        Direction::Decode => {
            let (config, decoder) = Vae::load_decoder(ops, source)?;
            (config, Box::new(decoder))
        }
    })
}

/// Runs the encoder or the decoder over a clip, slice by slice.
pub struct CoderRun<'a> {
    /// The device that the coder is loaded on.
    pub device: &'a DeviceHandle,
    /// That device, or a wrapper of it, such as a profiler.
    pub ops: &'a dyn Device,
    /// The coder and the size of the clip.
    pub clip: CoderClip<'a>,
    /// Tiles and slices.
    pub settings: VaeSettings,
}

impl CoderRun<'_> {
    /// Reads values with `next`, which gets a number of frames, until it has none, and gives results to `write`. The
    /// observer hears of frames, in pixels, not latents.
    pub fn run(
        &self,
        mut next: impl FnMut(usize) -> Result<Vec<f32>>,
        mut write: impl FnMut(&[f32]) -> Result<()>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let CoderClip { coder, input, plane, .. } = self.clip;
        let plans = clip::reserve(self.device, &self.settings, &[self.clip])?;
        let warnings = plans.iter().filter_map(|plan| plan.warning().cloned());
        warnings.for_each(|warning| observer.event(&Event::Warning(warning)));
        let mut plan = plans.into_iter().next().expect("a plan for the clip");
        let (mut stream, step) = (plan.stream(self.ops, coder, plane), plan.step());
        let total =
            if input == TileInput::Frames { self.clip.frames } else { coder.frames_out(self.clip.frames, true) };
        observer.event(&Event::Started { frames: Some(total), done: 0 });
        let replanned = Cell::new(None);
        let mut smaller = || {
            let caches = clip::shrink(self.device, &self.settings, &self.clip, &mut plan);
            replanned.set(caches.is_some().then(|| plan.bytes()));
            caches
        };
        let mut slice = next(step + 1)?;
        let mut first = true;
        // The result of a slice is downloaded and written while the next one runs.
        let mut values = Vec::new();
        let mut running: Option<(Box<dyn PendingDownload>, usize)> = None;
        while !slice.is_empty() {
            if observer.cancelled() {
                return Err(Error::Cancelled);
            }
            let ahead = next(step)?;
            let frames = slice.len() / (plane.count() * coder.channels_in());
            let frames = if input == TileInput::Frames { frames } else { coder.frames_out(frames, first) };
            // Another process may allocate a GPU's memory; the first slices are held to start again with less.
            let started = match self.device.gpu {
                Some(_) => stream.start_or_replan(&slice, ahead.is_empty(), &mut smaller),
                None => stream.start(&slice, ahead.is_empty()),
            };
            let started = (started?, frames);
            if let Some(bytes) = replanned.take() {
                observer.event(&Event::Replanned { device: self.device.ops.name(), bytes });
            }
            if let Some(done) = running.replace(started) {
                finish(done, &mut values, &mut write, observer)?;
            }
            slice = ahead;
            first = false;
        }
        running.map_or(Ok(()), |done| finish(done, &mut values, &mut write, observer))
    }
}

fn finish(
    (result, frames): (Box<dyn PendingDownload>, usize),
    values: &mut Vec<f32>,
    write: &mut impl FnMut(&[f32]) -> Result<()>,
    observer: &mut dyn Observer,
) -> Result<()> {
    result.wait(values)?;
    write(values)?;
    observer.event(&Event::Frames(frames));
    Ok(())
}
