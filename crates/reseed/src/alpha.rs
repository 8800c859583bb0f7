//! Alpha: bicubic resize, then a guided filter whose guide is the grey level of the restored frame. No network runs.
//!
//! A slice is refined as a whole: its alpha counts as a mask when more than 95% of all its values are near 0 or 1.

use rayon::prelude::*;
use reseed_media::{Samples, Size};

use crate::color::unit;

/// Regularisation of the guided filter: added to the variance of the guide.
const EPSILON: f32 = 0.002;

/// The value range that the alpha filter assumes for restored frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlphaRange {
    /// [-1, 1], clamped.
    #[default]
    Fixed,
    /// Inferred as the public pipeline does: a slice without negative values counts as [0, 1]. The edge map of a slice
    /// with a minimum below -1 applies (v + 1) / 2 twice.
    Inferred,
}

/// Refines the resized alpha of each frame of a slice, in [0, 1]. `original` is the alpha of the input; `frames` are
/// the restored frames `[H, W, 3]` before colour correction.
pub fn refine(resized: &mut [Vec<f32>], original: &[&Samples], frames: &[&[f32]], size: Size, range: AlphaRange) {
    let scaling = GuideScaling::new(frames, range);
    let mask = is_mask(original);
    resized.par_iter_mut().zip(frames).for_each(|(alpha, frame)| {
        let grey: Vec<f32> =
            frame.chunks_exact(3).map(|rgb| rgb.iter().map(|v| scaling.grey(*v)).sum::<f32>() / 3.0).collect();
        let guided = GuidedFilter { guide: &grey, size };
        if mask {
            let edges = edge_map(frame, size, |v| scaling.edges(v));
            let filtered = guided.filter(alpha, 2);
            sharpen(alpha, &filtered, &edges, size);
        } else {
            *alpha = guided.filter(alpha, 3);
        }
        alpha.iter_mut().for_each(|value| *value = value.clamp(0.0, 1.0));
    });
}

/// Maps values of restored frames to [0, 1] for the guide.
struct GuideScaling {
    range: AlphaRange,
    has_negative: bool,
    has_below_minus_one: bool,
}

impl GuideScaling {
    fn new(frames: &[&[f32]], range: AlphaRange) -> GuideScaling {
        let min = frames.iter().copied().flatten().copied().fold(f32::INFINITY, f32::min);
        GuideScaling { range, has_negative: min < 0.0, has_below_minus_one: min < -1.0 }
    }

    fn grey(&self, value: f32) -> f32 {
        match self.range {
            AlphaRange::Fixed => unit(value),
            AlphaRange::Inferred if self.has_negative => (value + 1.0) / 2.0,
            AlphaRange::Inferred => value,
        }
    }

    fn edges(&self, value: f32) -> f32 {
        match self.range {
            AlphaRange::Inferred if self.has_below_minus_one => (self.grey(value) + 1.0) / 2.0,
            _ => self.grey(value),
        }
    }
}

/// Whether more than 95% of the values are below 0.1 or above 0.9.
pub fn is_mask(original: &[&Samples]) -> bool {
    let (mut extreme, mut count) = (0, 0);
    for samples in original {
        let mut unit = vec![0.0; samples.len()];
        samples.copy_to_unit(0..unit.len(), &mut unit);
        extreme += unit.iter().filter(|&&v| !(0.1..=0.9).contains(&v)).count();
        count += unit.len();
    }
    extreme as f64 > 0.95 * count as f64
}

/// Thresholds the filtered mask away from edges and applies a sigmoid, 1 / (1 + exp(-12 (f - ½))), on edges.
fn sharpen(alpha: &mut [f32], filtered: &[f32], edges: &[f32], size: Size) {
    let binary = |v: f32| if v > 0.5 { 1.0 } else { 0.0 };
    for (i, (to, &f)) in alpha.iter_mut().zip(filtered).enumerate() {
        let edge = edges[i];
        *to = if dilated(edges, size, i) < 0.05 {
            binary(f)
        } else {
            let k = (edge / 0.25).clamp(0.0, 1.0);
            f * (1.0 - k) + k / (1.0 + (-12.0 * (f - 0.5)).exp())
        };
        if *to > 0.3 && *to < 0.7 && edge <= 0.15 {
            *to = binary(*to);
        }
    }
}

