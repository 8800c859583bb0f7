//! Frames to compare with.

use reseed::internals::View;
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::conformance::Values;

/// Waves of colour, noise, and flat parts in which many pixels are equal: black, grey, and one colour.
pub fn frame(size: Size, depth: Depth, number: usize, values: &mut Values) -> Frame {
    let noise = values.take(3 * size.pixels());
    let value = |i: usize| {
        let (x, y, c) = (i / 3 % size.w, i / 3 / size.w, i % 3);
        let wave = ((x + 3 * number) as f32 / (7.0 + 2.0 * c as f32)).sin() * (y as f32 / 9.0).cos();
        match (4 * x / size.w, 4 * y / size.h) {
            (0, 0) => 0.0,
            (1, 0) => 0.5,
            (0, 1) => [0.8, 0.3, 0.4][c],
            _ => 0.5 + 0.35 * wave + 0.1 * noise[i],
        }
    };
    let unit: Vec<f32> = (0..3 * size.pixels()).map(value).collect();
    Frame { size, samples: Samples::from_unit(&unit, depth), alpha: None }
}

/// A padded frame as a network might have made it: less contrast, other noise, and values out of range.
pub fn restored(view: &View, input: &Frame, values: &mut Values) -> Vec<f32> {
    let mut padded = vec![0.0; 3 * view.geometry().padded.pixels()];
    view.padded_into(input, &mut padded);
    let noise = values.take(padded.len());
    let flat = |i: usize| i % 7 < 3;
    let value = |(i, (value, noise)): (usize, (&f32, &f32))| match flat(i / 300) {
        true => 0.875 * value,
        false => 0.9 * value + 0.25 * noise + 0.05,
    };
    padded.iter().zip(&noise).enumerate().map(value).collect()
}
