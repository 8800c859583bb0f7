//! Conformance of the work on frames: a device compared with the host, sample by sample.

mod inputs;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use reseed::internals::low_band::{LowBand, ModelLowBand, Share, shares};
use reseed::internals::{Finisher, InputFrame, View, frame_spec};
use reseed::{Batching, Color, Geometry, Settings, Target};
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_model::nano;
use reseed_ops::conformance::Values;
use reseed_ops::{
    Device, DeviceResult, DeviceSamples, FrameLoader, FrameOps, FrameResult, FrameResults, FrameSamples, FrameSlice,
    FrameSpec, FrameValues, Result, Shape, Tensor,
};

use inputs::{frame, restored};

/// A device that works on frames.
pub struct FrameDevice<'a> {
    /// Its tensors.
    pub ops: &'a dyn Device,
    /// Opens it for a kind of work.
    pub frames: &'a dyn Fn(FrameSpec) -> Result<Box<dyn FrameOps>>,
    /// Opens it for the input of networks.
    pub loader: &'a dyn Fn(&FrameSpec) -> Result<Box<dyn FrameLoader>>,
    /// Copies a frame to its memory, as another library would have it.
    pub samples: &'a dyn Fn(&Frame, Planes) -> Result<BoxedSamples>,
    /// Its memory for the samples of a finished frame.
    pub result: &'a dyn Fn(Size, Depth) -> Result<Box<dyn DeviceResult>>,
}

/// Samples in the memory of a device.
pub type BoxedSamples = Box<dyn DeviceSamples>;

/// How an array has its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planes {
    /// One pixel after the other.
    Interleaved,
    /// One channel after the other.
    Separate,
}

/// A slice of frames and what is done to it.
#[derive(Clone, Debug)]
struct Case {
    input: Size,
    target: Target,
    longest: Option<usize>,
    frames: usize,
    low_band: Band,
    /// Margin of a range limit.
    limit: Option<f32>,
}

/// Share of a low band.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Band {
    Fixed(f32),
    /// Estimated for every frame, as nano does.
    Estimated,
}

const fn case(input: (usize, usize), target: Target, frames: usize, low_band: f32) -> Case {
    let input = Size { h: input.0, w: input.1 };
    Case { input, target, longest: None, frames, low_band: Band::Fixed(low_band), limit: None }
}

const CASES: &[Case] = &[
    case((1, 1), Target::Scale(1.0), 1, 0.0),    // one pixel
    case((5, 3), Target::Scale(2.0), 2, 0.5),    // fewer pixels than the reach of a filter
    case((37, 53), Target::Scale(1.5), 3, 0.75), // odd sides, which are cropped
    case((48, 64), Target::Scale(1.0), 2, 0.0),  // nothing to resize
    case((90, 121), Target::Scale(0.5), 2, 0.0), // smaller
    // Two resamplings.
    Case { longest: Some(70), ..case((40, 50), Target::Scale(3.0), 2, 1.0) },
    case((96, 160), Target::Scale(2.0), 5, 0.0), // many tiles of keys
    // A share for every frame.
    Case { low_band: Band::Estimated, ..case((40, 50), Target::Scale(2.0), 3, 0.0) },
    // Range limits: beside a low band, where odd sides are cropped; and alone, at a size that nothing divides.
    Case { limit: Some(2.0 / 255.0), ..case((37, 53), Target::Scale(1.5), 3, 0.75) },
    Case { limit: Some(0.01), ..case((7, 5), Target::Exact(Size { h: 23, w: 17 }), 2, 0.0) },
];

const COLORS: [Color; 6] = [Color::Lab, Color::Wavelet, Color::WaveletAdaptive, Color::Hsv, Color::Adain, Color::None];

/// Samples of a device that differ from those of the host.
#[derive(Debug)]
pub struct FrameDisagreement {
    case: String,
    /// Samples that differ, and the largest difference.
    samples: usize,
    largest: f32,
}

impl fmt::Display for FrameDisagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} samples differ, by up to {}", self.case, self.samples, self.largest)
    }
}

