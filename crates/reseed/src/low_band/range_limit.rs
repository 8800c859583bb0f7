//! Keeps the result within the range of the input pixels around it, so that nothing is left of a moving object on the
//! plain area behind it. With the smallest and the largest value of the 5x5 input pixels around the one below:
//! low - m ≤ result ≤ high + m, where m is half of their difference and what the model allows besides.

use rayon::prelude::*;
use reseed_media::{Frame, Size};
use reseed_ops::Hw;

use super::{enlarges, read_row};
use crate::size::Geometry;

/// Input pixels to each side of the one below an output pixel.
const REACH: usize = 2;

/// The range limit for the sizes of a job.
pub struct RangeLimit {
    /// Of values in [-1, 1], where the input is plain.
    margin: f32,
    /// The row of the input below each row of the output.
    rows: Vec<usize>,
    /// The first value of the pixel below each pixel of a row.
    columns: Vec<usize>,
}

impl RangeLimit {
    /// `None` where nothing is limited.
    pub fn new(limit: Option<f32>, geometry: &Geometry) -> Option<RangeLimit> {
        let margin = 2.0 * limit.filter(|_| enlarges(geometry))?;
        let (input, resized, output) = (geometry.input, geometry.resized(), geometry.output);
        let rows = (0..output.h).map(|y| y * input.h / resized.h).collect();
        let columns = (0..output.w).map(|x| 3 * (x * input.w / resized.w)).collect();
        Some(RangeLimit { margin, rows, columns })
    }

    /// The same for a device.
    pub fn on_device(&self, geometry: &Geometry) -> reseed_ops::RangeLimit {
        let Size { h, w } = geometry.resized();
        reseed_ops::RangeLimit { resized: Hw::new(h, w), margin: self.margin }
    }

    /// The bounds of the result of an input frame.
    pub fn bounds(&self, input: &Frame) -> Bounds<'_> {
        let (h, line) = (input.size.h, 3 * input.size.w);
        let mut samples = vec![0.0; h * line];
        samples.par_chunks_mut(line).enumerate().for_each(|(y, row)| read_row(input, y, row));
        let mut values = vec![[0.0; 2]; h * line];
        values.par_chunks_mut(line).enumerate().for_each(|(y, bounds)| {
            let window = &samples[line * y.saturating_sub(REACH)..line * (y + REACH + 1).min(h)];
            let (low, high) = (extremes(window, line, f32::min), extremes(window, line, f32::max));
            for (bounds, (low, high)) in bounds.iter_mut().zip(low.iter().zip(&high)) {
                let margin = (high - low) * 0.5 + self.margin;
                *bounds = [(low - margin).max(-1.0), (high + margin).min(1.0)];
            }
        });
        Bounds { limit: self, line, values }
    }
}

/// Bounds of the values above every value of an input frame.
pub struct Bounds<'a> {
    limit: &'a RangeLimit,
    /// Values of a row of the input.
    line: usize,
    /// The smallest and the largest allowed value, both in [-1, 1].
    values: Vec<[f32; 2]>,
}

impl Bounds<'_> {
    /// Clamps row `y` of the output.
    pub fn clamp(&self, y: usize, row: &mut [f32]) {
        let bounds = &self.values[self.limit.rows[y] * self.line..][..self.line];
        for (pixel, column) in row.chunks_exact_mut(3).zip(&self.limit.columns) {
            let bounds = &bounds[*column..][..3];
            pixel.iter_mut().zip(bounds).for_each(|(value, [low, high])| *value = value.clamp(*low, *high));
        }
    }
}

/// The extreme of each value of a row among the same channel of the pixels around it, in the given rows.
fn extremes(rows: &[f32], line: usize, of: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let mut column = rows[..line].to_vec();
    for row in rows[line..].chunks_exact(line) {
        column.iter_mut().zip(row).for_each(|(value, other)| *value = of(*value, *other));
    }
    let mut extremes = column.clone();
    for shift in (1..=REACH).map(|pixels| (3 * pixels).min(line)) {
        extremes[shift..].iter_mut().zip(&column).for_each(|(value, left)| *value = of(*value, *left));
        extremes.iter_mut().zip(&column[shift..]).for_each(|(value, right)| *value = of(*value, *right));
    }
    extremes
}

#[cfg(test)]
mod tests {
    use reseed_media::{Depth, Samples};

    use super::super::{LowBand, Share, apply, range_limit};
    use super::*;
    use crate::Target;

    const LIMIT: f32 = 2.0 / 255.0;
    const DEPTHS: [Depth; 3] = [Depth::Eight, Depth::Sixteen, Depth::Float];

    /// Sizes that nothing divides, and odd sides that are cropped.
    fn geometries() -> Vec<Geometry> {
        let new = |(h, w), target| Geometry::new(Size { h, w }, target, None).unwrap();
        vec![
            new((7, 5), Target::Exact(Size { h: 23, w: 17 })),
            new((7, 5), Target::Exact(Size { h: 23, w: 17 })).even().unwrap(),
            new((3, 37), Target::Scale(1.5)).even().unwrap(),
            new((1, 2), Target::Scale(4.0)),
        ]
    }

