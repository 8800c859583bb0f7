//! Finishes the frames of a slice: low band, alpha, colour transfer and the conversion to samples. The host and a
//! device give the same frames.

use std::sync::Arc;

use rayon::prelude::*;
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::{ColorTransfer, FrameOps, FrameSpec, Hw, Pixels};

use crate::alpha;
use crate::color::Color;
use crate::low_band::{self, Strength};
use crate::settings::Settings;
use crate::view::{BLACK, View, WHITE};

/// Finishes frames.
pub struct Finisher<'a> {
    settings: &'a Settings,
    view: &'a View,
    depth: Depth,
    low_band: Strength<'a>,
    device: Option<&'a dyn FrameOps>,
}

/// The work of a job on its frames, for a device; `None` where there is none or no device does it: alpha and floats are
/// the host's.
pub fn frame_spec(
    settings: &Settings,
    low_band: Strength,
    view: &View,
    (depth, alpha): (Depth, bool),
) -> Option<FrameSpec> {
    let depth = match depth {
        Depth::Eight => reseed_ops::Depth::Eight,
        Depth::Sixteen => reseed_ops::Depth::Sixteen,
        Depth::Float => return None,
    };
    let color = match settings.color() {
        Color::Lab => ColorTransfer::Lab,
        Color::Wavelet => ColorTransfer::Wavelet,
        Color::WaveletAdaptive => ColorTransfer::WaveletAdaptive,
        Color::Hsv => ColorTransfer::Hsv,
        Color::Adain => ColorTransfer::Adain,
        Color::None => ColorTransfer::None,
    };
    let low_band = low_band::resizes(low_band, view.geometry());
    if alpha || color == ColorTransfer::None && low_band.is_none() {
        return None;
    }
    let [input, output] = [view.geometry().input, view.geometry().output].map(|Size { h, w }| Hw::new(h, w));
    Some(FrameSpec { frames: settings.batching.size, input, steps: view.resizes(), output, depth, low_band, color })
}

