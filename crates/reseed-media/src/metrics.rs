//! Similarity of two frames of the same size.

mod detail;

use crate::frame::{Frame, Size};
pub use detail::detail;

const WINDOW: usize = 11;
const SIGMA: f64 = 1.5;
const C1: f64 = 0.01 * 0.01; // (K1 L)², with L = 1 for values in [0, 1]
const C2: f64 = 0.03 * 0.03; // (K2 L)²
const GMSD_C: f64 = 170.0 / (255.0 * 255.0); // the published constant, for values in [0, 1]

/// Peak signal-to-noise ratio in dB over all RGB values in [0, 1]; infinite for equal frames.
pub fn psnr(a: &Frame, b: &Frame) -> f64 {
    assert_same_size(a, b);
    let (a, b) = (a.to_unit(), b.to_unit());
    let squares: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    -10.0 * (squares / a.len() as f64).log10()
}

/// Peak signal-to-noise ratio in dB over BT.601 luma; infinite for equal luma.
pub fn psnr_luma(a: &Frame, b: &Frame) -> f64 {
    assert_same_size(a, b);
    let (a, b) = (luma(a), luma(b));
    let squares: f64 = a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum();
    -10.0 * (squares / a.len() as f64).log10()
}

/// Mean structural similarity (Wang et al. 2004) of BT.601 luma in [0, 1]: Gaussian window of 11x11, sigma 1.5,
/// K1 = 0.01, K2 = 0.03, over the positions where the window is inside the frame. A frame with a side under eleven uses
/// the largest odd window that fits its shorter side.
pub fn ssim(a: &Frame, b: &Frame) -> f64 {
    assert_same_size(a, b);
    let window = Window::fitting(a.size);
    let (a, b) = (luma(a), luma(b));
    let product = |x: &[f64], y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x * y).collect() };

    let mean_a = window.blur(&a);
    let mean_b = window.blur(&b);
    let square_a = window.blur(&product(&a, &a));
    let square_b = window.blur(&product(&b, &b));
    let cross = window.blur(&product(&a, &b));

    let similarity = |i: usize| {
        let (ma, mb) = (mean_a[i], mean_b[i]);
        let (var_a, var_b, cov) = (square_a[i] - ma * ma, square_b[i] - mb * mb, cross[i] - ma * mb);
        (2.0 * ma * mb + C1) * (2.0 * cov + C2) / ((ma * ma + mb * mb + C1) * (var_a + var_b + C2))
    };
    (0..mean_a.len()).map(similarity).sum::<f64>() / mean_a.len() as f64
}

