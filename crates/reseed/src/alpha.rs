//! Alpha is resized and refined along the edges of the restored picture, never run through a network.
//!
//! All frames of a slice at once: a mask is what is nearly all near 0 or 1 in all of them.

use rayon::prelude::*;
use reseed_media::{Samples, Size};

use crate::color::unit;

/// What the guided filter takes for noise in its guide.
const EPSILON: f32 = 0.002;

/// The range that the restored pictures are taken to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// [-1, 1], clamped.
    #[default]
    Fixed,
    /// Guessed as the public pipeline does: a slice without negative values is taken as it is, and one whose minimum is
    /// below -1 is moved twice for its edges.
    Guessed,
}

/// Refines the resized alpha of each frame of a slice, in [0, 1]. `original` is the input's own; `pictures` are the
/// restored frames before colour correction, `[H, W, 3]`.
pub fn refine(resized: &mut [Vec<f32>], original: &[&Samples], pictures: &[&[f32]], size: Size, range: Range) {
    let guide = Guide::new(pictures, range);
    let mask = is_mask(original);
    resized.par_iter_mut().zip(pictures).for_each(|(alpha, picture)| {
        let grey: Vec<f32> =
            picture.chunks_exact(3).map(|rgb| rgb.iter().map(|v| guide.of(*v)).sum::<f32>() / 3.0).collect();
        let guided = Guided { guide: &grey, size };
        if mask {
            let edges = edge_map(picture, size, |v| guide.of_edges(v));
            let filtered = guided.filter(alpha, 2);
            sharpen(alpha, &filtered, &edges, size);
        } else {
            *alpha = guided.filter(alpha, 3);
        }
        alpha.iter_mut().for_each(|value| *value = value.clamp(0.0, 1.0));
    });
}

/// How a picture becomes its alpha's guide.
struct Guide {
    range: Range,
    moves: bool,
    moves_twice: bool,
}

impl Guide {
    fn new(pictures: &[&[f32]], range: Range) -> Guide {
        let least = pictures.iter().copied().flatten().copied().fold(f32::INFINITY, f32::min);
        Guide { range, moves: least < 0.0, moves_twice: least < -1.0 }
    }

    fn of(&self, value: f32) -> f32 {
        match self.range {
            Range::Fixed => unit(value),
            Range::Guessed if self.moves => (value + 1.0) / 2.0,
            Range::Guessed => value,
        }
    }

    fn of_edges(&self, value: f32) -> f32 {
        match self.range {
            Range::Guessed if self.moves_twice => (self.of(value) + 1.0) / 2.0,
            _ => self.of(value),
        }
    }
}

/// Whether nearly all of it is nearly 0 or 1.
fn is_mask(original: &[&Samples]) -> bool {
    let (mut clear, mut count) = (0, 0);
    for samples in original {
        let mut unit = vec![0.0; samples.len()];
        samples.copy_to_unit(0..unit.len(), &mut unit);
        clear += unit.iter().filter(|&&v| !(0.1..=0.9).contains(&v)).count();
        count += unit.len();
    }
    clear as f64 > 0.95 * count as f64
}

/// Makes the filtered mask hard away from edges and steeper on them.
fn sharpen(alpha: &mut [f32], filtered: &[f32], edges: &[f32], size: Size) {
    let binary = |v: f32| if v > 0.5 { 1.0 } else { 0.0 };
    for (i, (to, &f)) in alpha.iter_mut().zip(filtered).enumerate() {
        let edge = edges[i];
        *to = if nearby(edges, size, i) < 0.05 {
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

/// The largest edge of a pixel and its eight neighbours.
fn nearby(edges: &[f32], size: Size, i: usize) -> f32 {
    let (y, x) = (i / size.w, i % size.w);
    let around = |at: usize, end: usize| at.saturating_sub(1)..(at + 2).min(end);
    around(y, size.h).flat_map(|y| &edges[y * size.w..][around(x, size.w)]).copied().fold(0.0, f32::max)
}

/// Size of the Sobel gradient of the 8-bit grey picture, relative to its largest, in steps of 1/255 rounded down like the
/// 8-bit picture itself. A flat picture has none.
fn edge_map(picture: &[f32], size: Size, of: impl Fn(f32) -> f32) -> Vec<f32> {
    let code = |v: f32| (of(v) * 255.0) as u8 as i32;
    // Rec. 601 luma in fifteen bits.
    let grey = |rgb: &[f32]| (9798 * code(rgb[0]) + 19235 * code(rgb[1]) + 3735 * code(rgb[2]) + 16384) >> 15;
    let grey: Vec<i32> = picture.chunks_exact(3).map(grey).collect();
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

/// A neighbour's place along a side that is mirrored at its first and last pixel.
fn mirrored(at: usize, offset: isize, end: usize) -> usize {
    match at.checked_add_signed(offset) {
        None => 1.min(end - 1),
        Some(at) if at == end => end.saturating_sub(2),
        Some(at) => at,
    }
}

/// Fits a plane by a linear function of the guide in every box, and averages the fits.
struct Guided<'a> {
    guide: &'a [f32],
    size: Size,
}

impl Guided<'_> {
    fn filter(&self, x: &[f32], reach: usize) -> Vec<f32> {
        let mean = |plane: &[f32]| self.mean(plane, reach);
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

    /// Means of boxes of `2 reach + 1` a side; outside the picture are zeros, and they count.
    fn mean(&self, plane: &[f32], reach: usize) -> Vec<f32> {
        let Size { h, w } = self.size;
        let reached = |at: usize, end: usize| at.saturating_sub(reach)..(at + reach + 1).min(end);
        let mut across = Vec::with_capacity(plane.len());
        for row in plane.chunks_exact(w) {
            across.extend((0..w).map(|x| row[reached(x, w)].iter().sum::<f32>()));
        }
        let area = ((2 * reach + 1) * (2 * reach + 1)) as f32;
        let mut means = vec![0.0; plane.len()];
        for (y, out) in means.chunks_exact_mut(w).enumerate() {
            for row in across[reached(y, h).start * w..reached(y, h).end * w].chunks_exact(w) {
                out.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            out.iter_mut().for_each(|sum| *sum /= area);
        }
        means
    }
}