impl<'a> Finisher<'a> {
    /// On the host, to samples of this depth. The low band is that of the settings.
    pub fn new(settings: &'a Settings, view: &'a View, depth: Depth) -> Finisher<'a> {
        let low_band = Strength::Fixed(settings.low_band.unwrap_or_default());
        Finisher { settings, view, depth, low_band, device: None }
    }

    /// With another strength of the low band.
    pub fn with_low_band(self, low_band: Strength<'a>) -> Finisher<'a> {
        Finisher { low_band, ..self }
    }

    /// On a device that does the work of [`frame_spec`].
    pub fn on(self, device: Option<&'a dyn FrameOps>) -> Finisher<'a> {
        Finisher { device, ..self }
    }

    /// Finishes the frames of a slice, which have values `[H, W, 3]`. Without frames, the inputs pass through.
    pub fn run(&mut self, frames: Vec<Vec<f32>>, inputs: Vec<Arc<Frame>>) -> Vec<Frame> {
        if frames.is_empty() {
            return inputs.into_iter().map(|frame| self.pass_through(frame)).collect();
        }
        let Some(results) = self.on_device(&frames, &inputs) else { return self.on_host(frames, inputs) };
        frames.into_iter().for_each(|frame| self.view.pixel_pool().recycle(frame));
        self.recycle(inputs);
        results
    }

    /// The device's result; `None` where the host must do the work. After an error, the host does the rest too.
    fn on_device(&mut self, frames: &[Vec<f32>], inputs: &[Arc<Frame>]) -> Option<Vec<Frame>> {
        let device = self.device?;
        if !inputs.iter().all(|input| input.alpha.is_none() && input.depth() == self.depth) {
            return None;
        }
        let codes: Vec<&[u8]> = inputs.iter().map(|input| input.samples.as_bytes()).collect();
        let strengths = low_band::strengths(self.low_band, inputs, self.view.geometry());
        let mut results: Vec<Pixels> = frames.iter().map(|frame| self.free_pixels(frame.len())).collect();
        if let Err(error) = device.finish(frames, &codes, &strengths, &mut results) {
            tracing::warn!(%error, "frames are finished by the CPU from here on");
            self.device = None;
            return None;
        }
        let size = self.view.geometry().output;
        Some(results.into_iter().map(|pixels| Frame { size, samples: samples(pixels), alpha: None }).collect())
    }

    /// Memory for a frame of codes.
    fn free_pixels(&self, count: usize) -> Pixels {
        match self.view.sample_pool().find(self.depth, count) {
            Some(Samples::U8(codes)) => Pixels::U8(codes),
            Some(Samples::U16(codes)) => Pixels::U16(codes),
            _ => Pixels::default(),
        }
    }

    /// Low band, alpha and colour transfer. The guide of the alpha filter is the frame before colour transfer.
    fn on_host(&self, mut frames: Vec<Vec<f32>>, inputs: Vec<Arc<Frame>>) -> Vec<Frame> {
        let size = self.view.geometry().output;
        low_band::apply(self.low_band, &mut frames, &inputs, self.view.geometry());
        let alphas = self.alphas(&frames, &inputs, size);
        let color = self.settings.color();
        if color != Color::None {
            let style = inputs.par_iter().map(|frame| self.view.cropped(frame)).collect();
            color.apply(&mut frames, style, size);
        }
        self.recycle(inputs);
        frames.into_par_iter().zip(alphas).map(|(pixels, alpha)| self.frame(pixels, alpha)).collect()
    }

    fn recycle(&self, inputs: Vec<Arc<Frame>>) {
        let unused = inputs.into_iter().filter_map(Arc::into_inner);
        unused.for_each(|frame| self.view.sample_pool().recycle(frame.samples));
    }

    /// Converts values in [-1, 1] to a frame of the output depth.
    fn frame(&self, pixels: Vec<f32>, alpha: Option<Vec<f32>>) -> Frame {
        let free = self.view.sample_pool().find(self.depth, pixels.len());
        let mut samples = free.unwrap_or_else(|| Samples::black(self.depth, pixels.len()));
        samples.set_between(&pixels, [BLACK, WHITE]);
        self.view.pixel_pool().recycle(pixels);
        let alpha = alpha.map(|alpha| Samples::from_unit(&alpha, self.depth));
        Frame { size: self.view.geometry().output, samples, alpha }
    }

    /// Output of a job that computes nothing: the frame itself, converted where its size or depth differs.
    fn pass_through(&self, frame: Arc<Frame>) -> Frame {
        match (frame.size, frame.depth()) == (self.view.geometry().output, self.depth) {
            true => Arc::unwrap_or_clone(frame),
            false => self.frame(self.view.cropped(&frame), None),
        }
    }

    /// The refined alpha of every frame whose input has alpha.
    fn alphas(&self, frames: &[Vec<f32>], inputs: &[Arc<Frame>], size: Size) -> Vec<Option<Vec<f32>>> {
        let (indices, originals): (Vec<usize>, Vec<&Samples>) =
            inputs.iter().enumerate().filter_map(|(i, frame)| Some((i, frame.alpha.as_ref()?))).unzip();
        let mut resized: Vec<Vec<f32>> = originals.iter().map(|alpha| self.view.alpha(alpha)).collect();
        let guides: Vec<&[f32]> = indices.iter().map(|&i| &frames[i][..]).collect();
        alpha::refine(&mut resized, &originals, &guides, size, self.settings.alpha_range);
        let mut alphas = vec![None; inputs.len()];
        indices.into_iter().zip(resized).for_each(|(i, alpha)| alphas[i] = Some(alpha));
        alphas
    }
}

fn samples(pixels: Pixels) -> Samples {
    match pixels {
        Pixels::U8(codes) => Samples::U8(codes),
        Pixels::U16(codes) => Samples::U16(codes),
    }
}
