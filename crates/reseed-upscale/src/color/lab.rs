//! On top of `wavelet`: a\* and b\* take the style's distribution over the slice, L\* moves a fifth of the way. Grey pixels
//! differ in a\* and b\* by rounding alone; where the style has fewer greys than the content, rounding decides which of
//! them are given a colour.

use rayon::prelude::*;
use reseed_media::Size;

use super::rank::{Ranked, Values, Wanted};
use super::{map_pixels, unit, wavelet};

type Matrix = [[f32; 3]; 3];

const RGB_TO_XYZ: Matrix =
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]];
const XYZ_TO_RGB: Matrix =
    [[3.2404542, -1.5371385, -0.4985314], [-0.9692660, 1.8760108, 0.0415560], [0.0556434, -0.2040259, 1.0572252]];
/// D65.
const WHITE: [f32; 3] = [0.95047, 1.0, 1.08883];
const KNEE: f32 = 6.0 / 29.0;
/// (29/3)³.
const KAPPA: f32 = 903.296_3;

/// How far L\* moves towards the style.
const LIGHTNESS_SHARE: f32 = 0.2;

pub fn apply(content: &mut [Vec<f32>], mut style: Vec<Vec<f32>>, size: Size) {
    wavelet::apply(content, &style, size);
    map_pixels(content, |rgb| to_lab(rgb.map(unit)));
    map_pixels(&mut style, |rgb| to_lab(rgb.map(unit)));
    for (channel, share) in [LIGHTNESS_SHARE, 1.0, 1.0].into_iter().enumerate() {
        match_channel(content, &style, channel, share);
    }
    map_pixels(content, |lab| from_lab(lab).map(|value| value * 2.0 - 1.0));
}

fn match_channel(content: &mut [Vec<f32>], style: &[Vec<f32>], channel: usize, share: f32) {
    let pixels = content[0].len() / 3;
    let at = |frames: &[Vec<f32>], i: usize| frames[i / pixels][3 * (i % pixels) + channel];
    let count = content.len() * pixels;
    let frames = &*content;
    let values = (0..count).into_par_iter().map(|i| Ranked::new(at(frames, i), i)).collect();
    let target = (0..count).into_par_iter().map(|i| Wanted::new(at(style, i))).collect();
    let matched = Values::new(count, |_| 0.0);
    matched.match_ranks(values, target);
    content.par_iter_mut().enumerate().for_each(|(frame, picture)| {
        for (i, pixel) in picture.chunks_exact_mut(3).enumerate() {
            pixel[channel] = (1.0 - share) * pixel[channel] + share * matched.get(frame * pixels + i);
        }
    });
}

fn mix(matrix: &Matrix, [x, y, z]: [f32; 3]) -> [f32; 3] {
    matrix.map(|[a, b, c]| a * x + b * y + c * z)
}

/// sRGB in [0, 1] to CIE L\*a\*b\*.
fn to_lab(rgb: [f32; 3]) -> [f32; 3] {
    let linear = rgb.map(|v| if v > 0.04045 { ((v + 0.055) / 1.055).powf(2.4) } else { v / 12.92 });
    let xyz = mix(&RGB_TO_XYZ, linear);
    let f = |i: usize| match xyz[i] / WHITE[i] {
        x if x > KNEE * KNEE * KNEE => x.cbrt(),
        x => (KAPPA * x + 16.0) / 116.0,
    };
    let (fx, fy, fz) = (f(0), f(1), f(2));
    [116.0 * fy - 16.0, 500.0 * (fx - fy), 200.0 * (fy - fz)]
}

/// CIE L\*a\*b\* to sRGB, clamped to [0, 1].
fn from_lab([l, a, b]: [f32; 3]) -> [f32; 3] {
    let fy = (l + 16.0) / 116.0;
    let f = [fy + a / 500.0, fy, fy - b / 200.0];
    let xyz = |i: usize| WHITE[i] * if f[i] > KNEE { f[i] * f[i] * f[i] } else { (116.0 * f[i] - 16.0) / KAPPA };
    let gamma = |v: f32| if v > 0.0031308 { 1.055 * v.powf(1.0 / 2.4) - 0.055 } else { 12.92 * v };
    mix(&XYZ_TO_RGB, [xyz(0), xyz(1), xyz(2)]).map(|v| gamma(v).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_back_from_lab() {
        for rgb in [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.2, 0.9, 0.01], [0.03, 0.04, 0.05], [1.0, 0.0, 0.5]] {
            let back = from_lab(to_lab(rgb));
            assert!(rgb.iter().zip(back).all(|(a, b)| (a - b).abs() < 2e-5), "{rgb:?} {back:?}");
        }
        let white = to_lab([1.0; 3]);
        assert!((white[0] - 100.0).abs() < 1e-3 && white[1].abs() < 0.02 && white[2].abs() < 0.02, "{white:?}");
    }
}
