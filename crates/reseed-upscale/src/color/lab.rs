//! On top of `wavelet`: a\* and b\* take the style's distribution over the slice, L\* moves a fifth of the way. Grey pixels
//! differ in a\* and b\* by rounding alone; where the style has fewer greys than the content, rounding decides which of
//! them are given a colour.

use rayon::prelude::*;
use reseed_media::Size;

use super::rank::{Ranked, Values, Wanted};
use super::root::{cube_root, to_the_2_4, to_the_inverse_2_4};
use super::{RUN, unit, wavelet};

type Matrix = [[f32; 3]; 3];

const RGB_TO_XYZ: Matrix =
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]];
const XYZ_TO_RGB: Matrix =
    [[3.2404542, -1.5371385, -0.4985314], [-0.969266, 1.8760108, 0.041556], [0.0556434, -0.2040259, 1.0572252]];
/// D65.
const WHITE: [f32; 3] = [0.95047, 1.0, 1.08883];
const KNEE: f32 = 6.0 / 29.0;
/// (29/3)³.
const KAPPA: f32 = 903.296_3;

/// How far L\* moves towards the style.
const LIGHTNESS_SHARE: f32 = 0.2;

pub fn apply(content: &mut [Vec<f32>], mut style: Vec<Vec<f32>>, size: Size) {
    wavelet::apply(content, &style, size);
    map_blocks(content, to_lab);
    map_blocks(&mut style, to_lab);
    for (channel, share) in [LIGHTNESS_SHARE, 1.0, 1.0].into_iter().enumerate() {
        match_channel(content, &style, channel, share);
    }
    map_blocks(content, from_lab);
}

fn match_channel(content: &mut [Vec<f32>], style: &[Vec<f32>], channel: usize, share: f32) {
    let pixels = content[0].len() / 3;
    let count = content.len() * pixels;
    let (mut values, mut target) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (frame, (content, style)) in content.iter().zip(style).enumerate() {
        let pixel = |(i, pixel): (usize, &[f32])| Ranked::new(pixel[channel], frame * pixels + i);
        values.par_extend(content.par_chunks_exact(3).enumerate().map(pixel));
        target.par_extend(style.par_chunks_exact(3).map(|pixel| Wanted::new(pixel[channel])));
    }
    let matched = Values::zeros(count);
    matched.match_ranks(values, target);
    content.par_iter_mut().enumerate().for_each(|(frame, picture)| {
        picture.par_chunks_mut(3 * RUN).enumerate().for_each(|(run, values)| {
            for (i, pixel) in values.chunks_exact_mut(3).enumerate() {
                let matched = matched.get(frame * pixels + run * RUN + i);
                pixel[channel] = (1.0 - share) * pixel[channel] + share * matched;
            }
        });
    });
}

/// Pixels that are converted together, plane by plane, so that vectors run over pixels.
const BLOCK: usize = 64;
type Block = [[f32; BLOCK]; 3];

fn map_blocks(frames: &mut [Vec<f32>], convert: fn(&mut Block)) {
    let convert = |pixels: &mut [f32]| {
        let mut block: Block = [[0.0; BLOCK]; 3];
        for (i, pixel) in pixels.chunks_exact(3).enumerate() {
            (0..3).for_each(|c| block[c][i] = pixel[c]);
        }
        convert(&mut block);
        for (i, pixel) in pixels.chunks_exact_mut(3).enumerate() {
            (0..3).for_each(|c| pixel[c] = block[c][i]);
        }
    };
    frames.par_iter_mut().for_each(|frame| {
        frame.par_chunks_mut(3 * RUN).for_each(|run| run.chunks_mut(3 * BLOCK).for_each(convert));
    });
}

fn mix(matrix: &Matrix, [x, y, z]: &Block) -> Block {
    matrix.map(|[a, b, c]| std::array::from_fn(|i| a * x[i] + b * y[i] + c * z[i]))
}

/// sRGB in [-1, 1] to CIE L\*a\*b\*.
fn to_lab(block: &mut Block) {
    let linear = |v: f32| if v > 0.04045 { to_the_2_4((v + 0.055) / 1.055) } else { v / 12.92 };
    block.iter_mut().for_each(|plane| plane.iter_mut().for_each(|v| *v = linear(unit(*v))));
    let mut xyz = mix(&RGB_TO_XYZ, block);
    let f = |x: f32| if x > KNEE * KNEE * KNEE { cube_root(x) } else { (KAPPA * x + 16.0) / 116.0 };
    for (plane, white) in xyz.iter_mut().zip(WHITE) {
        plane.iter_mut().for_each(|v| *v = f(*v / white));
    }
    let [fx, fy, fz] = xyz;
    block[0] = fy.map(|y| 116.0 * y - 16.0);
    block[1] = std::array::from_fn(|i| 500.0 * (fx[i] - fy[i]));
    block[2] = std::array::from_fn(|i| 200.0 * (fy[i] - fz[i]));
}

/// CIE L\*a\*b\* to sRGB, clamped to [-1, 1].
fn from_lab(block: &mut Block) {
    let [l, a, b] = block;
    let fy = l.map(|l| (l + 16.0) / 116.0);
    let f = [std::array::from_fn(|i| fy[i] + a[i] / 500.0), fy, std::array::from_fn(|i| fy[i] - b[i] / 200.0)];
    let cube = |f: f32| if f > KNEE { f * f * f } else { (116.0 * f - 16.0) / KAPPA };
    let mut xyz: Block = f;
    for (plane, white) in xyz.iter_mut().zip(WHITE) {
        plane.iter_mut().for_each(|v| *v = white * cube(*v));
    }
    let gamma = |v: f32| if v > 0.0031308 { 1.055 * to_the_inverse_2_4(v) - 0.055 } else { 12.92 * v };
    *block = mix(&XYZ_TO_RGB, &xyz);
    block.iter_mut().for_each(|plane| plane.iter_mut().for_each(|v| *v = gamma(*v).clamp(0.0, 1.0) * 2.0 - 1.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_back_from_lab() {
        for rgb in [[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0], [-0.6, 0.8, -0.98], [-0.94, -0.92, -0.9], [1.0, -1.0, 0.0]] {
            let mut block = rgb.map(|v: f32| [v; BLOCK]);
            to_lab(&mut block);
            from_lab(&mut block);
            assert!(rgb.iter().zip(block).all(|(a, b)| (a - b[63]).abs() < 4e-5), "{rgb:?}");
        }
        let mut white = [[1.0; BLOCK]; 3];
        to_lab(&mut white);
        let [l, a, b] = white.map(|plane| plane[0]);
        assert!((l - 100.0).abs() < 1e-3 && a.abs() < 0.02 && b.abs() < 0.02, "{l} {a} {b}");
    }
}
