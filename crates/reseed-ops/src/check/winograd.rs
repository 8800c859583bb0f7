//! How large the products of a convolution by Winograd become.

use super::magnitude::absolute_data;
use crate::shape::{Hw, Thw};
use crate::weights::{Conv, ConvData, ConvSpec};

/// Algorithms of convolutions with 3x3 taps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    /// Direct, or Winograd F(2,3) along rows or columns.
    OneAxis,
    /// Winograd F(3,3) along rows.
    Triples,
    /// Winograd F(4,3) along rows.
    Quads,
    /// Winograd F(2x2,3x3).
    BothAxes,
    /// Winograd F(4x4,3x3).
    QuadsOfBothAxes,
}

impl Algorithm {
    /// That of a device that executes this part of the products of the direct algorithm: F(2,3) executes 24/36, F(3,3)
    /// 20/36, F(4,3) 18/36, F(2x2,3x3) 16/36 and F(4x4,3x3) 9/36.
    fn of(executed: f32) -> Algorithm {
        match (executed * 36.0).round() as usize {
            0..=9 => Algorithm::QuadsOfBothAxes,
            10..=16 => Algorithm::BothAxes,
            17..=18 => Algorithm::Quads,
            19..=20 => Algorithm::Triples,
            _ => Algorithm::OneAxis,
        }
    }

    /// Rows and columns between an output and the furthest input of its products, where it does not depend on all of
    /// them.
    fn reach(self) -> Option<Hw> {
        match self {
            Algorithm::OneAxis | Algorithm::BothAxes => None,
            Algorithm::Triples => Some(Hw::new(0, 3)),
            Algorithm::Quads => Some(Hw::new(0, 4)),
            Algorithm::QuadsOfBothAxes => Some(Hw::new(4, 4)),
        }
    }
}

/// Whether a device may compute a convolution by Winograd.
fn winograd(spec: &ConvSpec) -> bool {
    spec.stride == Thw::new(1, 1, 1) && (spec.taps.h, spec.taps.w) == (3, 3)
}

/// Rows and columns by which the inputs of a convolution are [`widened`] for its bound.
pub fn reach(conv: &Conv) -> Option<Hw> {
    Algorithm::of(conv.executed).reach().filter(|_| winograd(&conv.spec))
}

/// Roundings of operands of a convolution that not all devices share.
///
/// Winograd rounds sums of inputs once and sums of weights once, and these sums are of weights that others round first:
/// three. F(3,3) rounds sums of inputs twice, and weights before it: three. F(2x2,3x3) rounds sums of inputs once per
/// axis: four. F(4,3) and F(4x4,3x3) round to f32 alone: see [`conv_terms`]. At a clip's start taps that read the same
/// frame are summed: of weights that others round first, and then rounded, which is two beside none, and one beside
/// Winograd's.
pub fn operand_roundings(conv: &Conv, starts: bool) -> usize {
    let operands = match Algorithm::of(conv.executed) {
        _ if !winograd(&conv.spec) => 0,
        Algorithm::OneAxis | Algorithm::Triples => 3,
        Algorithm::BothAxes => 4,
        Algorithm::Quads | Algorithm::QuadsOfBothAxes => 0,
    };
    match (operands, starts) {
        (0, true) => 2,
        (operands, starts) => operands + usize::from(starts),
    }
}

/// Roundings to f32 of a product on its way into a result.
///
/// A direct sum rounds once per term. F(4,3) also rounds the products and sums that make its operands: at most four of
/// inputs, and four of weights with their factor. Each moves a product by e of itself, as a term of a sum does.
/// F(4x4,3x3) does so once per axis, and sums frames and channels alone for every point: the sums of the points of an
/// axis, with their factors, round a product at most four times. Its bound also holds for a device that sums directly:
/// per axis the magnitude of its products is more than three times that of the taps.
pub fn conv_terms(conv: &Conv) -> usize {
    let ConvSpec { taps, c_in, .. } = conv.spec;
    match Algorithm::of(conv.executed) {
        Algorithm::Quads if winograd(&conv.spec) => taps.count() * c_in + 8,
        Algorithm::QuadsOfBothAxes if winograd(&conv.spec) => taps.t * c_in + 2 * (8 + 4),
        _ => taps.count() * c_in,
    }
}

/// a and b of F(3,3), whose points are a, -a, b, -b and infinity.
const TRIPLE: [f32; 2] = [3.0 / 8.0, 5.0 / 4.0];
/// a and b of F(4,3), which has the point zero besides.
const QUAD: [f32; 2] = [5.0 / 8.0, 3.0 / 2.0];

