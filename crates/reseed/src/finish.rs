//! Finishes the frames of a slice: low band, alpha, colour transfer and the conversion to samples. The host and a
//! device give the same frames.

use std::sync::Arc;

use rayon::prelude::*;
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::{ColorTransfer, FrameOps, FrameResults, FrameSlice, FrameSpec, FrameValues, Hw, SampleType};

use crate::alpha::{self, AlphaRange};
use crate::color::Color;
use crate::error::Result;
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
    /// Whether the device finishes frames with alpha.
    alpha: bool,
}

/// Batches whose restored frames may stay on a device: one that is finished, and the next.
const KEPT: usize = 2;

/// The work of a job on its frames, for a device; `None` where the host does it, because the range of values for the
/// filter of alpha is inferred from all frames of a slice.
pub fn frame_spec(
    settings: &Settings,
    low_band: Strength,
    view: &View,
    (depth, alpha): (Depth, bool),
) -> Option<FrameSpec> {
    if alpha && settings.alpha_range != AlphaRange::Fixed {
        return None;
    }
    let samples = match depth {
        Depth::Eight => SampleType::U8,
        Depth::Sixteen => SampleType::U16,
        Depth::Float => SampleType::F32,
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
    let (frames, steps) = (settings.batching.size, view.resizes());
    let [input, output] = [view.geometry().input, view.geometry().output].map(|Size { h, w }| Hw::new(h, w));
    let (kept, alpha) = (KEPT * frames, alpha.then(|| view.alpha_resize()));
    Some(FrameSpec { frames, kept, input, steps, output, samples, low_band, color, alpha })
}

impl<'a> Finisher<'a> {
    /// On the host, to samples of this depth. The low band is that of the settings.
    pub fn new(settings: &'a Settings, view: &'a View, depth: Depth) -> Finisher<'a> {
        let low_band = Strength::Fixed(settings.low_band.unwrap_or_default());
        Finisher { settings, view, depth, low_band, device: None, alpha: false }
    }

    /// With another strength of the low band.
    pub fn with_low_band(self, low_band: Strength<'a>) -> Finisher<'a> {
        Finisher { low_band, ..self }
    }

    /// On a device that does the work of [`frame_spec`], with or without alpha.
    pub fn on(self, device: Option<&'a dyn FrameOps>, alpha: bool) -> Finisher<'a> {
        Finisher { device, alpha, ..self }
    }

    /// Finishes the frames of a slice. Without frames, the inputs pass through. An error is one of the device that has
    /// the frames.
    pub fn run(&mut self, frames: Vec<FrameValues>, inputs: Vec<Arc<Frame>>) -> Result<Vec<Frame>> {
        if frames.is_empty() {
            return Ok(inputs.into_iter().map(|frame| self.pass_through(frame)).collect());
        }
        if let Some(results) = self.on_device(&frames, &inputs) {
            let used = frames.into_iter().filter_map(|frame| match frame {
                FrameValues::Host(values) => Some(values),
                FrameValues::Device(_) => None,
            });
            used.for_each(|values| self.view.pixel_pool().recycle(values));
            self.recycle(inputs);
            return Ok(results);
        }
        let frames = frames.into_iter().map(FrameValues::fetch).collect::<reseed_ops::Result<_>>()?;
        Ok(self.on_host(frames, inputs))
    }

    /// The device's result; `None` where the host must do the work. After an error, the host does the rest too.
    fn on_device(&mut self, frames: &[FrameValues], inputs: &[Arc<Frame>]) -> Option<Vec<Frame>> {
        let device = self.device?;
        let originals: Vec<&Samples> = inputs.iter().filter_map(|input| input.alpha.as_ref()).collect();
        let alike = originals.len() == if self.alpha { inputs.len() } else { 0 };
        if !alike || inputs.iter().any(|input| input.depth() != self.depth) {
            return None;
        }
        let slice = FrameSlice {
            frames,
            inputs: &inputs.iter().map(|input| input.samples.as_bytes()).collect::<Vec<_>>(),
            strengths: &low_band::strengths(self.low_band, inputs, self.view.geometry()),
            alphas: &originals.iter().map(|alpha| alpha.as_bytes()).collect::<Vec<_>>(),
            mask: alpha::is_mask(&originals),
        };
        let size = self.view.geometry().output;
        let mut colors: Vec<Samples> = frames.iter().map(|_| self.free_samples(3 * size.pixels())).collect();
        let mut alphas: Vec<Samples> = originals.iter().map(|_| Samples::black(self.depth, size.pixels())).collect();
        let [color_bytes, alpha_bytes] = [&mut colors, &mut alphas].map(|samples| each_as_bytes(samples));
        if let Err(error) = device.finish(&slice, &mut FrameResults { frames: color_bytes, alphas: alpha_bytes }) {
            tracing::warn!(%error, "frames are finished by the CPU from here on");
            self.device = None;
            return None;
        }
        let mut alphas = alphas.into_iter();
        Some(colors.into_iter().map(|samples| Frame { size, samples, alpha: alphas.next() }).collect())
    }

    /// Memory for the samples of a frame.
    fn free_samples(&self, count: usize) -> Samples {
        let free = self.view.sample_pool().find(self.depth, count);
        free.unwrap_or_else(|| Samples::black(self.depth, count))
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
        let mut samples = self.free_samples(pixels.len());
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

fn each_as_bytes(samples: &mut [Samples]) -> Vec<&mut [u8]> {
    samples.iter_mut().map(Samples::as_bytes_mut).collect()
}