    /// Values from 0 to 1 without a pattern.
    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let value = |i: u32| (i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)).wrapping_mul(0x9e37_79b1) >> 8;
        (0..count as u32).map(|i| value(i) as f32 / (1 << 24) as f32).collect()
    }

    /// Values of a result, some of which are out of range.
    fn result(geometry: &Geometry) -> Vec<f32> {
        noise(3 * geometry.output.pixels(), 7).iter().map(|value| 3.0 * value - 1.5).collect()
    }

    fn limited(share: f32, limit: Option<f32>, input: &Frame, geometry: &Geometry) -> Vec<f32> {
        let mut frames = vec![result(geometry)];
        apply(LowBand { share: Share::Fixed(share), limit }, &mut frames, &[input], geometry);
        frames.remove(0)
    }

    /// One value from the definition, in the operations of f32.
    fn naive(value: f32, input: &Frame, geometry: &Geometry, i: usize) -> f32 {
        let (output, resized, Size { h, w }) = (geometry.output, geometry.resized(), input.size);
        let unit = input.to_unit();
        let (y, x, c) = (i / 3 / output.w * h / resized.h, i / 3 % output.w * w / resized.w, i % 3);
        let window = (0..h).flat_map(|r| (0..w).map(move |k| (r, k)));
        let window = window.filter(|(r, k)| r.abs_diff(y) <= 2 && k.abs_diff(x) <= 2);
        let values: Vec<f32> = window.map(|(r, k)| 2.0 * unit[3 * (r * w + k) + c] - 1.0).collect();
        let (low, high) = (values.iter().copied().fold(1.0, f32::min), values.iter().copied().fold(-1.0, f32::max));
        let margin = 0.5 * (high - low) + 2.0 * LIMIT;
        value.clamp(-1.0, 1.0).clamp(low - margin, high + margin).clamp(-1.0, 1.0)
    }

    #[test]
    fn the_limit_is_that_of_the_definition_and_comes_after_the_low_band() {
        for (geometry, depth) in geometries().iter().flat_map(|geometry| DEPTHS.map(|depth| (geometry, depth))) {
            // Little contrast, so that every frame has values beyond the limit.
            let count = 3 * geometry.input.pixels();
            let unit =
                noise(count, 3).into_iter().enumerate().map(|(i, v)| 0.3 + 0.1 * v + 0.3 * i as f32 / count as f32);
            let input = Frame::from_unit(geometry.input, &unit.collect::<Vec<_>>(), depth);
            for share in [0.0, 0.6] {
                let before = match share {
                    0.0 => result(geometry),
                    share => limited(share, None, &input, geometry),
                };
                let want: Vec<f32> =
                    before.iter().enumerate().map(|(i, value)| naive(*value, &input, geometry, i)).collect();
                assert!(limited(share, Some(LIMIT), &input, geometry) == want, "{geometry:?} {depth:?} {share}");
                assert!(want != before);
            }
        }
    }

    #[test]
    fn a_device_gets_the_limit_where_both_sides_grow() {
        let size = |h, w| Size { h, w };
        let on_device = |target, limit| {
            let geometry = Geometry::new(size(7, 5), Target::Exact(target), None).unwrap();
            range_limit(LowBand { limit, ..LowBand::fixed(0.0) }, &geometry)
        };
        assert_eq!(on_device(size(23, 17), None), None);
        assert_eq!(on_device(size(23, 5), Some(LIMIT)), None);
        let limit = reseed_ops::RangeLimit { resized: Hw::new(23, 17), margin: 2.0 * LIMIT };
        assert_eq!(on_device(size(23, 17), Some(LIMIT)), Some(limit));
    }

    #[test]
    fn a_plain_area_stays_plain() {
        for (geometry, depth) in geometries().iter().flat_map(|geometry| DEPTHS.map(|depth| (geometry, depth))) {
            let input = Frame::from_unit(geometry.input, &vec![0.4; 3 * geometry.input.pixels()], depth);
            let plain = 2.0 * input.to_unit()[0] - 1.0;
            let values = limited(0.0, Some(LIMIT), &input, geometry);
            assert!(values.iter().all(|value| (value - plain).abs() <= 2.0 * LIMIT + 1e-6), "{geometry:?} {depth:?}");
        }
    }

    #[test]
    fn samples_out_of_range_limit_as_black_and_white() {
        let geometry = &geometries()[0];
        let samples = (0..3 * geometry.input.pixels()).map(|i| [f32::NAN, -7.0, 1e9][i % 3]).collect();
        let input = Frame { size: geometry.input, samples: Samples::F32(samples), alpha: None };
        let values = limited(0.0, Some(0.0), &input, geometry);
        assert!(values.chunks_exact(3).all(|pixel| pixel == [-1.0, -1.0, 1.0]));
    }
}
