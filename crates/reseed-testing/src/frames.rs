//! Conformance of the work on finished frames: a device compared with the host, code by code.

use std::fmt;
use std::sync::Arc;

use reseed::internals::low_band::{ModelLowBand, Strength, strengths};
use reseed::internals::{Finisher, View, frame_spec};
use reseed::{Batching, Color, Geometry, Settings, Target};
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_model::nano;
use reseed_ops::conformance::Values;
use reseed_ops::{FrameOps, FrameSpec, Pixels, Result};

/// Opens a device for a kind of work.
pub type OpenFrames<'a> = &'a dyn Fn(FrameSpec) -> Result<Box<dyn FrameOps>>;

/// A slice of frames and what is done to it.
#[derive(Clone, Debug)]
struct Case {
    input: Size,
    target: Target,
    longest: Option<usize>,
    frames: usize,
    low_band: Band,
}

/// Strength of a low band.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Band {
    Fixed(f32),
    /// Estimated for every frame, as nano does.
    Estimated,
}

const fn case(input: (usize, usize), target: Target, frames: usize, low_band: f32) -> Case {
    Case { input: Size { h: input.0, w: input.1 }, target, longest: None, frames, low_band: Band::Fixed(low_band) }
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
    // A strength for every frame.
    Case { low_band: Band::Estimated, ..case((40, 50), Target::Scale(2.0), 3, 0.0) },
];

const COLORS: [Color; 6] = [Color::Lab, Color::Wavelet, Color::WaveletAdaptive, Color::Hsv, Color::Adain, Color::None];

/// Codes of a device that differ from those of the host.
#[derive(Debug)]
pub struct FrameDisagreement {
    case: String,
    /// Codes that differ, and the largest difference.
    codes: usize,
    largest: u32,
}

impl fmt::Display for FrameDisagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} codes differ, by up to {}", self.case, self.codes, self.largest)
    }
}

/// Every disagreement of a device with the host. Each slice is finished twice, since it must not depend on what the
/// device did before.
pub fn disagreements(open: OpenFrames) -> Result<Vec<FrameDisagreement>> {
    let mut found = Vec::new();
    for (i, case) in CASES.iter().enumerate() {
        for color in COLORS {
            for depth in [Depth::Eight, Depth::Sixteen] {
                found.extend(disagreement(open, (case, i as u64), color, depth)?);
            }
        }
    }
    Ok(found)
}

fn disagreement(
    open: OpenFrames,
    (case, seed): (&Case, u64),
    color: Color,
    depth: Depth,
) -> Result<Option<FrameDisagreement>> {
    let Case { input, target, longest, frames, low_band } = *case;
    let batching = Batching { size: frames, ..Batching::default() };
    let settings = Settings { color: Some(color), batching, ..Settings::default() };
    let model = ModelLowBand::load(&nano::dit().expect("it is embedded")).expect("nano has an estimator");
    let low_band = match low_band {
        Band::Fixed(strength) => Strength::Fixed(strength),
        Band::Estimated => model.strength(None),
    };
    let geometry = Geometry::new(input, target, longest).and_then(|geometry| match geometry.output.pixels() {
        1 => Ok(geometry),
        _ => geometry.even(),
    });
    let view = View::new(geometry.expect("the sizes of a case are valid"));
    let Some(spec) = frame_spec(&settings, low_band, &view, (depth, false)) else { return Ok(None) };
    let values = &mut Values::new(2000 + seed);
    let inputs: Vec<Arc<Frame>> = (0..frames).map(|i| Arc::new(frame(input, depth, i, values))).collect();
    let restored: Vec<Vec<f32>> = inputs.iter().map(|input| restored(&view, input, values)).collect();
    let strengths = strengths(low_band, &inputs, view.geometry());
    let mut host = Finisher::new(&settings, &view, depth).with_low_band(low_band);
    let wanted = host.run(restored.clone(), inputs.clone());
    let device = open(spec)?;
    let codes: Vec<&[u8]> = inputs.iter().map(|input| input.samples.as_bytes()).collect();
    // The exponential of the host's library may round another way, which moves a result by less than a code.
    let allowed = u32::from(color == Color::WaveletAdaptive);
    let mut all = Differences::default();
    for _ in 0..2 {
        let mut results = vec![Pixels::default(); frames];
        device.finish(&restored, &codes, &strengths, &mut results)?;
        wanted.iter().zip(&results).for_each(|(wanted, got)| all.add(&wanted.samples, got, allowed));
    }
    let Differences { codes, largest } = all;
    Ok((codes > 0).then(|| FrameDisagreement { case: format!("{color} {depth:?} of {case:?}"), codes, largest }))
}

