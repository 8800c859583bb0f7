//! How far two frames of one size are apart.

use crate::frame::{Frame, Size};

const WINDOW: usize = 11;
const SIGMA: f64 = 1.5;
const C1: f64 = 0.01 * 0.01; // (K1 L)², with L = 1 for values in [0, 1]
const C2: f64 = 0.03 * 0.03; // (K2 L)²

/// Peak signal-to-noise ratio in dB over all RGB values in [0, 1]; infinite for equal frames.
pub fn psnr(a: &Frame, b: &Frame) -> f64 {
    assert_same_size(a, b);
    let (a, b) = (a.to_unit(), b.to_unit());
    let squares: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    -10.0 * (squares / a.len() as f64).log10()
}

/// Mean structural similarity (Wang et al. 2004) of BT.601 luma in [0, 1]: Gaussian window of 11x11, sigma 1.5,
/// K1 = 0.01, K2 = 0.03, over the positions where the window lies wholly inside. A picture with a side under eleven gets
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

fn assert_same_size(a: &Frame, b: &Frame) {
    assert_eq!(a.size, b.size, "frames to compare must have one size");
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

    /// Weighted means under the window, at every position where it lies inside the picture.
    fn blur(&self, plane: &[f64]) -> Vec<f64> {
        let Size { h, w } = self.size;
        let margin = self.weights.len() - 1;
        let mut rows = Vec::with_capacity(h * (w - margin));
        for row in plane.chunks_exact(w) {
            rows.extend(row.windows(self.weights.len()).map(|under| dot(under.iter().copied(), &self.weights)));
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
    fn equal_frames_are_perfect() {
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
    fn depth_does_not_matter() {
        let size = Size { h: 12, w: 12 };
        let deep = Frame { size, samples: Samples::U16(vec![100 * 257; 3 * size.pixels()]), alpha: None };
        assert_eq!(psnr(&grey(size, 100), &deep), f64::INFINITY);
    }

    #[test]
    fn noise_lowers_ssim() {
        let size = Size { h: 32, w: 32 };
        assert!(ssim(&grey(size, 128), &texture(size)) < 0.1);
    }
}
