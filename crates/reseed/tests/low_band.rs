//! The low band against its definition, written out as sums over pixels.
#![allow(clippy::unwrap_used)]

use reseed::{Geometry, Target, low_band};
use reseed_media::{Depth, Frame, Size};

/// Weights of the output pixel `i` of a side that is resampled: Keys' cubic with a = -1/2, stretched where the side shrinks.
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

fn check(input: Size, target: Target, strength: f32) {
    let geometry = Geometry::new(input, target, None).unwrap();
    let (whole, output) = (geometry.resized(), geometry.output);
    let unit: Vec<f32> = (0..3 * input.pixels()).map(|i| 0.5 + 0.45 * wave(i, input, 0.9) as f32).collect();
    let frame = Frame::from_unit(input, &unit, Depth::Sixteen);
    // A result that leaves its range here and there.
    let picture: Vec<f32> = (0..3 * output.pixels()).map(|i| 1.1 * wave(i, output, 0.31) as f32).collect();
    let mut got = vec![picture.clone()];
    low_band::apply(strength, &mut got, std::slice::from_ref(&frame), &geometry);

    let clamped = |i: usize| {
        let (y, x, c) = ((i / 3 / whole.w).min(output.h - 1), (i / 3 % whole.w).min(output.w - 1), i % 3);
        f64::from(picture[3 * (y * output.w + x) + c]).clamp(-1.0, 1.0)
    };
    let result: Vec<f64> = (0..3 * whole.pixels()).map(clamped).collect();
    let small = resampled(&result, whole, input);
    let lost: Vec<f64> = frame.to_unit().iter().zip(small).map(|(a, b)| 2.0 * f64::from(*a) - 1.0 - b).collect();
    let given = resampled(&lost, input, whole);
    for (i, got) in got[0].iter().enumerate() {
        let (y, x, c) = (i / 3 / output.w, i / 3 % output.w, i % 3);
        let at = 3 * (y * whole.w + x) + c;
        let want = (result[at] + f64::from(strength) * given[at]).clamp(-1.0, 1.0);
        // Two resamplings of at most 24 weights each way, in f32.
        assert!((f64::from(*got) - want).abs() < 1e-5, "{target:?} at {i}: {got} for {want}");
    }
}

#[test]
fn it_is_what_the_definition_says_at_any_size() {
    check(Size { h: 6, w: 10 }, Target::Scale(4.0), 1.0);
    check(Size { h: 7, w: 9 }, Target::Scale(2.0), 0.4);
    // Sides that lose their odd pixel, and a size of other proportions.
    check(Size { h: 11, w: 7 }, Target::Scale(3.0), 1.0);
    check(Size { h: 10, w: 13 }, Target::Exact(Size { h: 17, w: 45 }), 0.7);
}
