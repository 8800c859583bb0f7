//! Measures how close restored frames come to their originals, for the benchmark and the demo of the command line.

pub mod degrade;

use rayon::prelude::*;
use reseed_media::{Depth, Frame, Size, metrics};

use crate::error::Result;
use crate::observer::Observer;
use crate::report::Report;
use crate::session::Session;
use crate::settings::Settings;
use crate::size::{Geometry, Target};
use crate::view::View;

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

/// Frames through the VAE alone.
pub fn reconstruct(session: &Session, frames: &[Frame], depth: Depth, settings: &Settings) -> Result<Vec<Frame>> {
    session.reconstruct_frames(frames, depth, settings)
}

/// The low band that the model of a session asks for.
pub fn low_band(session: &Session) -> Result<f32> {
    session.low_band()
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
    /// Change between frames that the original does not have; zero is best.
    pub flicker: f64,
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
            flicker: 0.0,
        };
        let each: Vec<Figures> = results.par_iter().zip(originals).map(frame).collect();
        let steps = results.par_windows(2).zip(originals.par_windows(2));
        let steps: Vec<f64> = steps.map(|(a, b)| metrics::flicker([&a[0], &a[1]], [&b[0], &b[1]])).collect();
        Figures { flicker: steps.iter().sum::<f64>() / steps.len().max(1) as f64, ..Figures::mean(&each) }
    }

    /// The mean of several.
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
}
