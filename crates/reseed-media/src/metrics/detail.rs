//! The amount of local detail, as statistics of the discrete cosine transform.

use std::f64::consts::PI;

use super::{assert_same_size, luma};
use crate::frame::Frame;

/// Rows and columns of a block.
const SIDE: usize = 8;
/// First and last sum of both frequencies of each band: coarse, medium and fine.
const BANDS: [(usize, usize); 3] = [(1, 3), (4, 7), (8, 14)];
/// Amplitude that hardly shows: a step of 255. Below it, a difference counts little.
const FLOOR: f64 = 1.0 / 255.0;

/// Difference in the amount of local detail, in octaves: the mean of |log2((a + f) / (b + f))| over the blocks of 8x8
/// pixels and three bands of frequencies of BT.601 luma, where a and b are the root mean squares of the coefficients of
/// the cosine transform, and f is a step of 255. Zero for equal frames, larger is worse. It does not compare phases:
/// blur and noise both score badly, and texture of the right strength in the right place scores well even if it is not
/// the original's. A frame smaller than a block scores zero.
pub fn detail(a: &Frame, b: &Frame) -> f64 {
    assert_same_size(a, b);
    let [a, b] = [a, b].map(amplitudes);
    let octaves = |(a, b): (&f64, &f64)| ((a + FLOOR) / (b + FLOOR)).log2().abs();
    a.iter().zip(&b).map(octaves).sum::<f64>() / a.len().max(1) as f64
}

/// The root mean square of each band of each block.
fn amplitudes(frame: &Frame) -> Vec<f64> {
    let (luma, width, cosines) = (luma(frame), frame.size.w, cosines());
    let mut all = Vec::new();
    for top in (0..frame.size.h / SIDE).map(|block| block * SIDE) {
        for left in (0..width / SIDE).map(|block| block * SIDE) {
            let block = std::array::from_fn(|y| std::array::from_fn(|x| luma[(top + y) * width + left + x]));
            let frequencies = transformed(&block, &cosines);
            all.extend(BANDS.map(|band| root_mean_square(&frequencies, band)));
        }
    }
    all
}

type Block = [[f64; SIDE]; SIDE];

/// The orthonormal cosine transform of eight values: row k is frequency k.
fn cosines() -> Block {
    let gain = |k: usize| if k == 0 { 0.125f64.sqrt() } else { 0.5 };
    std::array::from_fn(|k| std::array::from_fn(|i| gain(k) * ((2 * i + 1) as f64 * k as f64 * PI / 16.0).cos()))
}

/// The transform of a block over rows and columns.
fn transformed(block: &Block, cosines: &Block) -> Block {
    let along = |values: &Block| -> Block {
        std::array::from_fn(|k| std::array::from_fn(|j| (0..SIDE).map(|i| cosines[k][i] * values[j][i]).sum()))
    };
    along(&along(block))
}

fn root_mean_square(frequencies: &Block, (first, last): (usize, usize)) -> f64 {
    let inside = (0..SIDE * SIDE).map(|i| (i / SIDE, i % SIDE)).filter(|(v, u)| (first..=last).contains(&(v + u)));
    let (sum, count) = inside.fold((0.0, 0.0), |(sum, count), (v, u)| (sum + frequencies[v][u].powi(2), count + 1.0));
    f64::sqrt(sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Depth, Size};

    const SIZE: Size = Size { h: 32, w: 48 };

    /// A grey wave across columns with a period in pixels, an amplitude and a phase.
    fn wave(period: f64, amplitude: f64, phase: f64) -> Frame {
        let at = |x: usize| (0.5 + amplitude * (2.0 * PI * x as f64 / period + phase).sin()) as f32;
        let values: Vec<f32> = (0..3 * SIZE.pixels()).map(|i| at(i / 3 % SIZE.w)).collect();
        Frame::from_unit(SIZE, &values, Depth::Sixteen)
    }

    #[test]
    fn the_transform_keeps_energy_and_finds_a_cosine() {
        let cosines = cosines();
        let block: Block = std::array::from_fn(|_| cosines[5]);
        let frequencies = transformed(&block, &cosines);
        let energy: f64 = frequencies.iter().flatten().map(|f| f * f).sum();
        assert!((energy - 8.0).abs() < 1e-9);
        assert!((frequencies[5][0].powi(2) + frequencies[0][5].powi(2) - 8.0).abs() < 1e-9);
    }

    #[test]
    fn detail_of_half_the_amplitude_is_nearly_an_octave_in_its_band() {
        // The fine band needs frequencies along rows too, so that two of the three bands hold this wave.
        let half = detail(&wave(2.0, 0.2, 1.0), &wave(2.0, 0.1, 1.0));
        assert!((0.5..1.0).contains(&half), "{half}");
        assert_eq!(detail(&wave(5.0, 0.2, 0.0), &wave(5.0, 0.2, 0.0)), 0.0);
    }

    #[test]
    fn another_phase_costs_less_than_missing_detail() {
        let original = wave(4.0, 0.1, 0.0);
        let (shifted, flat) = (detail(&wave(4.0, 0.1, PI / 2.0), &original), detail(&wave(4.0, 0.0, 0.0), &original));
        assert!(shifted < flat / 4.0, "{shifted} {flat}");
    }

    #[test]
    fn frames_smaller_than_a_block_score_zero() {
        let small = |code: f32| Frame::from_unit(Size { h: 7, w: 30 }, &[code; 630], Depth::Eight);
        assert_eq!(detail(&small(0.1), &small(0.9)), 0.0);
    }
}