/// The largest edge strength of a pixel and its eight neighbours.
fn dilated(edges: &[f32], size: Size, i: usize) -> f32 {
    let (y, x) = (i / size.w, i % size.w);
    let around = |at: usize, end: usize| at.saturating_sub(1)..(at + 2).min(end);
    around(y, size.h).flat_map(|y| &edges[y * size.w..][around(x, size.w)]).copied().fold(0.0, f32::max)
}

/// Magnitude of the Sobel gradient of the 8-bit grey frame, divided by its maximum and rounded down to multiples of
/// 1/255. `scale` maps values to [0, 1]. A frame of one colour gives zeros.
fn edge_map(frame: &[f32], size: Size, scale: impl Fn(f32) -> f32) -> Vec<f32> {
    let code = |v: f32| (scale(v) * 255.0) as u8 as i32;
    // Rec. 601 luma with 15 fractional bits.
    let grey = |rgb: &[f32]| (9798 * code(rgb[0]) + 19235 * code(rgb[1]) + 3735 * code(rgb[2]) + 16384) >> 15;
    let grey: Vec<i32> = frame.chunks_exact(3).map(grey).collect();
    let gradient = |i: usize| {
        let at =
            |dy: isize, dx: isize| grey[mirrored(i / size.w, dy, size.h) * size.w + mirrored(i % size.w, dx, size.w)];
        let x = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
        let y = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1);
        f64::from(x * x + y * y).sqrt()
    };
    let gradients: Vec<f64> = (0..grey.len()).map(gradient).collect();
    let largest = gradients.iter().copied().fold(0.0, f64::max);
    let largest = if largest > 0.0 { largest } else { 1.0 };
    gradients.iter().map(|g| ((g / largest * 255.0).floor() / 255.0) as f32).collect()
}

/// Index of a neighbour along an axis with reflection padding, edge pixel not repeated.
fn mirrored(at: usize, offset: isize, end: usize) -> usize {
    match at.checked_add_signed(offset) {
        None => 1.min(end - 1),
        Some(at) if at == end => end.saturating_sub(2),
        Some(at) => at,
    }
}

/// Guided filter: out = mean(a) · guide + mean(b), with a = cov(guide, x) / (var(guide) + ε) and
/// b = mean(x) - a · mean(guide) over boxes of `2 radius + 1` pixels a side.
struct GuidedFilter<'a> {
    guide: &'a [f32],
    size: Size,
}

impl GuidedFilter<'_> {
    fn filter(&self, x: &[f32], radius: usize) -> Vec<f32> {
        let mean = |plane: &[f32]| self.box_mean(plane, radius);
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<f32>>();
        let (mean_g, mean_x) = (mean(self.guide), mean(x));
        let (mean_gx, mean_gg) = (mean(&product(self.guide, x)), mean(&product(self.guide, self.guide)));
        let fit = |i: usize| {
            let a = (mean_gx[i] - mean_g[i] * mean_x[i]) / (mean_gg[i] - mean_g[i] * mean_g[i] + EPSILON);
            (a, mean_x[i] - a * mean_g[i])
        };
        let (a, b): (Vec<f32>, Vec<f32>) = (0..x.len()).map(fit).unzip();
        let (a, b) = (mean(&a), mean(&b));
        (0..x.len()).map(|i| a[i] * self.guide[i] + b[i]).collect()
    }

    /// Box filter with zero padding: sums of boxes of `2 radius + 1` pixels a side, divided by the full box area.
    fn box_mean(&self, plane: &[f32], radius: usize) -> Vec<f32> {
        let Size { h, w } = self.size;
        let window = |at: usize, end: usize| at.saturating_sub(radius)..(at + radius + 1).min(end);
        let mut across = Vec::with_capacity(plane.len());
        for row in plane.chunks_exact(w) {
            across.extend((0..w).map(|x| row[window(x, w)].iter().sum::<f32>()));
        }
        let area = ((2 * radius + 1) * (2 * radius + 1)) as f32;
        let mut means = vec![0.0; plane.len()];
        for (y, out) in means.chunks_exact_mut(w).enumerate() {
            for row in across[window(y, h).start * w..window(y, h).end * w].chunks_exact(w) {
                out.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            out.iter_mut().for_each(|sum| *sum /= area);
        }
        means
    }
}