/// Kernels whose convolution with |x| bounds the sum of all products of a device.
///
/// Without Winograd these are |g|. Winograd F(2,3) computes two outputs from four inputs d along one axis:
///
/// ```text
/// V = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)       U = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
/// y0 = U0 V0 + U1 V1 + U2 V2                     y1 = U1 V1 - U2 V2 - U3 V3
/// ```
///
/// With S = |g0| + |g1| + |g2| the products of y0 sum up to at most |g0| (|d0| + |d2|) + S (|d1| + |d2|), and those of
/// y1 to at most |g2| (|d1| + |d3|) + S (|d1| + |d2|). Both are at most the convolution of |d| with the kernel
/// (S + |g2|, S, S + |g0|). The device chooses the axis, so that the kernels of both axes are added.
///
/// F(2x2,3x3) is the tensor product of both axes, and so is the bound: the kernel of one axis, and of the result that
/// of the other axis.
///
/// F(3,3) computes three outputs from five inputs, as `conv_winograd.cu` describes. Its products also have inputs that
/// the output does not depend on, and of which they cancel. With D = max |d| the points a and -a have inputs of at most
/// (1 + a) (1 + b^2) D and weights of at most (|g0| + a |g1| + a^2 |g2|) / 2a(b^2 - a^2), with a factor of at most 1 in
/// an output; b and -b likewise, with a factor of at most b^2; infinity has (1 + a^2) (1 + b^2) D |g2|. The bound is
/// the sum of these, at the column of the output, of an input that [`widened`] has replaced by D.
///
/// F(4,3) computes four outputs from six inputs with the point zero besides. Weights of a and -a, of b and -b are
/// divided by the point once more, and points have a factor of their power k in output k. Zero has inputs of at most
/// (1 + a^2) (1 + b^2) D and the weight |g0| / a^2 b^2, in output 0; infinity is as above, in output 3. The bound is
/// that of the output with the largest one.
///
/// F(4x4,3x3) is the tensor product of F(4,3) along rows and along columns. Inputs, weights and factors of a product
/// are products of those of both axes, so that its bound is that of the bounds of the three rows of taps, for the
/// largest input of 9x9.
pub fn conv_magnitude(spec: &ConvSpec, data: ConvData, executed: f32) -> ConvData {
    let ConvData { mut weight, bias } = absolute_data(data);
    if !winograd(spec) {
        return ConvData { weight, bias };
    }
    for plane in weight.chunks_exact_mut(9) {
        let g: [f32; 9] = std::array::from_fn(|i| plane[i]);
        let row = |g: &[f32; 9], i: usize| [0, 1, 2].map(|x| g[i / 3 * 3 + x]);
        let column = |g: &[f32; 9], i: usize| [0, 1, 2].map(|y| g[y * 3 + i % 3]);
        let along = |line: [f32; 3], at: usize| line.iter().sum::<f32>() + [line[2], 0.0, line[0]][at];
        let rows: [f32; 9] = std::array::from_fn(|i| along(row(&g, i), i % 3));
        for (i, to) in plane.iter_mut().enumerate() {
            *to = match Algorithm::of(executed) {
                Algorithm::OneAxis => rows[i] + along(column(&g, i), i / 3),
                Algorithm::Triples if i % 3 == 1 => triple(row(&g, i)),
                Algorithm::Quads if i % 3 == 1 => quad(row(&g, i)),
                Algorithm::QuadsOfBothAxes if i == 4 => quad([0, 3, 6].map(|i| quad(row(&g, i)))),
                Algorithm::Triples | Algorithm::Quads | Algorithm::QuadsOfBothAxes => 0.0,
                Algorithm::BothAxes => along(column(&rows, i), i / 3),
            };
        }
    }
    ConvData { weight, bias }
}

/// The bound of the points p and -p for a row of taps without signs, relative to the largest input. Weights are divided
/// by `divisor`, and outputs have a factor of at most p^power.
fn point([g0, g1, g2]: [f32; 3], p: f32, other: f32, divisor: f32, power: i32) -> f32 {
    let weight = (g0 + p * g1 + p * p * g2) / divisor.abs();
    2.0 * weight * (1.0 + p) * (1.0 + other * other) * p.max(1.0).powi(power)
}

/// The bound of F(3,3).
fn triple(g: [f32; 3]) -> f32 {
    let [a, b] = TRIPLE;
    let point = |p: f32, other: f32| point(g, p, other, 2.0 * p * (p * p - other * other), 2);
    point(a, b) + point(b, a) + g[2] * (1.0 + a * a) * (1.0 + b * b)
}

/// The bound of F(4,3): that of its output with the largest one.
fn quad(g: [f32; 3]) -> f32 {
    let [a, b] = QUAD;
    let point = |p: f32, other: f32, k: i32| point(g, p, other, 2.0 * p * p * (p * p - other * other), 0) * p.powi(k);
    let end = |k: i32| [g[0] / (a * a * b * b), 0.0, 0.0, g[2]][k as usize] * (1.0 + a * a) * (1.0 + b * b);
    (0..4).map(|k| point(a, b, k) + point(b, a, k) + end(k)).fold(0.0, f32::max)
}

