//! The definition of every op: plain loops in double precision, written to be read.
//!
//! The CPU device runs these at its reference level and rounds each result once.

mod tokens;

use rayon::prelude::*;

use crate::int8::Int8Rows;
use crate::operands::{Activation, Placement};
use crate::shape::Thw;
use crate::weights::{BORDER_CLASSES, ClipPosition, ConvSpec, UpsampleSpec, border_class};
pub use tokens::{gated_add, gather_rows, gelu, qk_norm_rope, rms_norm_modulate, swiglu};

/// Frames, rows, columns, channels of doubles.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// Frames, rows and columns.
    pub thw: Thw,
    /// Channels.
    pub channels: usize,
    /// Values, channels fastest.
    pub data: Vec<f64>,
}

impl Clip {
    /// Zeros.
    pub fn zeros(thw: Thw, channels: usize) -> Clip {
        Clip { thw, channels, data: vec![0.0; thw.count() * channels] }
    }

    /// Channels of a pixel, or nothing outside the plane.
    pub fn pixel(&self, t: usize, y: isize, x: isize) -> Option<&[f64]> {
        let inside = |i: isize, n: usize| (0..n as isize).contains(&i);
        if !inside(y, self.thw.h) || !inside(x, self.thw.w) {
            return None;
        }
        let at = ((t * self.thw.h + y as usize) * self.thw.w + x as usize) * self.channels;
        Some(&self.data[at..at + self.channels])
    }

    /// Frame `t` of this clip, counted from its first frame. Frames before it come from the cache; without a cache they
    /// are copies of the first frame.
    fn frame_or_cached<'a>(&'a self, cache: Option<&'a Clip>, t: isize) -> (&'a Clip, usize) {
        match cache {
            Some(cache) if t < 0 => (cache, (cache.thw.t as isize + t) as usize),
            _ => (self, t.max(0) as usize),
        }
    }
}

/// Pixels that are summed together: a row of weights is read once for all of them.
const RUN: usize = 8;
/// Rows of weights that are added at a time, one after the other.
const ROWS: usize = 4;

/// acc += weight · pixel, weight `[c_in, c_out]`.
fn accumulate(acc: &mut [f64], pixel: &[f64], weight: &[f64]) {
    let c_out = acc.len();
    accumulate_run(acc, c_out, &[Some(pixel)], weight);
}

/// The same for a run of pixels, each with its own sums. Pixels outside of the plane add nothing.
fn accumulate_run(run: &mut [f64], c_out: usize, pixels: &[Option<&[f64]>], weight: &[f64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: this CPU has AVX-512.
        return unsafe { accumulate_wide(run, c_out, pixels, weight) };
    }
    accumulate_rows(run, c_out, pixels, weight);
}

/// [`accumulate_rows`] in vectors of eight doubles. Every sum keeps its order, and Rust fuses no product with a sum, so
/// that the results are the same to the bit.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn accumulate_wide(run: &mut [f64], c_out: usize, pixels: &[Option<&[f64]>], weight: &[f64]) {
    accumulate_rows(run, c_out, pixels, weight);
}

#[inline(always)]
fn accumulate_rows(run: &mut [f64], c_out: usize, pixels: &[Option<&[f64]>], weight: &[f64]) {
    for (i, rows) in weight.chunks(ROWS * c_out).enumerate() {
        for (acc, pixel) in run.chunks_exact_mut(c_out).zip(pixels) {
            let Some(pixel) = pixel else { continue };
            let values = &pixel[ROWS * i..];
            match (values, rows.len() / c_out) {
                (&[a, b, c, d, ..], ROWS) => {
                    let (first, second) = rows.split_at(2 * c_out);
                    let ((w, x), (y, z)) = (first.split_at(c_out), second.split_at(c_out));
                    for ((((sum, w), x), y), z) in acc.iter_mut().zip(w).zip(x).zip(y).zip(z) {
                        *sum = *sum + a * w + b * x + c * y + d * z;
                    }
                }
                _ => {
                    for (value, row) in values.iter().zip(rows.chunks_exact(c_out)) {
                        acc.iter_mut().zip(row).for_each(|(sum, w)| *sum += value * w);
                    }
                }
            }
        }
    }
}

/// From `[c_out, c_in, taps]` to `[taps, c_in, c_out]`.
pub fn taps_first(weight: &[f32], c_in: usize, c_out: usize) -> Vec<f64> {
    let taps = weight.len() / (c_in * c_out);
    let mut out = vec![0.0; weight.len()];
    // In this order both sides stay in the cache.
    for i in 0..c_in {
        for o in 0..c_out {
            for (k, value) in weight[(o * c_in + i) * taps..][..taps].iter().enumerate() {
                out[(k * c_in + i) * c_out + o] = f64::from(*value);
            }
        }
    }
    out
}

