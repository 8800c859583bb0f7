//! Pictures in memory through a model, and how near they come to their originals.

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use reseed::{Geometry, Networks, Progress, Report, Settings, Step, Target, Transformer, Upscaler, View};
use reseed_media::{Depth, Frame, Info, Sink, Size, Source, metrics};

use crate::args::{ComputeArgs, PlanArgs};
use crate::crew::Devices;
use crate::failure::Result;
use crate::model::Weights;
use crate::outline::JobPlanner;

/// A model's weights and the devices that it computes on.
pub struct Engine {
    pub weights: Weights,
    pub devices: Devices,
}

impl Engine {
    pub fn new(model: &str, compute: &ComputeArgs) -> Result<Engine> {
        let weights = Weights::open(model, None)?;
        let devices = Devices::new(compute, None, Some(&weights))?;
        Ok(Engine { weights, devices })
    }

    /// The networks, loaded and planned for results of a size, in batches of so many frames.
    pub fn ready(&self, size: Size, batch: usize) -> Result<Ready<'_>> {
        let target = Target::Exact(size);
        let plan = PlanArgs { tile: None, overlap: None, slice: None, max_vram: None };
        let geometry = Geometry::new(size, target, None)?;
        let (device, transformer) = (&self.devices.device, self.devices.transformer());
        let outline = JobPlanner { weights: &self.weights, device, transformer, plan, geometry, batch };
        let mut settings = Settings::default();
        let networks = outline.load(outline.choose()?, None, &mut settings)?.networks;
        let step = networks.transformer(&*transformer.ops);
        Ok(Ready { devices: &self.devices, networks, step, target, settings })
    }
}

/// Networks that are ready for results of one size.
pub struct Ready<'a> {
    devices: &'a Devices,
    networks: Networks,
    step: Transformer<'a>,
    target: Target,
    /// How the networks run.
    settings: Settings,
}

impl Ready<'_> {
    /// Restores frames of one clip, to a depth.
    pub fn restore(
        &self,
        frames: &[Frame],
        depth: Depth,
        settings: Settings,
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Frame>, Report)> {
        self.run(frames, depth, settings, &self.step, progress)
    }

    /// Frames through the autoencoder alone.
    pub fn reconstruct(&self, frames: &[Frame], depth: Depth, settings: Settings) -> Result<Vec<Frame>> {
        let step = |condition: &reseed::Latent, _: &reseed::Latent| Ok(condition.clone());
        Ok(self.run(frames, depth, settings, &step, &mut ())?.0)
    }

    fn run(
        &self,
        frames: &[Frame],
        depth: Depth,
        settings: Settings,
        step: &dyn Step,
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Frame>, Report)> {
        let (vae, turns) = (self.settings.vae.clone(), self.settings.turns);
        let settings = Settings { target: self.target, vae, turns, ..settings };
        let model = reseed::Model { vae: self.networks.vae(), step };
        let shelf = FrameCollector::default();
        let mut reel = Reel::new(frames, depth);
        let upscaler = Upscaler::new(&*self.devices.device.ops, model, settings);
        let upscaler = upscaler.encoding_on(&*self.devices.encoder().ops);
        let report = upscaler.run(&mut reel, Box::new(shelf.clone()), progress)?;
        let restored = std::mem::take(&mut *shelf.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((restored, report))
    }
}

/// Frames in memory as a source, of which results have a depth.
struct Reel<'a> {
    info: Info,
    frames: std::slice::Iter<'a, Frame>,
}

impl<'a> Reel<'a> {
    fn new(frames: &'a [Frame], depth: Depth) -> Reel<'a> {
        let (size, count) = (frames[0].size, Some(frames.len()));
        let info = Info { size, frames: count, depth, ..reseed_media::sample().info().clone() };
        Reel { info, frames: frames.iter() }
    }
}

impl Source for Reel<'_> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> reseed_media::Result<Option<Frame>> {
        Ok(self.frames.next().cloned())
    }
}

/// A sink that keeps its frames.
#[derive(Clone, Default)]
struct FrameCollector(Arc<Mutex<Vec<Frame>>>);

impl Sink for FrameCollector {
    fn write(&mut self, frame: &Frame) -> reseed_media::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(frame.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        Ok(())
    }
}

/// Frames resampled to a size by antialiased bicubic.
pub fn resized(frames: &[Frame], size: Size, depth: Depth) -> Result<Vec<Frame>> {
    let view = View::new(Geometry::new(frames[0].size, Target::Exact(size), None)?);
    let one = |frame: &Frame| {
        let unit: Vec<f32> = view.cropped(frame).iter().map(|value| 0.5 * value + 0.5).collect();
        Frame::from_unit(size, &unit, depth)
    };
    Ok(frames.iter().map(one).collect())
}

/// How near frames are to others; means over a clip.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// dB over RGB.
    pub psnr: f64,
    /// dB over luma.
    pub psnr_luma: f64,
    pub ssim: f64,
    /// Zero is best.
    pub gmsd: f64,
    /// Of a clip; zero is best.
    pub flicker: f64,
}

impl Figures {
    /// Of results that should have been these originals.
    pub fn of(results: &[Frame], originals: &[Frame]) -> Figures {
        // Identical frames have no finite PSNR; 100 dB is beyond what 16 bits can show.
        let frame = |(a, b): (&Frame, &Frame)| Figures {
            psnr: metrics::psnr(a, b).min(100.0),
            psnr_luma: metrics::psnr_luma(a, b).min(100.0),
            ssim: metrics::ssim(a, b),
            gmsd: metrics::gmsd(a, b),
            flicker: 0.0,
        };
        let each: Vec<Figures> = results.par_iter().zip(originals).map(frame).collect();
        let steps = results.par_windows(2).zip(originals.par_windows(2));
        let steps: Vec<f64> = steps.map(|(a, b)| metrics::flicker([&a[0], &a[1]], [&b[0], &b[1]])).collect();
        Figures { flicker: steps.iter().sum::<f64>() / steps.len().max(1) as f64, ..Figures::mean(&each) }
    }

    pub fn mean(each: &[Figures]) -> Figures {
        let mean = |of: fn(&Figures) -> f64| each.iter().map(of).sum::<f64>() / each.len().max(1) as f64;
        Figures {
            psnr: mean(|f| f.psnr),
            psnr_luma: mean(|f| f.psnr_luma),
            ssim: mean(|f| f.ssim),
            gmsd: mean(|f| f.gmsd),
            flicker: mean(|f| f.flicker),
        }
    }

    /// With the flicker of a clip.
    pub fn json(&self, moving: bool) -> serde_json::Value {
        let Figures { psnr, psnr_luma, ssim, gmsd, flicker } = *self;
        serde_json::json!({"psnr": psnr, "psnr_luma": psnr_luma, "ssim": ssim, "gmsd": gmsd,
                           "flicker": moving.then_some(flicker)})
    }
}
