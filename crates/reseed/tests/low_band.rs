//! The low band against its definition, computed in double precision as sums over all pixels.
#![allow(clippy::unwrap_used)]

use reseed::internals::low_band;
use reseed::{Geometry, Target};
use reseed_media::{Depth, Frame, Size};

/// Weights of output pixel `i`: Keys' cubic kernel with a = -1/2 (Catmull-Rom), stretched where the side shrinks.
fn weights(from: usize, to: usize, i: usize) -> Vec<f64> {
    let ratio = from as f64 / to as f64;
    let cubic = |x: f64| match x.abs() {
        x if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
        x if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
        _ => 0.0,
    };
    let weight = |j: usize| cubic((j as f64 + 0.5 - (i as f64 + 0.5) * ratio) / ratio.max(1.0));
    let sum: f64 = (0..from).map(weight).sum();
    (0..from).map(|j| weight(j) / sum).collect()
}

/// Resamples interleaved RGB.
fn resampled(values: &[f64], from: Size, to: Size) -> Vec<f64> {
    let rows: Vec<Vec<f64>> = (0..to.h).map(|y| weights(from.h, to.h, y)).collect();
    let columns: Vec<Vec<f64>> = (0..to.w).map(|x| weights(from.w, to.w, x)).collect();
    let sum = |i: usize| {
        let (y, x, c) = (i / 3 / to.w, i / 3 % to.w, i % 3);
        let at = |j: usize, k: usize| rows[y][j] * columns[x][k] * values[3 * (j * from.w + k) + c];
        (0..from.h).map(|j| (0..from.w).map(|k| at(j, k)).sum::<f64>()).sum()
    };
    (0..3 * to.pixels()).map(sum).collect()
}

fn wave(i: usize, size: Size, speed: f64) -> f64 {
    let (y, x, c) = (i / 3 / size.w, i / 3 % size.w, i % 3);
    (speed * (x as f64 + 0.7 * y as f64) + c as f64).sin()
}

fn check(input: Size, target: Target, share: f32) {
    let geometry = Geometry::new(input, target, None).unwrap();
    let (resized, output) = (geometry.resized(), geometry.output);
    let unit: Vec<f32> = (0..3 * input.pixels()).map(|i| 0.5 + 0.45 * wave(i, input, 0.9) as f32).collect();
    let frame = Frame::from_unit(input, &unit, Depth::Sixteen);
    // Some values are outside [-1, 1].
    let values: Vec<f32> = (0..3 * output.pixels()).map(|i| 1.1 * wave(i, output, 0.31) as f32).collect();
    let mut got = vec![values.clone()];
    low_band::apply(low_band::LowBand::fixed(share), &mut got, std::slice::from_ref(&frame), &geometry);

    let clamped = |i: usize| {
        let (y, x, c) = ((i / 3 / resized.w).min(output.h - 1), (i / 3 % resized.w).min(output.w - 1), i % 3);
        f64::from(values[3 * (y * output.w + x) + c]).clamp(-1.0, 1.0)
    };
    let result: Vec<f64> = (0..3 * resized.pixels()).map(clamped).collect();
    let down = resampled(&result, resized, input);
    let residual: Vec<f64> = frame.to_unit().iter().zip(down).map(|(a, b)| 2.0 * f64::from(*a) - 1.0 - b).collect();
    let correction = resampled(&residual, input, resized);
    for (i, got) in got[0].iter().enumerate() {
        let (y, x, c) = (i / 3 / output.w, i / 3 % output.w, i % 3);
        let at = 3 * (y * resized.w + x) + c;
        let want = (result[at] + f64::from(share) * correction[at]).clamp(-1.0, 1.0);
        // Two f32 resamplings with at most 24 weights per axis.
        assert!((f64::from(*got) - want).abs() < 1e-5, "{target:?} at {i}: {got} instead of {want}");
    }
}

#[test]
fn the_low_band_matches_its_definition_at_even_odd_and_exact_sizes() {
    check(Size { h: 6, w: 10 }, Target::Scale(4.0), 1.0);
    check(Size { h: 7, w: 9 }, Target::Scale(2.0), 0.4);
    // Odd sides that are cropped, and another aspect ratio.
    check(Size { h: 11, w: 7 }, Target::Scale(3.0), 1.0);
    check(Size { h: 10, w: 13 }, Target::Exact(Size { h: 17, w: 45 }), 0.7);
}
