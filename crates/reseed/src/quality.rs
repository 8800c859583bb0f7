//! Measures how close restored frames come to their originals, for the benchmark and the demo of the command line.

mod degrade;
mod inputs;
pub mod pan;
pub mod peer;
pub mod set;

use inputs::originals;
pub use inputs::{inputs, write_inputs};
use peer::Peer;
use rayon::prelude::*;
use reseed_media::{Depth, Frame, Size, metrics};
use set::Item;

use crate::batch::Batching;
use crate::color::Color;
use crate::error::Result;
use crate::low_band::{self, LowBand};
use crate::observer::Observer;
use crate::report::Report;
use crate::session::Session;
use crate::settings::Settings;
use crate::size::{Geometry, Target};
use crate::view::View;

/// Frames of a batch.
const BATCH: usize = 5;
/// Depth of results, so that rounding costs nothing.
const DEPTH: Depth = Depth::Sixteen;

/// Restores frames with results of another depth.
pub fn upscale(
    session: &Session,
    frames: &[Frame],
    depth: Depth,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<(Vec<Frame>, Report)> {
    session.upscale_to_depth(frames, depth, settings, observer)
}

/// Whether the model of a session asks for a low band.
pub fn asks_for_low_band(session: &Session) -> Result<bool> {
    Ok(session.low_band()?.is_some())
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

/// How close frames come to others; means over a clip.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// dB over RGB.
    pub psnr: f64,
    /// dB over luma.
    pub psnr_luma: f64,
    /// Structural similarity; one is best.
    pub ssim: f64,
    /// Gradient magnitude deviation; zero is best.
    pub gmsd: f64,
    /// Difference in the [amount of local detail](metrics::detail), in octaves; zero is best.
    pub detail: f64,
    /// Change between frames that the original does not have; zero is best.
    pub flicker: f64,
    /// Largest deviation of a frame's [sharpness](pan::pulse) from that of its neighbours, as a fraction; zero is best.
    pub pulse: f64,
}

impl Figures {
    /// Of results beside their originals.
    pub fn of(results: &[Frame], originals: &[Frame]) -> Figures {
        // Identical frames have no finite PSNR; 100 dB is more than 16 bits can show.
        let frame = |(a, b): (&Frame, &Frame)| Figures {
            psnr: metrics::psnr(a, b).min(100.0),
            psnr_luma: metrics::psnr_luma(a, b).min(100.0),
            ssim: metrics::ssim(a, b),
            gmsd: metrics::gmsd(a, b),
            detail: metrics::detail(a, b),
            flicker: 0.0,
            pulse: 0.0,
        };
        let each: Vec<Figures> = results.par_iter().zip(originals).map(frame).collect();
        let steps = results.par_windows(2).zip(originals.par_windows(2));
        let steps: Vec<f64> = steps.map(|(a, b)| metrics::flicker([&a[0], &a[1]], [&b[0], &b[1]])).collect();
        let flicker = steps.iter().sum::<f64>() / steps.len().max(1) as f64;
        let pulse = if results.len() > 1 { pan::pulse(&pan::relative_sharpness(results, originals)) } else { 0.0 };
        Figures { flicker, pulse, ..Figures::mean(&each) }
    }

    /// The mean of several.
    pub fn mean(each: &[Figures]) -> Figures {
        let mean = |of: fn(&Figures) -> f64| each.iter().map(of).sum::<f64>() / each.len().max(1) as f64;
        Figures {
            psnr: mean(|f| f.psnr),
            psnr_luma: mean(|f| f.psnr_luma),
            ssim: mean(|f| f.ssim),
            gmsd: mean(|f| f.gmsd),
            detail: mean(|f| f.detail),
            flicker: mean(|f| f.flicker),
            pulse: mean(|f| f.pulse),
        }
    }
}

/// What restores frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Bicubic resampling.
    Bicubic,
    /// The model.
    Model,
    /// The model and the low band of the input.
    WithLowBand,
    /// Another program, by its place among the peers.
    Peer(usize),
}

/// The measurement of clips and photographs with one model.
pub struct Measurement<'a> {
    /// The model.
    pub session: &'a Session,
    /// Strength, as in [`Settings::strength`]; what the model asks for unless given.
    pub strength: Option<f32>,
    /// Colour correction.
    pub color: Color,
    /// Other programs with results of the same inputs.
    pub peers: Vec<Peer>,
}

impl Measurement<'_> {
    /// Restores a photograph or a clip from every kind of input: the case, the method and its figures.
    pub fn run(&self, item: &Item) -> Result<Vec<(String, Method, Figures)>> {
        let originals = originals(item);
        let settings = self.settings(originals[0].size, originals.len());
        let reconstructed = self.session.reconstruct_frames(&originals, DEPTH, &settings)?;
        let mut rows = vec![("reconstruction".into(), Method::Model, Figures::of(&reconstructed, &originals))];
        for (case, inputs) in inputs(&originals)? {
            let figures = self.restore(&settings, &inputs, &originals)?;
            rows.extend(figures.into_iter().map(|(method, figures)| (case.clone(), method, figures)));
            for (i, peer) in self.peers.iter().enumerate() {
                if let Some(results) = peer.results(&case, item, &originals)? {
                    rows.push((case.clone(), Method::Peer(i), Figures::of(results, &originals)));
                }
            }
        }
        Ok(rows)
    }

    fn restore(&self, settings: &Settings, inputs: &[Frame], originals: &[Frame]) -> Result<[(Method, Figures); 3]> {
        let bicubic = resized(inputs, originals[0].size, DEPTH)?;
        let (restored, _) = upscale(self.session, inputs, DEPTH, settings, &mut ())?;
        let own = self.session.low_band()?;
        let blended = match own.is_limited() {
            // What is limited cannot be blended any more.
            true => {
                let settings = Settings { strength: self.strength, ..settings.clone() };
                upscale(self.session, inputs, DEPTH, &settings, &mut ())?.0
            }
            false => with_low_band(own.of_job(self.strength), &restored, inputs)?,
        };
        let results = [(Method::Bicubic, bicubic), (Method::Model, restored), (Method::WithLowBand, blended)];
        Ok(results.map(|(method, frames)| (method, Figures::of(&frames, originals))))
    }

    /// For results of a size.
    fn settings(&self, size: Size, frames: usize) -> Settings {
        let size_of_batch = BATCH.min(frames);
        let overlap = Settings::default().batching.overlap.min(size_of_batch - 1);
        let batching = Batching { size: size_of_batch, overlap, uniform: false };
        let (target, color, strength) = (Target::Exact(size), Some(self.color), Some(1.0));
        Settings { target, batching, color, strength, detect_shots: false, ..Settings::default() }
    }
}

/// Results with the low band of their inputs, as the pipeline makes them.
fn with_low_band(low_band: LowBand, restored: &[Frame], inputs: &[Frame]) -> Result<Vec<Frame>> {
    let size = restored[0].size;
    let geometry = Geometry::new(inputs[0].size, Target::Exact(size), None)?;
    let signed = |frame: &Frame| frame.to_unit().iter().map(|value| 2.0 * value - 1.0).collect();
    let mut frames: Vec<Vec<f32>> = restored.iter().map(signed).collect();
    low_band::apply(low_band, &mut frames, inputs, &geometry);
    let unit = |frame: &Vec<f32>| frame.iter().map(|value| 0.5 * value + 0.5).collect::<Vec<f32>>();
    Ok(frames.iter().map(|frame| Frame::from_unit(size, &unit(frame), DEPTH)).collect())
}
