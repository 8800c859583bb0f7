//! Each frame and channel is given the style's mean and standard deviation. Not clamped.

use rayon::prelude::*;

use super::RUN;

/// Keeps flat channels from dividing by nothing.
const EPSILON: f64 = 1e-5;

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>]) {
    content.par_iter_mut().zip(style).for_each(|(content, style)| {
        let (from, to) = (Moments::of(content), Moments::of(style));
        let gain = [0, 1, 2].map(|c| to.deviation[c] / from.deviation[c]);
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
    deviation: [f64; 3],
}

impl Moments {
    fn of(picture: &[f32]) -> Moments {
        let count = picture.len() / 3;
        let mean = sums(picture, |_, value| value).map(|sum| sum / count as f64);
        let squares = sums(picture, |c, value| (value - mean[c]).powi(2));
        // One pixel has no spread.
        let deviation = squares.map(|sum| (sum / (count.max(2) - 1) as f64 + EPSILON).sqrt());
        Moments { mean, deviation }
    }
}

/// A sum per channel, added run by run in their order, so that it is the same for any number of threads.
fn sums(picture: &[f32], term: impl Fn(usize, f64) -> f64 + Sync) -> [f64; 3] {
    let run = |run: &[f32]| {
        run.chunks_exact(3).fold([0.0; 3], |sums, pixel| [0, 1, 2].map(|c| sums[c] + term(c, f64::from(pixel[c]))))
    };
    let runs: Vec<[f64; 3]> = picture.par_chunks(3 * RUN).map(run).collect();
    runs.iter().fold([0.0; 3], |total, run| [0, 1, 2].map(|c| total[c] + run[c]))
}
