//! The degradation of the quality benchmark: a blur of 0.3 pixels of the small frame, a smaller size, noise of 5 steps
//! of 255, and a block codec of quality 65. The same as `training/degrade.py`, except for the numbers of the noise.

use std::f64::consts::PI;

use reseed_media::{Depth, Frame, Size};
use reseed_model::noise::normal;

use crate::resize::Resizer;

const BLUR: f64 = 0.3;
const NOISE: f32 = 5.0;
const QUALITY: f32 = 65.0;
const SEED: u64 = 7;

/// Steps of the published quantisation tables, at quality 50.
const LUMA: [u8; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51,
    87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
];
const CHROMA: [u8; 64] = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99,
];

/// Frames of a clip, `scale` times smaller and degraded. Sides must be multiples of the scale.
pub fn frames(originals: &[Frame], scale: usize) -> Vec<Frame> {
    let from = originals[0].size;
    let size = Size { h: from.h / scale, w: from.w / scale };
    let resizer = Resizer::<3>::new(from, size);
    let count = 3 * size.pixels();
    let noise = normal(SEED, originals.len() * count);
    let one = |(i, frame): (usize, &Frame)| {
        let blurred = blur(&frame.to_unit(), from, BLUR * scale as f64);
        let mut small = vec![0.0; count];
        let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&blurred[3 * from.w * y..][..3 * from.w]);
        resizer.run(row, &mut small, size.w, |value| value);
        small.iter_mut().zip(&noise[i * count..]).for_each(|(value, noise)| *value += noise * NOISE / 255.0);
        let noisy = Frame::from_unit(size, &small, Depth::Eight);
        Frame::from_unit(size, &block_codec(&noisy.to_unit(), size, QUALITY), Depth::Eight)
    };
    originals.iter().enumerate().map(one).collect()
}

/// A Gaussian blur whose weights sum to one at edges too.
fn blur(frame: &[f32], size: Size, sigma: f64) -> Vec<f32> {
    let reach = (8.0 * sigma).ceil() as usize;
    let weights: Vec<f64> = (0..=reach).map(|d| (-(d as f64 / sigma).powi(2) / 2.0).exp()).collect();
    let along = |values: &[f32], length: usize, place: &dyn Fn(usize) -> (usize, usize, usize)| -> Vec<f32> {
        let one = |i: usize| {
            let (start, at, step) = place(i);
            let range = at.saturating_sub(reach)..(at + reach + 1).min(length);
            let (mut sum, mut total) = (0.0, 0.0);
            for j in range {
                let weight = weights[j.abs_diff(at)];
                sum += weight * f64::from(values[start + j * step]);
                total += weight;
            }
            (sum / total) as f32
        };
        (0..values.len()).map(one).collect()
    };
    let line = 3 * size.w;
    let across = along(frame, size.w, &|i| (i / line * line + i % 3, i % line / 3, 3));
    along(&across, size.h, &|i| (i % line, i / line, line))
}

/// RGB values in [0, 1] after JPEG's quantisation, with chroma at full resolution.
fn block_codec(frame: &[f32], size: Size, quality: f32) -> Vec<f32> {
    let scale = if quality < 50.0 { 50.0 / quality } else { (2.0 - quality / 50.0).max(0.01) };
    let steps =
        [LUMA, CHROMA, CHROMA].map(|table| table.map(|s| (f32::from(s) * scale).round_ties_even().clamp(1.0, 255.0)));
    let cosines = cosines();
    let mut out = vec![0.0; frame.len()];
    for top in (0..size.h).step_by(8) {
        for left in (0..size.w).step_by(8) {
            // Edge pixels are repeated outside of the frame.
            let pixel = |i: usize| 3 * ((top + i / 8).min(size.h - 1) * size.w + (left + i % 8).min(size.w - 1));
            let codes: [[f32; 3]; 64] = std::array::from_fn(|i| to_ycc(&frame[pixel(i)..][..3]));
            let channels: [[f32; 64]; 3] =
                std::array::from_fn(|c| quantised(&std::array::from_fn(|i| codes[i][c]), &steps[c], &cosines));
            for i in 0..64 {
                if top + i / 8 < size.h && left + i % 8 < size.w {
                    out[pixel(i)..][..3].copy_from_slice(&to_rgb(channels.map(|channel| channel[i])));
                }
            }
        }
    }
    out
}

/// In steps of 255, luma around zero.
fn to_ycc(rgb: &[f32]) -> [f32; 3] {
    let [r, g, b] = [rgb[0], rgb[1], rgb[2]].map(|value| 255.0 * value);
    [
        0.299 * r + 0.587 * g + 0.114 * b - 128.0,
        -0.168736 * r - 0.331264 * g + 0.5 * b,
        0.5 * r - 0.418688 * g - 0.081312 * b,
    ]
}

