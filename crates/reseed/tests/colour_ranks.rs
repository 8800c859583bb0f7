//! Lab matches ranks, and rounding may swap two pixels whose values differ by no more than it: each then takes what stands
//! at the other's rank. How far a pixel may be off follows from its neighbours in rank, and is worked out here in double
//! precision, pixel by pixel.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::Color;
use reseed_testing::pipeline::Golden;

/// Relative error of a cube root's result, in two computations together. Ours: 6 units for the power, 3 for the sums, a third
/// of that and 2 for the root; the stored one's power and root are good to one unit.
const ROOT: f64 = 8.0 * f32::EPSILON as f64;
/// What that makes of L*, a* and b*, whose roots are at most one.
const ROUNDING: [f64; 3] = [116.0 * ROOT, 500.0 * 2.0 * ROOT, 200.0 * 2.0 * ROOT];
/// Of the way back, for values in [-1, 1].
const BACK: f64 = 4e-5;
const LIGHTNESS_SHARE: f64 = 0.2;

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

/// One channel of every pixel of a slice.
fn channel(pictures: &[Vec<f32>], channel: usize) -> Vec<f64> {
    pictures.iter().flat_map(|picture| picture.chunks_exact(3)).map(|pixel| to_lab(pixel)[channel]).collect()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The lowest and the highest value that each pixel may take from the style.
fn reach(content: &[f64], style: Vec<f64>, rounding: f64) -> Vec<(f64, f64)> {
    let (ranked, style) = (sorted(content.to_vec()), sorted(style));
    let reach = |value: &f64| {
        let first = ranked.partition_point(|v| *v < value - 2.0 * rounding);
        let last = ranked.partition_point(|v| *v <= value + 2.0 * rounding) - 1;
        (style[first] - rounding, style[last] + rounding)
    };
    content.iter().map(reach).collect()
}

/// How far apart two results of a pixel may be whose Lab lies in these ranges.
fn spread(ranges: [(f64, f64); 3]) -> [f64; 3] {
    let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
    for corner in 0..8 {
        let lab = [0, 1, 2].map(|c| if corner >> c & 1 == 0 { ranges[c].0 } else { ranges[c].1 });
        for (c, value) in from_lab(lab).into_iter().enumerate() {
            (low[c], high[c]) = (low[c].min(value), high[c].max(value));
        }
    }
    [0, 1, 2].map(|c| high[c] - low[c] + BACK)
}

#[test]
fn every_pixel_is_as_near_as_its_neighbours_in_rank_allow() {
    for name in ["color_slice_3", "color_image"] {
        let golden = Golden::open(name);
        let (wavelet, style) = (golden.pictures("wavelet"), golden.pictures("style"));
        let [l, a, b] = [0, 1, 2].map(|c| {
            let content = channel(&wavelet, c);
            let reach = reach(&content, channel(&style, c), ROUNDING[c]);
            let share = if c == 0 { LIGHTNESS_SHARE } else { 1.0 };
            let moved = |value: f64, to: f64| (1.0 - share) * value + share * to;
            let pairs = content.into_iter().zip(reach);
            pairs.map(|(v, (low, high))| (moved(v, low), moved(v, high))).collect::<Vec<_>>()
        });
        let mut got = golden.pictures("content");
        Color::Lab.apply(&mut got, style, golden.plane("content"));
        let want = golden.pictures("lab");
        let values = |pictures: Vec<Vec<f32>>| pictures.into_iter().flatten().map(f64::from).collect::<Vec<_>>();
        let (got, want) = (values(got), values(want));
        let (mut total, mut most) = (0.0, 0.0f64);
        for (i, (got, want)) in got.chunks_exact(3).zip(want.chunks_exact(3)).enumerate() {
            let allowed = spread([l[i], a[i], b[i]]);
            for c in 0..3 {
                let off = (got[c] - want[c]).abs();
                assert!(off <= allowed[c], "{name}, pixel {i}: {off:.1e}, allowed {:.1e}", allowed[c]);
                (total, most) = (total + allowed[c], most.max(off / allowed[c]));
            }
        }
        let mean = total / got.len() as f64;
        println!("{name}: allowed {mean:.1e} on average, at most {most:.2} of it used");
        assert!(mean < 5e-3, "a bound that says nothing: {mean:.1e}");
    }
}
