//! HSV saturation matching: histogram matching of the saturation in each of twelve hue bands; hue and value are
//! unchanged.
//!
//! A band is matched only where content and style both have more than a hundred pixels of it in the slice. Band 0 also
//! includes the pixels of band 11; the match of band 11 comes later and overwrites theirs.

use rayon::prelude::*;

use super::rank::{CHUNK, Matcher, Quantizer};
use super::{map_pixels_with, rgb, unit};

const BANDS: usize = 12;
/// A band with at most this many pixels is not matched.
const MIN_PIXELS: usize = 100;
/// A chroma or value up to this counts as 0.
const EPSILON: f32 = 1e-10;

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>]) {
    let matched = matched_saturations(content, style);
    map_pixels_with(content, style, |rgb, pixel, _| with_saturation(rgb, matched[pixel]));
}

/// Replaces the HSV saturation of a pixel in [-1, 1].
pub fn with_saturation(rgb: [f32; 3], saturation: f32) -> [f32; 3] {
    let hsv = to_hsv(rgb.map(unit));
    from_hsv([hsv[0], saturation, hsv[2]]).map(|value| value * 2.0 - 1.0)
}

/// HSV saturation of a pixel in [-1, 1].
pub fn saturation(rgb: [f32; 3]) -> f32 {
    to_hsv(rgb.map(unit))[1]
}

/// The matched saturation of every pixel of the content.
pub fn matched_saturations(content: &[Vec<f32>], style: &[Vec<f32>]) -> Vec<f32> {
    let (content, style) = (HueBands::of(content), HueBands::of(style));
    let mut matched = content.saturations.clone();
    let mut matcher = Matcher::default();
    for band in 0..BANDS {
        let (pixels, mut values): (Vec<usize>, Vec<f32>) = content.inside(band).unzip();
        let target: Vec<f32> = style.inside(band).map(|(_, s)| s).collect();
        if values.len() > MIN_PIXELS && target.len() > MIN_PIXELS {
            let target: Vec<&[f32]> = target.chunks(CHUNK).collect();
            matcher.run(values.chunks_mut(CHUNK).collect(), &target, Quantizer::new(0.0, 1.0), 1.0);
            pixels.into_iter().zip(values).for_each(|(pixel, value)| matched[pixel] = value);
        }
    }
    matched
}

/// Hue band and saturation of every pixel of a slice.
struct HueBands {
    bands: Vec<u8>,
    saturations: Vec<f32>,
}

impl HueBands {
    fn of(frames: &[Vec<f32>]) -> HueBands {
        let pixels = frames.par_iter().flat_map(|frame| frame.par_chunks_exact(3));
        let band_and_saturation = |pixel: &[f32]| {
            let [h, s, _] = to_hsv(rgb(pixel).map(unit));
            (band(h), s)
        };
        let (bands, saturations) = pixels.map(band_and_saturation).unzip();
        HueBands { bands, saturations }
    }

    /// Index and saturation of the pixels of a band.
    fn inside(&self, band: usize) -> impl ParallelIterator<Item = (usize, f32)> {
        let is_inside = move |of: usize| of == band || band == 0 && of >= BANDS - 1;
        let pixels = self.bands.par_iter().zip(&self.saturations).enumerate();
        pixels.filter(move |(_, (of, _))| is_inside(usize::from(**of))).map(|(i, (_, s))| (i, *s))
    }
}

/// The band of a hue; a hue that rounding made 1 is in a band of its own, 12.
fn band(hue: f32) -> u8 {
    (1..=BANDS).filter(|&k| hue >= (k as f64 / BANDS as f64) as f32).count() as u8
}

/// RGB in [0, 1] to hue in [0, 1), saturation and value. Among equal channels the last one counts as the maximum; grey
/// has hue 0.
fn to_hsv([r, g, b]: [f32; 3]) -> [f32; 3] {
    let top = r.max(g).max(b);
    let span = top - r.min(g).min(b);
    let hue = match span > EPSILON {
        false => 0.0,
        true if top == b => (r - g) / span + 4.0,
        true if top == g => (b - r) / span + 2.0,
        true if g < b => (g - b) / span + 6.0,
        true => (g - b) / span,
    };
    [hue / 6.0, if top > EPSILON { span / top } else { 0.0 }, top]
}

/// HSV to RGB: v - v · s · clamp(min(k, 4 - k), 0, 1) with k = (n + 6 h) mod 6 and n = 5, 3, 1 for r, g, b.
fn from_hsv([h, s, v]: [f32; 3]) -> [f32; 3] {
    [5.0, 3.0, 1.0].map(|offset: f32| {
        let k = offset + 6.0 * h;
        let k = if k < 6.0 { k } else { k - 6.0 };
        (v - v * s * k.min(4.0 - k).clamp(0.0, 1.0)).clamp(0.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rgb_survives_a_round_trip_through_hsv() {
        for rgb in [[0.0, 0.0, 0.0], [0.7, 0.7, 0.7], [0.2, 0.9, 0.01], [0.9, 0.1, 0.3], [1.0, 1.0, 0.0]] {
            let back = from_hsv(to_hsv(rgb));
            assert!(rgb.iter().zip(back).all(|(a, b)| (a - b).abs() < 1e-6), "{rgb:?} {back:?}");
        }
    }

    #[test]
    fn hues_map_to_twelve_equal_bands() {
        assert_eq!([0.0, 0.083, 0.084, 0.5, 0.9166, 0.9167, 1.0].map(band), [0, 0, 1, 6, 10, 11, 12]);
    }
}