fn product(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}

/// Causal convolution; `weight` in the order of [`taps_first`].
pub fn conv(cache: Option<&Clip>, x: &Clip, spec: &ConvSpec, weight: &[f64], bias: &[f64]) -> Clip {
    let ConvSpec { taps, stride, c_in, c_out, .. } = *spec;
    let head = if cache.is_none() { taps.t - 1 } else { spec.cached_frames() } as isize;
    let pad = spec.pad_before as isize;
    let mut y = Clip::zeros(spec.output(x.thw, cache.is_none()), c_out);
    let Thw { h, w, .. } = y.thw;
    y.data.par_chunks_mut(w * c_out).enumerate().for_each(|(line, out)| {
        let (t, row) = (line / h, line % h);
        out.chunks_exact_mut(c_out).for_each(|acc| acc.copy_from_slice(bias));
        for (first, run) in out.chunks_mut(RUN * c_out).enumerate().map(|(i, run)| (RUN * i, run)) {
            for (dt, dy, dx) in product(taps.t, taps.h, taps.w) {
                let (clip, frame) = x.frame_or_cached(cache, (t * stride.t + dt) as isize - head);
                let at = |column: usize| {
                    let (py, px) = (row * stride.h + dy, column * stride.w + dx);
                    clip.pixel(frame, py as isize - pad, px as isize - pad)
                };
                let pixels: Vec<_> = (first..first + run.len() / c_out).map(at).collect();
                let tap = (dt * taps.h + dy) * taps.w + dx;
                accumulate_run(run, c_out, &pixels, &weight[tap * c_in * c_out..][..c_in * c_out]);
            }
        }
    });
    y
}

/// Merged upsampler weights, each phase in the order of [`taps_first`].
pub struct UpsampleWeights {
    /// Per phase: `[t, 2, 2, c, c]`.
    pub kernels: Vec<Vec<f64>>,
    /// Per phase: `[2, 2, c, c]`.
    pub after_first: Vec<Vec<f64>>,
    /// As in [`crate::Merged::bias`].
    pub bias: Vec<f64>,
}

/// Merged upsampling; with `after_first` the cache holds only the clip's first frame.
pub fn upsample(
    cache: Option<&Clip>,
    after_first: bool,
    x: &Clip,
    spec: &UpsampleSpec,
    weights: &UpsampleWeights,
) -> Clip {
    let (starts, c, taps_t) = (cache.is_none(), spec.channels, spec.taps_t());
    let mut y = Clip::zeros(spec.output(x.thw, starts), c);
    let Thw { h, w, .. } = y.thw;
    y.data.par_chunks_mut(w * c).enumerate().for_each(|(line, out)| {
        let (t, row) = (line / h, line % h);
        let (k, z, position) = low_frame(spec, t, starts, after_first);
        for (column, acc) in out.chunks_exact_mut(c).enumerate() {
            let phase = (z * 2 + row % 2) * 2 + column % 2;
            let class = border_class(row, h) * BORDER_CLASSES + border_class(column, w);
            let bias = (position as usize * spec.frames() + z) * BORDER_CLASSES * BORDER_CLASSES + class;
            acc.copy_from_slice(&weights.bias[bias * c..][..c]);
            for (dt, dy, dx) in product(taps_t, 2, 2) {
                let (clip, frame) = x.frame_or_cached(cache, k as isize + dt as isize + 1 - taps_t as isize);
                let (i, j) = (row / 2 + dy + row % 2, column / 2 + dx + column % 2);
                if let Some(pixel) = clip.pixel(frame, i as isize - 1, j as isize - 1) {
                    let previous = spec.time && dt == 0 && position != ClipPosition::Later;
                    let kernel = if previous { &weights.after_first[phase] } else { &weights.kernels[phase] };
                    let tap = (dt * 2 + dy) * 2 + dx;
                    accumulate(acc, pixel, &kernel[tap * c * c..][..c * c]);
                }
            }
        }
    });
    y
}

/// Low-resolution frame, time phase and clip position of output frame `t` of a slice.
pub fn low_frame(spec: &UpsampleSpec, t: usize, starts: bool, after_first: bool) -> (usize, usize, ClipPosition) {
    if !spec.time {
        return (t, 0, ClipPosition::Later);
    }
    let shifted = t + usize::from(starts);
    let (k, z) = (shifted / 2, shifted % 2);
    match k {
        0 if starts => (0, 0, ClipPosition::Start),
        0 if after_first => (k, z, ClipPosition::Second),
        1 if starts => (k, z, ClipPosition::Second),
        _ => (k, z, ClipPosition::Later),
    }
}

