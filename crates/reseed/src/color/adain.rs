//! Adaptive instance normalisation (AdaIN), per frame and channel: (x - mean_content) / std_content · std_style +
//! mean_style. The result is not clamped.

use rayon::prelude::*;

use super::RUN;

/// Added to the variance, so that a constant channel does not divide by 0.
const EPSILON: f64 = 1e-5;

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>]) {
    content.par_iter_mut().zip(style).for_each(|(content, style)| {
        let (from, to) = (Moments::of(content), Moments::of(style));
        let gain = [0, 1, 2].map(|c| to.std[c] / from.std[c]);
        let shift = [0, 1, 2].map(|c| to.mean[c] - from.mean[c] * gain[c]);
        content.par_chunks_mut(3 * RUN).for_each(|run| {
            for pixel in run.chunks_exact_mut(3) {
                for c in 0..3 {
                    pixel[c] = (f64::from(pixel[c]) * gain[c] + shift[c]) as f32;
                }
            }
        });
    });
}

struct Moments {
    mean: [f64; 3],
    std: [f64; 3],
}

impl Moments {
    /// Mean and standard deviation sqrt(unbiased variance + ε) of each channel.
    fn of(frame: &[f32]) -> Moments {
        let count = frame.len() / 3;
        let mean = sums(frame, |_, value| value).map(|sum| sum / count as f64);
        let squares = sums(frame, |c, value| (value - mean[c]) * (value - mean[c]));
        // The variance of a single pixel is 0.
        let std = squares.map(|sum| (sum / (count.max(2) - 1) as f64 + EPSILON).sqrt());
        Moments { mean, std }
    }
}

/// Sum of `term` per channel. Partial sums are added in a fixed order, so the result does not depend on the number of
/// threads.
fn sums(frame: &[f32], term: impl Fn(usize, f64) -> f64 + Sync) -> [f64; 3] {
    let run = |run: &[f32]| {
        run.chunks_exact(3).fold([0.0; 3], |sums, pixel| [0, 1, 2].map(|c| sums[c] + term(c, f64::from(pixel[c]))))
    };
    let runs: Vec<[f64; 3]> = frame.par_chunks(3 * RUN).map(run).collect();
    runs.iter().fold([0.0; 3], |total, run| [0, 1, 2].map(|c| total[c] + run[c]))
}