#[derive(Default)]
struct Differences {
    codes: usize,
    largest: u32,
}

impl Differences {
    fn add(&mut self, wanted: &Samples, got: &Pixels, allowed: u32) {
        let mut compare = |a: u32, b: u32| {
            self.codes += usize::from(a.abs_diff(b) > allowed);
            self.largest = self.largest.max(a.abs_diff(b));
        };
        match (wanted, got) {
            (Samples::U8(a), Pixels::U8(b)) if a.len() == b.len() => {
                a.iter().zip(b).for_each(|(a, b)| compare((*a).into(), (*b).into()));
            }
            (Samples::U16(a), Pixels::U16(b)) if a.len() == b.len() => {
                a.iter().zip(b).for_each(|(a, b)| compare((*a).into(), (*b).into()));
            }
            _ => self.codes += wanted.len(),
        }
    }
}

/// Waves of colour, noise, and flat parts in which many pixels are equal: black, grey, and one colour.
fn frame(size: Size, depth: Depth, number: usize, values: &mut Values) -> Frame {
    let noise = values.take(3 * size.pixels());
    let value = |i: usize| {
        let (x, y, c) = (i / 3 % size.w, i / 3 / size.w, i % 3);
        let wave = ((x + 3 * number) as f32 / (7.0 + 2.0 * c as f32)).sin() * (y as f32 / 9.0).cos();
        match (4 * x / size.w, 4 * y / size.h) {
            (0, 0) => 0.0,
            (1, 0) => 0.5,
            (0, 1) => [0.8, 0.3, 0.4][c],
            _ => 0.5 + 0.35 * wave + 0.1 * noise[i],
        }
    };
    let unit: Vec<f32> = (0..3 * size.pixels()).map(value).collect();
    Frame { size, samples: Samples::from_unit(&unit, depth), alpha: None }
}

/// A frame as a network might have made it: less contrast, other noise, and values out of range.
fn restored(view: &View, input: &Frame, values: &mut Values) -> Vec<f32> {
    let resized = view.cropped(input);
    let noise = values.take(resized.len());
    let flat = |i: usize| i % 7 < 3;
    let value = |(i, (value, noise)): (usize, (&f32, &f32))| match flat(i / 300) {
        true => 0.875 * value,
        false => 0.9 * value + 0.25 * noise + 0.05,
    };
    resized.iter().zip(&noise).enumerate().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that finishes every frame in one grey, which no case has as its result.
    struct Flat(FrameSpec);

    impl FrameOps for Flat {
        fn finish(&self, _: &[Vec<f32>], _: &[&[u8]], _: &[f32], results: &mut [Pixels]) -> Result<()> {
            results
                .iter_mut()
                .for_each(|pixels| *pixels = Pixels::nearest(&vec![0.25; 3 * self.0.output.count()], self.0.depth));
            Ok(())
        }
    }

    #[test]
    fn a_device_that_computes_nothing_disagrees_in_every_case() {
        let found = disagreements(&|spec| Ok(Box::new(Flat(spec)))).unwrap();
        // Without colour transfer, only the cases with a low band have work.
        let with_low_band = CASES.iter().filter(|case| case.low_band != Band::Fixed(0.0)).count();
        assert_eq!(found.len(), 2 * (CASES.len() * (COLORS.len() - 1) + with_low_band));
    }
}