/// Mean and biased variance of each frame and group, `[T, groups, 2]`.
pub fn stats(x: &Clip, groups: usize) -> Vec<f64> {
    let (width, frame) = (x.channels / groups, x.thw.h * x.thw.w * x.channels);
    let count = (x.thw.h * x.thw.w * width) as f64;
    let mut out = Vec::new();
    for frame in x.data.chunks_exact(frame) {
        for group in 0..groups {
            let values = || frame.chunks_exact(x.channels).flat_map(|p| &p[group * width..][..width]);
            let mean = values().sum::<f64>() / count;
            let variance = values().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
            out.extend([mean, variance]);
        }
    }
    out
}

/// act((x - mean) / sqrt(var + eps) · gain + shift).
pub fn group_norm(x: &mut Clip, stats: &[f64], gain: &[f64], shift: &[f64], eps: f64, act: Activation) {
    let (channels, frame) = (x.channels, x.thw.h * x.thw.w * x.channels);
    let groups = stats.len() / 2 / x.thw.t;
    for (t, frame) in x.data.chunks_exact_mut(frame).enumerate() {
        for pixel in frame.chunks_exact_mut(channels) {
            for (c, value) in pixel.iter_mut().enumerate() {
                let at = (t * groups + c / (channels / groups)) * 2;
                let y = (*value - stats[at]) / (stats[at + 1] + eps).sqrt() * gain[c] + shift[c];
                *value = match act {
                    Activation::None => y,
                    Activation::Silu => y / (1.0 + (-y).exp()),
                };
            }
        }
    }
}

/// x Wᵀ + b; `weight` `[d_in, d_out]`.
pub fn linear(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let (d_in, d_out) = (weight.len() / bias.len(), bias.len());
    let mut y = vec![0.0; x.len() / d_in * d_out];
    y.par_chunks_mut(RUN * d_out).zip(x.par_chunks(RUN * d_in)).for_each(|(run, rows)| {
        run.chunks_exact_mut(d_out).for_each(|acc| acc.copy_from_slice(bias));
        let rows: Vec<_> = rows.chunks_exact(d_in).map(Some).collect();
        accumulate_run(run, d_out, &rows, weight);
    });
    y
}

/// x Wᵀ + b of rows and a matrix in bytes; `bias` has a value for each row of the matrix.
pub fn linear_int8(x: &Int8Rows, weight: &Int8Rows, bias: &[f64]) -> Vec<f64> {
    let (d_in, d_out) = (weight.bytes.len() / bias.len(), bias.len());
    let mut y = vec![0.0; x.scales.len() * d_out];
    y.par_chunks_mut(d_out).zip(x.bytes.par_chunks(d_in)).zip(&x.scales).for_each(|((out, row), &scale)| {
        for (o, (out, column)) in out.iter_mut().zip(weight.bytes.chunks_exact(d_in)).enumerate() {
            let sum: i32 = row.iter().zip(column).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
            *out = f64::from(sum) * f64::from(scale) * f64::from(weight.scales[o]) + bias[o];
        }
    });
    y
}

/// Softmax attention within consecutive sequences; `qkv` is `[N, 3 · width]`.
pub fn attention(qkv: &[f64], width: usize, heads: usize, lengths: &[usize]) -> Vec<f64> {
    let d = width / heads;
    let mut out = vec![0.0; qkv.len() / 3];
    let mut start = 0;
    for &n in lengths {
        let tokens = &qkv[start * 3 * width..][..n * 3 * width];
        let part = |token: usize, which: usize, head: usize| &tokens[(token * 3 + which) * width + head * d..][..d];
        out[start * width..][..n * width].par_chunks_mut(width).enumerate().for_each(|(i, row)| {
            for (head, acc) in row.chunks_exact_mut(d).enumerate() {
                let score = |j| dot(part(i, 0, head), part(j, 1, head)) / (d as f64).sqrt();
                let scores: Vec<f64> = (0..n).map(score).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                for (j, s) in scores.iter().enumerate() {
                    accumulate(acc, &[(s - top).exp() / total], part(j, 2, head));
                }
            }
        });
        start += n;
    }
    out
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// canvas += rows · columns · tile, and canvas = tile where that weight is one.
pub fn blend_add(canvas: &mut Clip, tile: &Clip, at: &Placement) {
    let Thw { t, h, w } = tile.thw;
    for (frame, row, column) in product(t, h, w) {
        let weight = f64::from(at.rows[row]) * f64::from(at.columns[column]);
        let from = ((frame * h + row) * w + column) * tile.channels;
        let to = ((frame * canvas.thw.h + at.y + row) * canvas.thw.w + at.x + column) * tile.channels;
        for c in 0..tile.channels {
            let below = if weight == 1.0 { 0.0 } else { canvas.data[to + c] };
            canvas.data[to + c] = below + weight * tile.data[from + c];
        }
    }
}