/// Every value's maximum over `reach` columns to each side.
pub fn widened(values: &[f32], width: usize, channels: usize, reach: usize) -> Vec<f32> {
    let at = |row: usize, column: usize, channel: usize| values[(row * width + column) * channels + channel];
    let largest = |i: usize| {
        let (channel, column, row) = (i % channels, i / channels % width, i / channels / width);
        let near = column.saturating_sub(reach)..(column + reach + 1).min(width);
        near.map(|column| at(row, column, channel)).fold(0.0, f32::max)
    };
    (0..values.len()).map(largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Values;

    /// Points of inputs and of taps along one axis, and their parts in both outputs.
    fn inputs(d: [f32; 4]) -> [f32; 4] {
        [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]]
    }
    fn taps(g: [f32; 3]) -> [f32; 4] {
        [g[0], (g[0] + g[1] + g[2]) / 2.0, (g[0] - g[1] + g[2]) / 2.0, g[2]]
    }
    const OUTPUTS: [[f32; 4]; 2] = [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, 1.0]];

    fn transformed<const N: usize>(plane: &[f32], axis: fn([f32; N]) -> [f32; 4]) -> [[f32; 4]; 4] {
        let rows: [[f32; 4]; N] = std::array::from_fn(|y| axis(std::array::from_fn(|x| plane[y * N + x])));
        let columns: [[f32; 4]; 4] = std::array::from_fn(|x| axis(std::array::from_fn(|y| rows[y][x])));
        std::array::from_fn(|y| std::array::from_fn(|x| columns[x][y]))
    }

    /// F(2x2,3x3) gives the convolution, and the bound of its products holds for every one of the four outputs.
    #[test]
    fn the_products_of_two_axes_stay_below_their_bound() {
        let spec = ConvSpec::same(1, 1, Thw::new(1, 3, 3));
        let mut values = Values::new(3);
        for _ in 0..100 {
            let (g, d) = (values.take(9), values.take(16));
            let data = ConvData { weight: g.clone(), bias: vec![0.0] };
            let bound = conv_magnitude(&spec, data, 4.0 / 9.0).weight;
            let (u, t) = (transformed(&g, taps), transformed(&d, inputs));
            for (y, x) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let products =
                    (0..16).map(|i| (OUTPUTS[y][i / 4] * OUTPUTS[x][i % 4], u[i / 4][i % 4] * t[i / 4][i % 4]));
                let products: Vec<f32> = products.map(|(part, product)| part * product).collect();
                let at = |i: usize| d[(y + i / 3) * 4 + x + i % 3];
                let direct: f32 = (0..9).map(|i| g[i] * at(i)).sum();
                let most: f32 = (0..9).map(|i| bound[i] * at(i).abs()).sum();
                assert!((products.iter().sum::<f32>() - direct).abs() < 1e-5, "{g:?} {d:?}");
                assert!(products.iter().map(|product| product.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
            }
        }
    }

    /// F(3,3) gives the convolution, and the bound of its products holds for every one of the three outputs.
    #[test]
    fn the_products_of_triples_stay_below_their_bound() {
        let mut values = Values::new(5);
        for _ in 0..100 {
            let (g, d) = (values.take(3), values.take(5));
            let point = |p: f32, other: f32| {
                let (odd, even) = (d[3] - other * other * d[1], d[2] - other * other * d[0]);
                let weight = (g[0] + p * g[1] + p * p * g[2]) / (2.0 * p * (p * p - other * other));
                (odd + p * even) * weight
            };
            let [a, b] = TRIPLE;
            let products = [point(a, b), point(-a, b), point(b, a), point(-b, a)];
            let infinity = (d[4] - (a * a + b * b) * d[2] + a * a * b * b * d[0]) * g[2];
            let most = triple([g[0], g[1], g[2]].map(f32::abs)) * d.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
            for k in 0..3 {
                let power = |p: f32| p.powi(k as i32);
                let mut parts: Vec<f32> = products.iter().zip([a, -a, b, -b]).map(|(m, p)| m * power(p)).collect();
                parts.push(if k == 2 { infinity } else { 0.0 });
                let direct: f32 = (0..3).map(|j| g[j] * d[k + j]).sum();
                assert!((parts.iter().sum::<f32>() - direct).abs() < 1e-5, "{g:?} {d:?}");
                assert!(parts.iter().map(|part| part.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
            }
        }
    }

    /// F(4,3) gives the convolution, and the bound of its products holds for every one of the four outputs.
    #[test]
    fn the_products_of_quads_stay_below_their_bound() {
        let mut values = Values::new(7);
        let [a, b] = QUAD;
        for _ in 0..100 {
            let (g, d) = (values.take(3), values.take(6));
            let point = |p: f32, other: f32| {
                let (odd, even) = (d[3] - other * other * d[1], d[4] - other * other * d[2]);
                let weight = (g[0] + p * g[1] + p * p * g[2]) / (2.0 * p * p * (p * p - other * other));
                (even + p * odd) * weight
            };
            let products = [point(a, b), point(-a, b), point(b, a), point(-b, a)];
            let end = |d: &[f32]| d[4] - (a * a + b * b) * d[2] + a * a * b * b * d[0];
            let (zero, infinity) = (end(&d) * g[0] / (a * a * b * b), end(&d[1..]) * g[2]);
            let most = quad([g[0], g[1], g[2]].map(f32::abs)) * d.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
            for k in 0..4 {
                let power = |p: f32| p.powi(k as i32);
                let mut parts: Vec<f32> = products.iter().zip([a, -a, b, -b]).map(|(m, p)| m * power(p)).collect();
                parts.push([zero, 0.0, 0.0, infinity][k]);
                let direct: f32 = (0..3).map(|j| g[j] * d[k + j]).sum();
                assert!((parts.iter().sum::<f32>() - direct).abs() < 1e-5, "{g:?} {d:?}");
                assert!(parts.iter().map(|part| part.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
            }
        }
    }

    /// The products of F(4,3) of two axes give the convolution, and their bound holds for every one of the 16 outputs.
    #[test]
    fn the_products_of_quads_of_both_axes_stay_below_their_bound() {
        let [a, b] = QUAD;
        // Rows of the transforms of inputs and of taps, and factors of the points in the four outputs.
        let point = |p: f32, other: f32| {
            let divisor = 2.0 * p * p * (p * p - other * other);
            let inputs = [0.0, -p * other * other, -other * other, p, 1.0, 0.0];
            (inputs, [1.0, p, p * p].map(|g| g / divisor), [0, 1, 2, 3].map(|k| p.powi(k)))
        };
        let (s, q) = (a * a + b * b, a * a * b * b);
        let zero = ([q, 0.0, -s, 0.0, 1.0, 0.0], [1.0 / q, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]);
        let infinity = ([0.0, q, 0.0, -s, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]);
        let points = [zero, point(a, b), point(-a, b), point(b, a), point(-b, a), infinity];
        let spec = ConvSpec::same(1, 1, Thw::new(1, 3, 3));
        let mut values = Values::new(11);
        for _ in 0..100 {
            let (g, d) = (values.take(9), values.take(36));
            let data = ConvData { weight: g.clone(), bias: vec![0.0] };
            let most =
                conv_magnitude(&spec, data, 0.25).weight[4] * d.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
            for (y, x) in (0..16).map(|i| (i / 4, i % 4)) {
                let product = |i: usize| {
                    let ((v, u, down), (w, t, across)) = (points[i / 6], points[i % 6]);
                    let input: f32 = (0..36).map(|i| v[i / 6] * w[i % 6] * d[i]).sum();
                    let weight: f32 = (0..9).map(|i| u[i / 3] * t[i % 3] * g[i]).sum();
                    input * weight * down[y] * across[x]
                };
                let products: Vec<f32> = (0..36).map(product).collect();
                let direct: f32 = (0..9).map(|i| g[i] * d[(y + i / 3) * 6 + x + i % 3]).sum();
                assert!((products.iter().sum::<f32>() - direct).abs() < 1e-4, "{g:?} {d:?}");
                assert!(products.iter().map(|product| product.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
            }
        }
    }

    #[test]
    fn widened_values_have_the_largest_of_some_columns_to_each_side() {
        let row = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0];
        assert_eq!(widened(&row, 8, 1, 3), [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(widened(&row, 8, 1, 4), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
        let two_rows_of_two_channels = [1.0, 5.0, 2.0, 4.0, 7.0, 1.0, 3.0, 8.0];
        assert_eq!(widened(&two_rows_of_two_channels, 2, 2, 3), [2.0, 5.0, 2.0, 5.0, 7.0, 8.0, 7.0, 8.0]);
    }

    /// One axis has the smaller bound.
    #[test]
    fn the_bound_follows_the_algorithm() {
        let spec = ConvSpec::same(1, 1, Thw::new(1, 3, 3));
        let ones = || ConvData { weight: vec![1.0; 9], bias: vec![1.0] };
        let corner = |executed| conv_magnitude(&spec, ones(), executed).weight[0];
        let found = [1.0, 4.0 / 6.0, 4.0 / 9.0, 5.0 / 9.0, 6.0 / 12.0, 36.0 / 144.0].map(corner);
        assert_eq!(found, [8.0, 8.0, 16.0, 0.0, 0.0, 0.0]);
    }
}
