//! Finishes the frames of a slice: low band, range limit, alpha, colour transfer and the conversion to samples. The
//! host and a device give the same frames.

use std::sync::Arc;

use rayon::prelude::*;
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::{
    ColorTransfer, DeviceResult, FrameOps, FrameResult, FrameResults, FrameSlice, FrameSpec, FrameValues, Hw,
    SampleType,
};

use crate::alpha::{self, AlphaRange};
use crate::color::Color;
use crate::error::Result;
use crate::input_frame::InputFrame;
use crate::low_band::{self, LowBand, ModelLowBand};
use crate::settings::Settings;
use crate::view::{BLACK, View, WHITE};

/// Finishes frames.
pub struct Finisher<'a> {
    settings: &'a Settings,
    view: &'a View,
    depth: Depth,
    low_band: LowBand<'a>,
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
    low_band: LowBand,
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
    let limit = low_band::range_limit(low_band, view.geometry());
    let low_band = low_band::resizes(low_band, view.geometry());
    let (frames, steps) = (settings.batching.size, view.resizes());
    let [input, output] = [view.geometry().input, view.geometry().output].map(|Size { h, w }| Hw::new(h, w));
    let (kept, alpha) = (KEPT * frames, alpha.then(|| view.alpha_resize()));
    Some(FrameSpec { frames, kept, input, steps, output, samples, low_band, limit, color, alpha })
}

