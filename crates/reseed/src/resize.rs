//! Antialiased bicubic resampling (Catmull-Rom kernel) of interleaved values, in bands of rows that run in parallel.
//!
//! Pixel centres are at i + ½. When a side shrinks, the kernel is stretched by the ratio. At the borders, the weights
//! of the existing pixels are normalised to sum 1. The result can exceed the range of the input.

use std::collections::VecDeque;

use rayon::prelude::*;
use reseed_media::{Size, wide};
use reseed_ops::{Hw, Resize, ResizeAxis};

/// Output rows per parallel work item: enough that the input rows which two bands both resample cost little.
const BAND: usize = 32;

/// Weights along one axis.
struct Axis {
    /// For each output index: the first input index and the offset of its weights; one more entry at the end.
    starts: Vec<(usize, usize)>,
    weights: Vec<f32>,
}

impl Axis {
    fn new(from: usize, to: usize) -> Axis {
        let ratio = from as f64 / to as f64;
        let stretch = ratio.max(1.0);
        let (mut starts, mut weights) = (Vec::with_capacity(to + 1), Vec::new());
        for i in 0..to {
            let centre = ratio * (i as f64 + 0.5);
            let low = (centre - 2.0 * stretch + 0.5).max(0.0) as usize;
            let high = ((centre + 2.0 * stretch + 0.5) as usize).min(from);
            let row: Vec<f64> = (low..high).map(|j| cubic((j as f64 + 0.5 - centre) / stretch)).collect();
            let sum: f64 = row.iter().sum();
            starts.push((low, weights.len()));
            weights.extend(row.iter().map(|weight| (weight / sum) as f32));
        }
        starts.push((from, weights.len()));
        Axis { starts, weights }
    }

    fn weights(&self) -> ResizeAxis {
        let starts = self.starts.iter().map(|(first, start)| [*first as u32, *start as u32]).collect();
        ResizeAxis { starts, weights: self.weights.clone() }
    }

    /// The first input index of output `i`, and the weights from that index on.
    fn at(&self, i: usize) -> (usize, &[f32]) {
        let (first, start) = self.starts[i];
        (first, &self.weights[start..self.starts[i + 1].1])
    }
}

/// Keys' cubic convolution kernel with a = -½ (Catmull-Rom).
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    match x.abs() {
        x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        x if x < 2.0 => A * (((x - 5.0) * x + 8.0) * x - 4.0),
        _ => 0.0,
    }
}

/// Resamples frames of `C` interleaved channels from one size to another.
pub struct Resizer<const C: usize> {
    from: Size,
    to: Size,
    rows: Axis,
    columns: Axis,
}

impl<const C: usize> Resizer<C> {
    /// Computes the weights for one pair of sizes.
    pub fn new(from: Size, to: Size) -> Resizer<C> {
        Resizer { from, to, rows: Axis::new(from.h, to.h), columns: Axis::new(from.w, to.w) }
    }

    /// The same weights for a device.
    pub fn weights(&self) -> Resize {
        let [from, to] = [self.from, self.to].map(|Size { h, w }| Hw::new(h, w));
        Resize { from, to, rows: self.rows.weights(), columns: self.columns.weights() }
    }

    /// Output size.
    pub fn size(&self) -> Size {
        self.to
    }

    /// Writes the top left of the result to `canvas`, whose rows have `width` pixels. `row(y, values)` reads an input
    /// row; `finish` maps every output value. Pixels of the canvas outside the result are unchanged.
    pub fn run(
        &self,
        row: impl Fn(usize, &mut [f32]) + Sync,
        canvas: &mut [f32],
        width: usize,
        finish: impl Fn(f32) -> f32 + Sync,
    ) {
        let line = width * C;
        let rows = self.to.h.min(canvas.len() / line);
        canvas[..rows * line].par_chunks_mut(BAND * line).enumerate().for_each(|(band, canvas)| {
            let mut window =
                Window { resizer: self, rows: VecDeque::new(), next: 0, input: vec![0.0; self.from.w * C] };
            for (i, line) in canvas.chunks_exact_mut(line).enumerate() {
                let columns = self.to.w.min(width) * C;
                window.row(BAND * band + i, &row, &mut line[..columns]);
                line[..columns].iter_mut().for_each(|value| *value = finish(*value));
            }
        });
    }

    /// Resamples one input row along x.
    fn resample_row(&self, input: &[f32], out: &mut [f32]) {
        for (x, pixel) in out.chunks_exact_mut(C).enumerate() {
            let (first, weights) = self.columns.at(x);
            let mut sums = [0.0; C];
            for (values, weight) in input[first * C..].chunks_exact(C).zip(weights) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += weight * value;
                }
            }
            pixel.copy_from_slice(&sums);
        }
    }
}

wide! {
    /// sums ← sums + weight · values.
    fn add(values: &[f32], weight: f32, sums: &mut [f32]) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
    }
}

/// The input rows of the current output row, resampled along x.
struct Window<'a, const C: usize> {
    resizer: &'a Resizer<C>,
    rows: VecDeque<Vec<f32>>,
    /// Index of the input row after the last one in `rows`.
    next: usize,
    input: Vec<f32>,
}

impl<const C: usize> Window<'_, C> {
    /// Computes output row `y`.
    fn row(&mut self, y: usize, row: &impl Fn(usize, &mut [f32]), out: &mut [f32]) {
        let (first, weights) = self.resizer.rows.at(y);
        let mut spare: Vec<Vec<f32>> = Vec::new();
        while self.next - self.rows.len() < first {
            match self.rows.pop_front() {
                Some(old) => spare.push(old),
                None => self.next = first,
            }
        }
        while self.next < first + weights.len() {
            row(self.next, &mut self.input);
            let mut resampled = spare.pop().unwrap_or_else(|| vec![0.0; out.len()]);
            self.resizer.resample_row(&self.input, &mut resampled);
            self.rows.push_back(resampled);
            self.next += 1;
        }
        out.fill(0.0);
        for (values, weight) in self.rows.iter().zip(weights) {
            add(values, *weight, out);
        }
    }
}