/// Every disagreement of a device with the host.
pub fn disagreements(device: &FrameDevice) -> Result<Vec<FrameDisagreement>> {
    let mut found = Vec::new();
    for (i, case) in CASES.iter().enumerate() {
        for depth in [Depth::Eight, Depth::Sixteen, Depth::Float] {
            let job = Job::new(case, i as u64, depth);
            found.extend(job.load(device)?);
            found.extend(job.blend(device)?);
            for color in COLORS {
                found.extend(job.finish(device, color, Alpha::None)?);
            }
            for (color, alpha) in [(Color::Lab, Alpha::Soft), (Color::Wavelet, Alpha::Mask), (Color::None, Alpha::Mask)]
            {
                found.extend(job.finish(device, color, alpha)?);
            }
        }
    }
    Ok(found)
}

/// The alpha of input frames.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Alpha {
    None,
    /// A gradient.
    Soft,
    /// Nearly all of it 0 or 1.
    Mask,
}

/// The frames of a case.
struct Job<'a> {
    case: &'a Case,
    depth: Depth,
    view: View,
    inputs: Vec<Frame>,
    /// Restored frames at the padded size.
    padded: Vec<f32>,
    model: ModelLowBand,
}

impl Job<'_> {
    fn new(case: &Case, seed: u64, depth: Depth) -> Job<'_> {
        let Case { input, target, longest, frames, .. } = *case;
        let geometry = Geometry::new(input, target, longest).and_then(|geometry| match geometry.output.pixels() {
            1 => Ok(geometry),
            _ => geometry.even(),
        });
        let view = View::new(geometry.expect("the sizes of a case are valid"));
        let values = &mut Values::new(2000 + seed);
        let inputs: Vec<Frame> = (0..frames).map(|i| frame(input, depth, i, values)).collect();
        let padded = inputs.iter().flat_map(|input| restored(&view, input, values)).collect();
        let model = ModelLowBand::load(&nano::dit().expect("it is embedded")).expect("nano has an estimator");
        Job { case, depth, view, inputs, padded, model }
    }

    fn settings(&self, color: Color) -> Settings {
        let batching = Batching { size: self.case.frames, ..Batching::default() };
        Settings { color: Some(color), batching, ..Settings::default() }
    }

    fn low_band(&self) -> LowBand<'_> {
        let share = match self.case.low_band {
            Band::Fixed(share) => Share::Fixed(share),
            Band::Estimated => self.model.of_job(None).share,
        };
        LowBand { share, limit: self.case.limit }
    }

    fn spec(&self, color: Color, alpha: Alpha) -> FrameSpec {
        let kind = (self.depth, alpha != Alpha::None);
        let spec = frame_spec(&self.settings(color), self.low_band(), &self.view, kind);
        spec.expect("the range of alpha is fixed")
    }

    fn samples(&self) -> Vec<FrameSamples<'_>> {
        self.inputs.iter().map(|input| FrameSamples::Host(input.samples.as_bytes())).collect()
    }

    /// The inputs in the memory of the device.
    fn device_samples(&self, device: &FrameDevice, planes: Planes) -> Result<Vec<BoxedSamples>> {
        self.inputs.iter().map(|input| (device.samples)(input, planes)).collect()
    }

    /// The inputs with alpha.
    fn inputs(&self, alpha: Alpha) -> Vec<Frame> {
        let Size { h, w } = self.case.input;
        let value = |i: usize, x: f32, y: f32| match alpha {
            Alpha::Mask => f32::from(u8::from((x - 0.5).hypot(y - 0.4) < 0.3 + 0.01 * i as f32)),
            _ => (0.5 + 0.5 * (7.0 * x + i as f32).sin() * y).clamp(0.0, 1.0),
        };
        let plane = |i: usize| -> Vec<f32> {
            (0..h * w).map(|at| value(i, (at % w) as f32 / w as f32, (at / w) as f32 / h as f32)).collect()
        };
        let with_alpha = |(i, input): (usize, &Frame)| {
            let alpha = (alpha != Alpha::None).then(|| Samples::from_unit(&plane(i), self.depth));
            Frame { alpha, ..input.clone() }
        };
        self.inputs.iter().enumerate().map(with_alpha).collect()
    }

    fn shape(&self) -> Shape {
        let Size { h, w } = self.view.geometry().padded;
        Shape::from([self.inputs.len(), h, w, 3])
    }

    /// The restored frames as a tensor, and the values that the host sees after its rounding.
    fn decoded(&self, ops: &dyn Device) -> Result<(Tensor, Vec<Vec<f32>>)> {
        let decoded = ops.upload(self.shape(), &self.padded)?;
        let (values, geometry) = (ops.download(&decoded)?, self.view.geometry());
        let crop = |frame: &[f32]| {
            let rows = frame.chunks_exact(3 * geometry.padded.w).take(geometry.output.h);
            rows.flat_map(|row| &row[..3 * geometry.output.w]).copied().collect()
        };
        Ok((decoded, values.chunks_exact(3 * geometry.padded.pixels()).map(crop).collect()))
    }

    fn found(&self, what: String, differences: Differences) -> Option<FrameDisagreement> {
        let Differences { samples, largest } = differences;
        let case = format!("{what} {:?} of {:?}", self.depth, self.case);
        (samples > 0).then_some(FrameDisagreement { case, samples, largest })
    }

    /// The input of networks, whole and a region of it that reaches beyond the frame.
    fn load(&self, device: &FrameDevice) -> Result<Option<FrameDisagreement>> {
        let loader = (device.loader)(&self.spec(Color::None, Alpha::None))?;
        let size = self.view.geometry().padded;
        let frame_len = 3 * size.pixels();
        let mut canvas = vec![0.0; self.inputs.len() * frame_len];
        let canvases = canvas.chunks_exact_mut(frame_len).zip(&self.inputs);
        canvases.for_each(|(canvas, input)| self.view.padded_into(input, canvas));
        let wanted = device.ops.download(&device.ops.upload(self.shape(), &canvas)?)?;
        let mut all = Differences::default();
        let (all_rows, all_columns) = (0..size.h, 0..size.w);
        let (some_rows, some_columns) = (size.h / 3..size.h, size.w / 2..size.w);
        let [interleaved, separate] =
            [Planes::Interleaved, Planes::Separate].map(|planes| self.device_samples(device, planes));
        let (interleaved, separate) = (interleaved?, separate?);
        let loads = [
            (self.samples(), all_rows.clone(), all_columns.clone()),
            (self.samples(), some_rows.clone(), some_columns.clone()),
            (on_device_samples(&interleaved), all_rows, all_columns),
            (on_device_samples(&separate), some_rows, some_columns),
        ];
        for (samples, rows, columns) in loads {
            let got = device.ops.download(&loader.load(&samples, rows.clone(), columns.clone())?)?;
            let lines = wanted
                .chunks_exact(frame_len)
                .flat_map(|frame| rows.clone().map(move |row| &frame[3 * row * size.w..][..3 * size.w]));
            let wanted: Vec<f32> = lines.flat_map(|line| &line[3 * columns.start..]).copied().collect();
            all.add(&wanted, &got, 0.0);
        }
        Ok(self.found(format!("load {}", device.ops.dtype()), all))
    }

    /// Frames that stay on the device, and their cross-fade.
    fn blend(&self, device: &FrameDevice) -> Result<Option<FrameDisagreement>> {
        let frames = (device.frames)(self.spec(Color::None, Alpha::None))?;
        let (decoded, values) = self.decoded(device.ops)?;
        let mut all = Differences::default();
        let Some(pending) = frames.keep(&decoded)? else { return Ok(None) };
        let mut kept = Vec::new();
        pending.wait(&mut kept)?;
        for (wanted, got) in values.iter().zip(&kept) {
            all.add(wanted, &got.copy()?, 0.0);
        }
        if let [FrameValues::Device(first), FrameValues::Device(second), ..] = &mut kept[..] {
            first.blend(&**second, 0.3)?;
            let pairs = values[0].iter().zip(&values[1]);
            let wanted: Vec<f32> = pairs.map(|(e, l)| e * 0.3 + l * (1.0 - 0.3f32)).collect();
            all.add(&wanted, &first.fetch()?, 0.0);
        }
        Ok(self.found(format!("blend {}", device.ops.dtype()), all))
    }

    /// Finished frames. Each slice is finished twice from and to host memory and once on the device, since it must not
    /// depend on what the device did before.
    fn finish(&self, device: &FrameDevice, color: Color, alpha: Alpha) -> Result<Option<FrameDisagreement>> {
        let (settings, inputs) = (self.settings(color), self.inputs(alpha));
        let (decoded, values) = self.decoded(device.ops)?;
        let host = || values.iter().cloned().map(FrameValues::Host).collect::<Vec<_>>();
        let mut finisher = Finisher::new(&settings, &self.view, self.depth).with_low_band(self.low_band());
        let shared: Vec<Arc<InputFrame>> = inputs.iter().map(|input| Arc::new(input.clone().into())).collect();
        let shares = &shares(self.low_band().share, &shared, self.view.geometry())?;
        let wanted = finisher.run(host(), shared).expect("the frames are on the host");
        let arrays = self.device_samples(device, Planes::Separate)?;
        let frames = (device.frames)(self.spec(color, alpha))?;
        let originals: Vec<&[u8]> = inputs.iter().flat_map(|input| &input.alpha).map(Samples::as_bytes).collect();
        // The exponential of the host's library may round another way, which moves a result by less than a code.
        let allowed = match (color == Color::WaveletAdaptive || alpha == Alpha::Mask, self.depth) {
            (true, Depth::Float) => 1e-5,
            (true, _) => 1.0,
            _ => 0.0,
        };
        let mut all = Differences::default();
        for on_device in [false, false, true] {
            let mut kept = host();
            if on_device && let Some(pending) = frames.keep(&decoded)? {
                pending.wait(&mut kept)?;
            }
            let size = self.view.geometry().output;
            let pixels = size.pixels();
            let mut colors: Vec<Samples> = kept.iter().map(|_| Samples::black(self.depth, 3 * pixels)).collect();
            let places: Result<Vec<_>> = kept.iter().map(|_| (device.result)(size, self.depth)).collect();
            let places = if on_device { places? } else { Vec::new() };
            let mut alphas: Vec<Samples> = originals.iter().map(|_| Samples::black(self.depth, pixels)).collect();
            let hosts = colors.iter_mut().map(|samples| FrameResult::Host(samples.as_bytes_mut()));
            let mut results = FrameResults {
                frames: match on_device {
                    true => places.iter().map(|place| FrameResult::Device(&**place)).collect(),
                    false => hosts.collect(),
                },
                alphas: alphas.iter_mut().map(Samples::as_bytes_mut).collect(),
            };
            let inputs = &if on_device { on_device_samples(&arrays) } else { self.samples() }[..];
            let (alphas_in, mask) = (&originals[..], alpha == Alpha::Mask);
            let slice = FrameSlice { frames: &kept, inputs, shares, alphas: alphas_in, mask };
            frames.finish(&slice, &mut results)?;
            for (color, place) in colors.iter_mut().zip(&places) {
                color.as_bytes_mut().copy_from_slice(&place.fetch()?);
            }
            for (wanted, got) in wanted.iter().zip(&colors) {
                all.add(&numbers(&wanted.samples), &numbers(got), allowed);
            }
            for (wanted, got) in wanted.iter().flat_map(|frame| &frame.alpha).zip(&alphas) {
                all.add(&numbers(wanted), &numbers(got), allowed);
            }
        }
        Ok(self.found(format!("{color} {alpha:?} {}", device.ops.dtype()), all))
    }
}

fn on_device_samples(samples: &[BoxedSamples]) -> Vec<FrameSamples<'_>> {
    samples.iter().map(|samples| FrameSamples::Device(&**samples)).collect()
}

fn numbers(samples: &Samples) -> Vec<f32> {
    match samples {
        Samples::U8(codes) => codes.iter().map(|code| (*code).into()).collect(),
        Samples::U16(codes) => codes.iter().map(|code| (*code).into()).collect(),
        Samples::F32(values) => values.clone(),
    }
}

#[derive(Default)]
struct Differences {
    samples: usize,
    largest: f32,
}

impl Differences {
    /// Values that are no numbers differ from all others.
    fn add(&mut self, wanted: &[f32], got: &[f32], allowed: f32) {
        assert_eq!(wanted.len(), got.len(), "as many samples");
        for (wanted, got) in wanted.iter().zip(got) {
            let apart = (wanted - got).abs();
            self.samples += usize::from(apart > allowed || apart.is_nan());
            self.largest = self.largest.max(apart);
        }
    }
}
