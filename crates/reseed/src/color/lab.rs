//! Lab histogram matching after wavelet transfer: a\* and b\* take the distribution of the style over the slice, and
//! L\* moves a fifth of the way to it.
//!
//! Grey pixels differ in a\* and b\* by rounding only. Where the style has fewer grey pixels than the content, rounding
//! decides which pixels become coloured.

use rayon::prelude::*;
use reseed_media::{Size, wide};

use super::rank::{CHUNK, Matcher, Quantizer};
use super::root::{cube_root, to_the_2_4, to_the_inverse_2_4};
use super::{unit, wavelet};

type Matrix = [[f32; 3]; 3];

const RGB_TO_XYZ: Matrix =
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]];
const XYZ_TO_RGB: Matrix =
    [[3.2404542, -1.5371385, -0.4985314], [-0.969266, 1.8760108, 0.041556], [0.0556434, -0.2040259, 1.0572252]];
/// D65 white point.
const WHITE: [f32; 3] = [0.95047, 1.0, 1.08883];
/// δ of the CIE definition, where the cube root meets the linear segment.
const DELTA: f32 = 6.0 / 29.0;
/// (29/3)³.
const KAPPA: f32 = 903.296_3;

/// Weight of the style in the matched L\*.
const LIGHTNESS_WEIGHT: f32 = 0.2;

/// Quantisation of L\*, a\* and b\*. The ranges contain every colour and have the same step.
const QUANTIZERS: [Quantizer; 3] =
    [Quantizer::new(0.0, 256.0), Quantizer::new(-128.0, 128.0), Quantizer::new(-128.0, 128.0)];

pub fn apply(content: &mut [Vec<f32>], mut style: Vec<Vec<f32>>, size: Size) {
    wavelet::apply(content, &style, size);
    rayon::join(|| map_chunks(content, to_planes), || map_chunks(&mut style, to_planes));
    let mut matcher = Matcher::default();
    for (channel, weight) in [LIGHTNESS_WEIGHT, 1.0, 1.0].into_iter().enumerate() {
        let values = chunks_mut(content).map(|chunk| plane_mut(chunk, channel)).collect();
        let target: Vec<&[f32]> = style.iter().flat_map(|f| f.chunks(3 * CHUNK)).map(|c| plane(c, channel)).collect();
        matcher.run(values, &target, QUANTIZERS[channel], weight);
    }
    map_chunks(content, to_pixels);
}

/// The pixels of a slice in chunks that do not cross a frame boundary.
fn chunks_mut(frames: &mut [Vec<f32>]) -> impl Iterator<Item = &mut [f32]> {
    frames.iter_mut().flat_map(|frame| frame.chunks_mut(3 * CHUNK))
}

/// One channel of a planar chunk.
fn plane(chunk: &[f32], channel: usize) -> &[f32] {
    let pixels = chunk.len() / 3;
    &chunk[channel * pixels..][..pixels]
}

fn plane_mut(chunk: &mut [f32], channel: usize) -> &mut [f32] {
    let pixels = chunk.len() / 3;
    &mut chunk[channel * pixels..][..pixels]
}

/// Pixels per conversion block. Blocks are planar so that SIMD vectors hold values of one channel.
const BLOCK: usize = 64;
type Block = [[f32; BLOCK]; 3];

/// Runs `convert` on every chunk: from a copy of the chunk to the chunk.
fn map_chunks(frames: &mut [Vec<f32>], convert: fn(&[f32], &mut [f32])) {
    let chunks: Vec<&mut [f32]> = chunks_mut(frames).collect();
    chunks.into_par_iter().for_each_init(Vec::new, |copy, chunk| {
        copy.clear();
        copy.extend_from_slice(chunk);
        convert(copy, chunk);
    });
}

wide! {
    /// Interleaved RGB to planar Lab.
    fn to_planes(pixels: &[f32], planes: &mut [f32]) {
        let mut block: Block = [[0.0; BLOCK]; 3];
        let count = planes.len() / 3;
        for (i, pixels) in pixels.chunks(3 * BLOCK).enumerate() {
            for (j, pixel) in pixels.chunks_exact(3).enumerate() {
                (0..3).for_each(|c| block[c][j] = pixel[c]);
            }
            to_lab(&mut block);
            let (at, filled) = (i * BLOCK, pixels.len() / 3);
            (0..3).for_each(|c| planes[c * count + at..][..filled].copy_from_slice(&block[c][..filled]));
        }
    }
}

wide! {
    /// Planar Lab to interleaved RGB.
    fn to_pixels(planes: &[f32], pixels: &mut [f32]) {
        let mut block: Block = [[0.0; BLOCK]; 3];
        let count = planes.len() / 3;
        for (i, pixels) in pixels.chunks_mut(3 * BLOCK).enumerate() {
            let (at, filled) = (i * BLOCK, pixels.len() / 3);
            (0..3).for_each(|c| block[c][..filled].copy_from_slice(&planes[c * count + at..][..filled]));
            from_lab(&mut block);
            for (j, pixel) in pixels.chunks_exact_mut(3).enumerate() {
                (0..3).for_each(|c| pixel[c] = block[c][j]);
            }
        }
    }
}

/// Multiplies every pixel by a 3x3 matrix.
#[inline(always)]
fn mul(matrix: &Matrix, [x, y, z]: &Block) -> Block {
    matrix.map(|[a, b, c]| std::array::from_fn(|i| a * x[i] + b * y[i] + c * z[i]))
}

/// sRGB in [-1, 1] to CIE L\*a\*b\*.
#[inline(always)]
fn to_lab(block: &mut Block) {
    let linear = |v: f32| if v > 0.04045 { to_the_2_4((v + 0.055) / 1.055) } else { v / 12.92 };
    block.iter_mut().for_each(|plane| plane.iter_mut().for_each(|v| *v = linear(unit(*v))));
    let mut xyz = mul(&RGB_TO_XYZ, block);
    let f = |x: f32| if x > DELTA * DELTA * DELTA { cube_root(x) } else { (KAPPA * x + 16.0) / 116.0 };
    for (plane, white) in xyz.iter_mut().zip(WHITE) {
        plane.iter_mut().for_each(|v| *v = f(*v / white));
    }
    let [fx, fy, fz] = xyz;
    block[0] = fy.map(|y| 116.0 * y - 16.0);
    block[1] = std::array::from_fn(|i| 500.0 * (fx[i] - fy[i]));
    block[2] = std::array::from_fn(|i| 200.0 * (fy[i] - fz[i]));
}

/// CIE L\*a\*b\* to sRGB, clamped to [-1, 1].
#[inline(always)]
fn from_lab(block: &mut Block) {
    let [l, a, b] = block;
    let fy = l.map(|l| (l + 16.0) / 116.0);
    let f = [std::array::from_fn(|i| fy[i] + a[i] / 500.0), fy, std::array::from_fn(|i| fy[i] - b[i] / 200.0)];
    let cube = |f: f32| if f > DELTA { f * f * f } else { (116.0 * f - 16.0) / KAPPA };
    let mut xyz: Block = f;
    for (plane, white) in xyz.iter_mut().zip(WHITE) {
        plane.iter_mut().for_each(|v| *v = white * cube(*v));
    }
    let gamma = |v: f32| if v > 0.0031308 { 1.055 * to_the_inverse_2_4(v) - 0.055 } else { 12.92 * v };
    *block = mul(&XYZ_TO_RGB, &xyz);
    block.iter_mut().for_each(|plane| plane.iter_mut().for_each(|v| *v = gamma(*v).clamp(0.0, 1.0) * 2.0 - 1.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rgb_survives_a_round_trip_through_lab() {
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
