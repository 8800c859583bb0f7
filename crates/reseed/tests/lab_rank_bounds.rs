//! Error bound of the Lab rank matching, pixel by pixel.
//!
//! Rounding can swap the ranks of two pixels whose values differ by no more than the rounding error; each then gets the
//! target value of the other. This test derives the bound of each pixel from its neighbours in rank, in double
//! precision.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::Color;
use reseed_testing::pipeline::PipelineGolden;

/// Sum of the relative errors of a cube root in this implementation and in the golden one. This one has 6 ulp of the
/// power and 3 of the sums, of which the root takes a third, and 2 of the root itself; the golden power and root have 1
/// ulp.
const ROOT: f64 = 8.0 * f32::EPSILON as f64;
/// The resulting errors of L*, a* and b*; the roots are at most 1.
const ROUNDING: [f64; 3] = [116.0 * ROOT, 500.0 * 2.0 * ROOT, 200.0 * 2.0 * ROOT];
/// Error of the conversion from Lab to RGB in [-1, 1].
const LAB_TO_RGB_ERROR: f64 = 4e-5;
const LIGHTNESS_WEIGHT: f64 = 0.2;

const TO_XYZ: [[f64; 3]; 3] =
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]];
const FROM_XYZ: [[f64; 3]; 3] =
    [[3.2404542, -1.5371385, -0.4985314], [-0.969266, 1.8760108, 0.041556], [0.0556434, -0.2040259, 1.0572252]];
const WHITE: [f64; 3] = [0.95047, 1.0, 1.08883];
const KAPPA: f64 = 29.0 * 29.0 * 29.0 / 27.0;

fn mix(matrix: [[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

fn to_lab(rgb: &[f32]) -> [f64; 3] {
    let linear = [0, 1, 2].map(|c| match ((f64::from(rgb[c]) + 1.0) / 2.0).clamp(0.0, 1.0) {
        v if v > 0.04045 => ((v + 0.055) / 1.055).powf(2.4),
        v => v / 12.92,
    });
    let xyz = mix(TO_XYZ, linear);
    let [x, y, z] = [0, 1, 2].map(|c| match xyz[c] / WHITE[c] {
        v if v > (6.0f64 / 29.0).powi(3) => v.cbrt(),
        v => (KAPPA * v + 16.0) / 116.0,
    });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn from_lab([l, a, b]: [f64; 3]) -> [f64; 3] {
    let y = (l + 16.0) / 116.0;
    let cube = |f: f64| if f > 6.0 / 29.0 { f.powi(3) } else { (116.0 * f - 16.0) / KAPPA };
    let [x, y, z] = [y + a / 500.0, y, y - b / 200.0].map(cube);
    mix(FROM_XYZ, [x * WHITE[0], y * WHITE[1], z * WHITE[2]]).map(|v| {
        let v = if v > 0.0031308 { 1.055 * v.powf(1.0 / 2.4) - 0.055 } else { 12.92 * v };
        v.clamp(0.0, 1.0) * 2.0 - 1.0
    })
}

/// One Lab channel of every pixel of a slice.
fn channel(frames: &[Vec<f32>], channel: usize) -> Vec<f64> {
    frames.iter().flat_map(|frame| frame.chunks_exact(3)).map(|pixel| to_lab(pixel)[channel]).collect()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest and the largest style value that each pixel can get.
fn target_ranges(content: &[f64], style: Vec<f64>, rounding: f64) -> Vec<(f64, f64)> {
    let (ranked, style) = (sorted(content.to_vec()), sorted(style));
    let range = |value: &f64| {
        let first = ranked.partition_point(|v| *v < value - 2.0 * rounding);
        let last = ranked.partition_point(|v| *v <= value + 2.0 * rounding) - 1;
        (style[first] - rounding, style[last] + rounding)
    };
    content.iter().map(range).collect()
}

/// Largest difference per channel of two RGB results whose Lab values are in these ranges.
fn spread(ranges: [(f64, f64); 3]) -> [f64; 3] {
    let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
    for corner in 0..8 {
        let lab = [0, 1, 2].map(|c| if corner >> c & 1 == 0 { ranges[c].0 } else { ranges[c].1 });
        for (c, value) in from_lab(lab).into_iter().enumerate() {
            (low[c], high[c]) = (low[c].min(value), high[c].max(value));
        }
    }
    [0, 1, 2].map(|c| high[c] - low[c] + LAB_TO_RGB_ERROR)
}

#[test]
fn every_pixel_is_within_the_bound_of_its_neighbours_in_rank() {
    for name in ["color_slice_3", "color_image"] {
        let golden = PipelineGolden::open(name);
        let (wavelet, style) = (golden.frame_values("wavelet"), golden.frame_values("style"));
        let [l, a, b] = [0, 1, 2].map(|c| {
            let content = channel(&wavelet, c);
            let ranges = target_ranges(&content, channel(&style, c), ROUNDING[c]);
            let weight = if c == 0 { LIGHTNESS_WEIGHT } else { 1.0 };
            let blended = |value: f64, to: f64| (1.0 - weight) * value + weight * to;
            let pairs = content.into_iter().zip(ranges);
            pairs.map(|(v, (low, high))| (blended(v, low), blended(v, high))).collect::<Vec<_>>()
        });
        let mut got = golden.frame_values("content");
        Color::Lab.apply(&mut got, style, golden.plane("content"));
        let want = golden.frame_values("lab");
        let values = |frames: Vec<Vec<f32>>| frames.into_iter().flatten().map(f64::from).collect::<Vec<_>>();
        let (got, want) = (values(got), values(want));
        let (mut total, mut max_used) = (0.0, 0.0f64);
        for (i, (got, want)) in got.chunks_exact(3).zip(want.chunks_exact(3)).enumerate() {
            let allowed = spread([l[i], a[i], b[i]]);
            for c in 0..3 {
                let error = (got[c] - want[c]).abs();
                assert!(error <= allowed[c], "{name}, pixel {i}: {error:.1e}, allowed {:.1e}", allowed[c]);
                (total, max_used) = (total + allowed[c], max_used.max(error / allowed[c]));
            }
        }
        let mean = total / got.len() as f64;
        println!("{name}: mean bound {mean:.1e}, largest error {max_used:.2} of its bound");
        assert!(mean < 5e-3, "the bound is too loose to be useful: {mean:.1e}");
    }
}