impl<'a> Finisher<'a> {
    /// On the host, to samples of this depth. The low band is that of the settings.
    pub fn new(settings: &'a Settings, view: &'a View, depth: Depth) -> Finisher<'a> {
        let low_band = ModelLowBand::NONE.of_job(settings.strength);
        Finisher { settings, view, depth, low_band, device: None, alpha: false }
    }

    /// With another low band.
    pub fn with_low_band(self, low_band: LowBand<'a>) -> Finisher<'a> {
        Finisher { low_band, ..self }
    }

    /// On a device that does the work of [`frame_spec`], with or without alpha.
    pub fn on(self, device: Option<&'a dyn FrameOps>, alpha: bool) -> Finisher<'a> {
        Finisher { device, alpha, ..self }
    }

    /// Finishes the frames of a slice. Without frames, the inputs pass through. An error is one of the device that has
    /// the frames.
    pub fn run(&mut self, frames: Vec<FrameValues>, inputs: Vec<Arc<InputFrame>>) -> Result<Vec<Frame>> {
        self.run_to(&[], frames, inputs)
    }

    /// Finishes the frames of a slice to memory of a device.
    pub fn run_in_place(
        &mut self,
        places: &[&dyn DeviceResult],
        frames: Vec<FrameValues>,
        inputs: Vec<Arc<InputFrame>>,
    ) -> Result<()> {
        let on_host = self.run_to(places, frames, inputs)?;
        let store = |(frame, place): (&Frame, &&dyn DeviceResult)| place.store(frame.samples.as_bytes());
        on_host.iter().zip(places).try_for_each(store)?;
        on_host.into_iter().for_each(|frame| self.view.sample_pool().recycle(frame.samples));
        Ok(())
    }

    /// Returns the frames that are not in their places.
    fn run_to(
        &mut self,
        places: &[&dyn DeviceResult],
        frames: Vec<FrameValues>,
        inputs: Vec<Arc<InputFrame>>,
    ) -> Result<Vec<Frame>> {
        if frames.is_empty() {
            return inputs.into_iter().map(|frame| self.pass_through(frame)).collect();
        }
        if let Some(results) = self.on_device(places, &frames, &inputs)? {
            let used = frames.into_iter().filter_map(|frame| match frame {
                FrameValues::Host(values) => Some(values),
                FrameValues::Device(_) => None,
            });
            used.for_each(|values| self.view.pixel_pool().recycle(values));
            self.recycle(inputs);
            return Ok(results);
        }
        let frames = frames.into_iter().map(FrameValues::fetch).collect::<reseed_ops::Result<_>>()?;
        self.on_host(frames, inputs)
    }

    /// The device's result, without the frames that have a place; `None` where the host must do the work. After an
    /// error, the host does the rest too.
    fn on_device(
        &mut self,
        places: &[&dyn DeviceResult],
        frames: &[FrameValues],
        inputs: &[Arc<InputFrame>],
    ) -> Result<Option<Vec<Frame>>> {
        let Some(device) = self.device else { return Ok(None) };
        let originals: Vec<&Samples> = inputs.iter().filter_map(|input| input.alpha()).collect();
        let alike = originals.len() == if self.alpha { inputs.len() } else { 0 };
        if !alike || inputs.iter().any(|input| input.depth() != self.depth) {
            return Ok(None);
        }
        let slice = FrameSlice {
            frames,
            inputs: &inputs.iter().map(|input| input.samples()).collect::<Vec<_>>(),
            shares: &low_band::shares(self.low_band.share, inputs, self.view.geometry())?,
            alphas: &originals.iter().map(|alpha| alpha.as_bytes()).collect::<Vec<_>>(),
            mask: alpha::is_mask(&originals),
        };
        let size = self.view.geometry().output;
        let on_host = if places.is_empty() { frames.len() } else { 0 };
        let mut colors: Vec<Samples> = (0..on_host).map(|_| self.free_samples(3 * size.pixels())).collect();
        let mut alphas: Vec<Samples> = originals.iter().map(|_| Samples::black(self.depth, size.pixels())).collect();
        let hosts = colors.iter_mut().map(|samples| FrameResult::Host(samples.as_bytes_mut()));
        let frames = hosts.chain(places.iter().map(|place| FrameResult::Device(*place))).collect();
        let mut results = FrameResults { frames, alphas: alphas.iter_mut().map(Samples::as_bytes_mut).collect() };
        if let Err(error) = device.finish(&slice, &mut results) {
            tracing::warn!(%error, "frames are finished by the CPU from here on");
            self.device = None;
            return Ok(None);
        }
        let mut alphas = alphas.into_iter();
        Ok(Some(colors.into_iter().map(|samples| Frame { size, samples, alpha: alphas.next() }).collect()))
    }

    /// Memory for the samples of a frame.
    fn free_samples(&self, count: usize) -> Samples {
        let free = self.view.sample_pool().find(self.depth, count);
        free.unwrap_or_else(|| Samples::black(self.depth, count))
    }

    /// Low band, alpha and colour transfer. The guide of the alpha filter is the frame before colour transfer.
    fn on_host(&self, mut frames: Vec<Vec<f32>>, inputs: Vec<Arc<InputFrame>>) -> Result<Vec<Frame>> {
        let size = self.view.geometry().output;
        let hosts = inputs.iter().map(|input| input.host()).collect::<reseed_ops::Result<Vec<_>>>()?;
        low_band::apply(self.low_band, &mut frames, &hosts, self.view.geometry());
        let alphas = self.alphas(&frames, &hosts, size);
        let color = self.settings.color();
        if color != Color::None {
            let style = hosts.par_iter().map(|frame| self.view.cropped(frame)).collect();
            color.apply(&mut frames, style, size);
        }
        self.recycle(inputs);
        Ok(frames.into_par_iter().zip(alphas).map(|(pixels, alpha)| self.frame(pixels, alpha)).collect())
    }

    fn recycle(&self, inputs: Vec<Arc<InputFrame>>) {
        for input in inputs.into_iter().filter_map(Arc::into_inner) {
            if let InputFrame::Host(frame) = input {
                self.view.sample_pool().recycle(frame.samples);
            }
        }
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
    fn pass_through(&self, input: Arc<InputFrame>) -> Result<Frame> {
        let frame = input.host()?;
        if (frame.size, frame.depth()) != (self.view.geometry().output, self.depth) {
            return Ok(self.frame(self.view.cropped(frame), None));
        }
        match Arc::try_unwrap(input) {
            Ok(InputFrame::Host(frame)) => Ok(frame),
            Ok(input) => Ok(input.host()?.clone()),
            Err(input) => Ok(input.host()?.clone()),
        }
    }

    /// The refined alpha of every frame whose input has alpha.
    fn alphas(&self, frames: &[Vec<f32>], inputs: &[&Frame], size: Size) -> Vec<Option<Vec<f32>>> {
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