/// Gradient magnitude similarity deviation (Xue et al. 2014) of BT.601 luma. Zero for equal frames, larger is worse; it
/// correlates with human judgement better than PSNR. Luma is averaged over 2x2 pixels, then Prewitt gradients are taken
/// where they are inside the frame. A frame too small for a gradient scores zero.
pub fn gmsd(a: &Frame, b: &Frame) -> f64 {
    assert_same_size(a, b);
    let size = Size { h: a.size.h / 2, w: a.size.w / 2 };
    let [a, b] = [a, b].map(|frame| gradients(&halved(&luma(frame), frame.size.w), size));
    let similarity = |(a, b): (&f64, &f64)| (2.0 * a * b + GMSD_C) / (a * a + b * b + GMSD_C);
    let map: Vec<f64> = a.iter().zip(&b).map(similarity).collect();
    let count = map.len().max(1) as f64;
    let mean = map.iter().sum::<f64>() / count;
    (map.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Difference in temporal change between two clips: the mean absolute difference of the frame-to-frame differences of
/// all RGB values, on a scale of 255. Large for a clip that flickers or smears motion.
pub fn flicker(a: [&Frame; 2], b: [&Frame; 2]) -> f64 {
    assert_same_size(a[0], b[0]);
    assert!(a[1].size == a[0].size && b[1].size == b[0].size, "frames of one clip must have the same size");
    let [[a, next_a], [b, next_b]] = [a, b].map(|pair| pair.map(Frame::to_unit));
    let step = |i: usize| f64::from((next_a[i] - a[i]) - (next_b[i] - b[i])).abs();
    255.0 * (0..a.len()).map(step).sum::<f64>() / a.len() as f64
}

/// Averages blocks of 2x2 values.
fn halved(plane: &[f64], width: usize) -> Vec<f64> {
    let row = |rows: &[f64]| {
        let (above, below) = rows.split_at(width);
        let pairs = above.chunks_exact(2).zip(below.chunks_exact(2));
        pairs.map(|(a, b)| (a[0] + a[1] + b[0] + b[1]) / 4.0).collect::<Vec<f64>>()
    };
    plane.chunks_exact(2 * width).flat_map(row).collect()
}

/// Magnitudes of Prewitt gradients, scaled by 1/3, at positions with all nine neighbours.
fn gradients(plane: &[f64], size: Size) -> Vec<f64> {
    let Size { h, w } = size;
    let at = |y: usize, x: usize| plane[y * w + x];
    let length = |y: usize, x: usize| {
        let across: f64 = (y - 1..=y + 1).map(|y| at(y, x + 1) - at(y, x - 1)).sum();
        let down: f64 = (x - 1..=x + 1).map(|x| at(y + 1, x) - at(y - 1, x)).sum();
        (across * across + down * down).sqrt() / 3.0
    };
    (1..h.saturating_sub(1))
        .flat_map(|y| (1..w.saturating_sub(1)).map(move |x| (y, x)))
        .map(|(y, x)| length(y, x))
        .collect()
}

fn assert_same_size(a: &Frame, b: &Frame) {
    assert_eq!(a.size, b.size, "frames to compare must have the same size");
    assert!(a.size.pixels() > 0, "frames to compare must not be empty");
}

fn luma(frame: &Frame) -> Vec<f64> {
    let weigh = |rgb: &[f32]| 0.299 * f64::from(rgb[0]) + 0.587 * f64::from(rgb[1]) + 0.114 * f64::from(rgb[2]);
    frame.to_unit().chunks_exact(3).map(weigh).collect()
}

struct Window {
    size: Size,
    weights: Vec<f64>,
}

impl Window {
    fn fitting(size: Size) -> Window {
        let shorter = size.h.min(size.w).min(WINDOW);
        let length = shorter - usize::from(shorter.is_multiple_of(2));
        let centre = (length / 2) as f64;
        let gauss = |i: usize| (-(i as f64 - centre).powi(2) / (2.0 * SIGMA * SIGMA)).exp();
        let total: f64 = (0..length).map(gauss).sum();
        Window { size, weights: (0..length).map(|i| gauss(i) / total).collect() }
    }

    /// Weighted means under the window, at every position where it is inside the frame.
    fn blur(&self, plane: &[f64]) -> Vec<f64> {
        let Size { h, w } = self.size;
        let margin = self.weights.len() - 1;
        let mut rows = Vec::with_capacity(h * (w - margin));
        for row in plane.chunks_exact(w) {
            rows.extend(row.windows(self.weights.len()).map(|values| dot(values.iter().copied(), &self.weights)));
        }
        let w = w - margin;
        let mut means = Vec::with_capacity((h - margin) * w);
        for y in 0..h - margin {
            for x in 0..w {
                means.push(dot(rows[y * w + x..].iter().copied().step_by(w), &self.weights));
            }
        }
        means
    }
}

fn dot(values: impl Iterator<Item = f64>, weights: &[f64]) -> f64 {
    weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Samples;

    fn grey(size: Size, code: u8) -> Frame {
        Frame { size, samples: Samples::U8(vec![code; 3 * size.pixels()]), alpha: None }
    }

    fn texture(size: Size) -> Frame {
        let code = |i: usize| (i.wrapping_mul(2654435761) >> 7) as u8;
        Frame { size, samples: Samples::U8((0..3 * size.pixels()).map(code).collect()), alpha: None }
    }

    #[test]
    fn equal_frames_have_infinite_psnr_and_ssim_one() {
        for size in [Size { h: 1, w: 1 }, Size { h: 4, w: 30 }, Size { h: 33, w: 17 }] {
            let frame = texture(size);
            assert_eq!(psnr(&frame, &frame), f64::INFINITY);
            assert!((ssim(&frame, &frame) - 1.0).abs() < 1e-12, "{size}");
        }
    }

    #[test]
    fn a_constant_offset_has_a_known_psnr_and_ssim() {
        let size = Size { h: 16, w: 20 };
        let (a, b) = (grey(size, 100), grey(size, 110));
        assert!((psnr(&a, &b) - 20.0 * (255.0f64 / 10.0).log10()).abs() < 1e-4);

        let (x, y) = (100.0 / 255.0, 110.0 / 255.0);
        let expected = (2.0 * x * y + C1) / (x * x + y * y + C1);
        assert!((ssim(&a, &b) - expected).abs() < 1e-6);
    }

    #[test]
    fn psnr_does_not_depend_on_the_depth() {
        let size = Size { h: 12, w: 12 };
        let deep = Frame { size, samples: Samples::U16(vec![100 * 257; 3 * size.pixels()]), alpha: None };
        assert_eq!(psnr(&grey(size, 100), &deep), f64::INFINITY);
    }

    #[test]
    fn noise_lowers_ssim() {
        let size = Size { h: 32, w: 32 };
        assert!(ssim(&grey(size, 128), &texture(size)) < 0.1);
    }

    // Expected values from a float64 implementation in numpy.
    #[test]
    fn gmsd_and_luma_psnr_match_reference_values() {
        let size = Size { h: 33, w: 18 };
        let (a, b) = (texture(size), blurred(&texture(size)));
        assert!((gmsd(&a, &b) - 0.107845790).abs() < 1e-6, "{}", gmsd(&a, &b));
        assert!((psnr_luma(&a, &b) - 16.223122).abs() < 1e-4, "{}", psnr_luma(&a, &b));
        assert_eq!(gmsd(&a, &a), 0.0);
        assert_eq!(gmsd(&grey(Size { h: 5, w: 4 }, 3), &grey(Size { h: 5, w: 4 }, 200)), 0.0);
    }

    /// Replaces every sample by the rounded mean of itself and the sample of the previous pixel.
    fn blurred(frame: &Frame) -> Frame {
        let Samples::U8(samples) = &frame.samples else { panic!("expected eight bits") };
        let mean = |i: usize| (u16::from(samples[i]) + u16::from(samples[i.saturating_sub(3)])).div_ceil(2) as u8;
        Frame { samples: Samples::U8((0..samples.len()).map(mean).collect()), ..frame.clone() }
    }

    #[test]
    fn flicker_is_the_mean_difference_of_frame_steps() {
        let size = Size { h: 4, w: 6 };
        let [dark, light, middle] = [10, 30, 15].map(|code| grey(size, code));
        assert!((flicker([&dark, &light], [&dark, &middle]) - 15.0).abs() < 1e-4);
        // A constant offset between the clips is no flicker.
        assert!(flicker([&dark, &grey(size, 40)], [&light, &grey(size, 60)]) < 1e-4);
    }
}