fn to_rgb([y, cb, cr]: [f32; 3]) -> [f32; 3] {
    let y = y + 128.0;
    [y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb].map(|value| (value / 255.0).clamp(0.0, 1.0))
}

/// The orthonormal cosine transform of eight values: row k is frequency k.
fn cosines() -> [[f32; 8]; 8] {
    std::array::from_fn(|k| {
        let gain = if k == 0 { 0.5f64.sqrt() } else { 1.0 } / 2.0;
        std::array::from_fn(|i| (gain * ((2 * i + 1) as f64 * k as f64 * PI / 16.0).cos()) as f32)
    })
}

/// A block through the transform, quantised, and back.
fn quantised(block: &[f32; 64], steps: &[f32; 64], c: &[[f32; 8]; 8]) -> [f32; 64] {
    let product = |a: &dyn Fn(usize, usize) -> f32, b: &dyn Fn(usize, usize) -> f32| -> [f32; 64] {
        std::array::from_fn(|i| (0..8).map(|k| a(i / 8, k) * b(k, i % 8)).sum())
    };
    let rows = product(&|y, k| c[y][k], &|k, x| block[8 * k + x]);
    let mut frequencies = product(&|y, k| rows[8 * y + k], &|k, x| c[x][k]);
    frequencies.iter_mut().zip(steps).for_each(|(f, step)| *f = (*f / step).round_ties_even() * step);
    let rows = product(&|y, k| c[k][y], &|k, x| frequencies[8 * k + x]);
    product(&|y, k| rows[8 * y + k], &|k, x| c[k][x])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { h: 11, w: 19 };

    fn wave() -> Vec<f32> {
        (0..3 * SIZE.pixels()).map(|i| 0.5 + 0.4 * ((i / 3 % 19) as f32 * 0.7 + (i % 3) as f32).sin()).collect()
    }

    #[test]
    fn a_blur_keeps_what_is_flat_and_spreads_a_point_as_its_formula_says() {
        assert!(blur(&vec![0.3; 3 * SIZE.pixels()], SIZE, 1.2).iter().all(|v| (v - 0.3).abs() < 1e-6));
        let size = Size { h: 21, w: 21 };
        let mut point = vec![0.0; 3 * size.pixels()];
        point[3 * (10 * 21 + 10)] = 1.0;
        let spread = blur(&point, size, 1.2);
        let total: f64 = (-10i32..=10).map(|d| (-f64::from(d * d) / 2.88).exp()).sum();
        let want = (-(f64::from(4) + 1.0) / 2.88).exp() / total.powi(2);
        assert!((f64::from(spread[3 * (12 * 21 + 11)]) - want).abs() < 1e-6);
        assert_eq!(spread[3 * (12 * 21 + 11) + 1], 0.0, "channels are kept apart");
    }

    #[test]
    fn the_finest_quality_keeps_a_frame_and_the_coarsest_keeps_the_means_of_its_blocks() {
        let fine = block_codec(&wave(), SIZE, 100.0);
        // Every step is one: a coefficient is off by half at most, a pixel by a few steps of 255.
        assert!(fine.iter().zip(&wave()).all(|(a, b)| (a - b).abs() < 6.0 / 255.0));
        let faint: Vec<f32> = wave().iter().map(|value| 0.5 + (value - 0.5) / 20.0).collect();
        let coarse = block_codec(&faint, SIZE, 1.0);
        assert!(coarse.chunks_exact(3).take(8).all(|p| (p[0] - coarse[0]).abs() < 1e-4), "one colour a block");
    }

    // From `block_codec` of training/degrade.py, evaluated once.
    #[test]
    fn the_codec_is_the_one_of_the_training() {
        let coded = block_codec(&wave(), SIZE, 65.0);
        let first = [0.506947, 0.844599, 0.838827, 0.733796, 0.892408, 0.699456];
        let last = [0.294862, 0.611991, 0.852016, 0.487184, 0.824499, 0.90982];
        let close = |got: &[f32], want: [f32; 6]| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 2e-5);
        assert!(close(&coded[..6], first), "{:?}", &coded[..6]);
        assert!(close(&coded[coded.len() - 6..], last), "{:?}", &coded[coded.len() - 6..]);
    }

    #[test]
    fn degraded_frames_are_small_noisy_and_always_the_same() {
        let size = Size { h: 32, w: 48 };
        let flat = vec![Frame::from_unit(size, &vec![0.5; 3 * size.pixels()], Depth::Eight); 2];
        let (once, again) = (frames(&flat, 4), frames(&flat, 4));
        assert_eq!(once, again);
        assert_eq!(once[0].size, Size { h: 8, w: 12 });
        assert_ne!(once[0], once[1], "no two frames have the same noise");
    }
}
