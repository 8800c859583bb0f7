//! How large the products of a merged upsampler become, whose phases have 2x2 taps.

use super::magnitude::absolute;
use super::winograd::widened;
use crate::shape::Thw;

/// What Winograd adds to the bound of an upsampler.
///
/// Its products have inputs that a tap of the direct algorithm does not read. With D the largest |x| among the inputs
/// of a group of outputs, and S the sum of |g| over the taps, the products of an output are at most `factor` D S. The
/// reference computes D S as the upsampler of |g| and of |x|, whose values are the largest ones within `rows` and
/// `columns` of their place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Products {
    pub factor: f64,
    rows: usize,
    columns: usize,
    /// Roundings of operands beside those of the merged kernels.
    pub operand_roundings: usize,
    /// Roundings to f32 on the way to the products, each of which moves a product as a term of a sum does.
    pub transform_terms: usize,
}

impl Products {
    /// Those of a device that executes this part of the products of the merged kernels.
    ///
    /// F(2x2,2x2) executes 9/16 of them. Along an axis it computes two outputs from three inputs:
    ///
    /// ```text
    /// V = (d0 - d1, d1, d2 - d1)      U = (g0, g0 + g1, g1)      y0 = U0 V0 + U1 V1      y1 = U1 V1 + U2 V2
    /// ```
    ///
    /// The products of y0 are at most |g0| (|d0| + |d1|) + S |d1|, those of y1 at most S |d1| + |g1| (|d1| + |d2|):
    /// at most 3 D S for each axis. Sums of inputs are rounded once per axis.
    ///
    /// F(4,2) executes 5/8: four outputs from five inputs along rows, with the points and the inputs of F(3,3). Inputs
    /// are rounded twice, and weights once more after they are merged.
    pub fn of(executed: f32) -> Products {
        match (executed * 80.0).round() as usize {
            45 => Products { factor: 9.0, rows: 1, columns: 1, operand_roundings: 2, transform_terms: 0 },
            50 => Products { factor: four(), rows: 0, columns: 4, operand_roundings: 3, transform_terms: 0 },
            _ => Products { factor: 1.0, rows: 0, columns: 0, operand_roundings: 0, transform_terms: 0 },
        }
    }

    /// Inputs without signs, each the largest one near its place.
    pub fn inputs(self, values: &[f32], thw: Thw, channels: usize) -> Vec<f32> {
        // Rows of frames are like columns of as many channels as a row has values.
        let columns = widened(&absolute(values), thw.w, channels, self.columns);
        widened(&columns, thw.h, thw.w * channels, self.rows)
    }
}

/// The factor of F(4,2): for the points p = a and b, the inputs of p and -p are at most (1 + p) (1 + q^2) D, where q is
/// the other one, and their weights (|g0| + p |g1|) / 2p(b^2 - a^2), with a factor of at most p^3 in an output.
/// Infinity has (1 + a^2) (1 + b^2) D |g1| in the last output.
fn four() -> f64 {
    let [a, b] = super::winograd::TRIPLE.map(f64::from);
    let point = |p: f64, q: f64| {
        let weight = p.max(1.0).powi(3) / (2.0 * p * (b * b - a * a));
        2.0 * (1.0 + p) * (1.0 + q * q) * weight
    };
    let g0 = point(a, b) + point(b, a);
    let g1 = a * point(a, b) + b * point(b, a) + (1.0 + a * a) * (1.0 + b * b);
    g0.max(g1)
}

#[cfg(test)]
mod tests {
    use super::super::winograd::TRIPLE;
    use super::*;
    use crate::conformance::Values;

    fn largest(values: &[f32]) -> f32 {
        values.iter().fold(0.0, |most: f32, v| most.max(v.abs()))
    }

    /// Products and outputs of F(2,2), whose outputs are sums of the products that `PARTS` names.
    fn transformed(d: [f32; 3], g: [f32; 2]) -> [f32; 3] {
        [(d[0] - d[1]) * g[0], d[1] * (g[0] + g[1]), (d[2] - d[1]) * g[1]]
    }
    const PARTS: [[usize; 2]; 2] = [[0, 1], [1, 2]];

    /// F(2,2) gives both outputs of an axis, and its products stay below 3 D S, so that those of two axes stay below
    /// 9 D S.
    #[test]
    fn the_products_of_pairs_stay_below_their_bound() {
        let mut values = Values::new(11);
        for _ in 0..100 {
            let (g, d) = (values.take(2), values.take(3));
            let products = transformed([d[0], d[1], d[2]], [g[0], g[1]]);
            for (k, parts) in PARTS.iter().enumerate() {
                let parts = parts.map(|i| products[i]);
                let (window, sum) = (&d[k..k + 2], g[0].abs() + g[1].abs());
                assert!((parts[0] + parts[1] - g[0] * window[0] - g[1] * window[1]).abs() < 1e-5, "{g:?} {d:?}");
                assert!(parts[0].abs() + parts[1].abs() <= 3.0 * largest(window) * sum, "{g:?} {d:?}");
            }
        }
        assert_eq!(Products::of(9.0 / 16.0).factor, 9.0);
    }

    /// F(4,2) gives all four outputs, and its products stay below their bound.
    #[test]
    fn the_products_of_four_outputs_stay_below_their_bound() {
        let (mut values, [a, b]) = (Values::new(13), TRIPLE);
        let factor = Products::of(5.0 / 8.0).factor as f32;
        for _ in 0..100 {
            let (g, d) = (values.take(2), values.take(5));
            let point = |p: f32, q: f32| {
                let (odd, even) = (d[3] - q * q * d[1], d[2] - q * q * d[0]);
                (odd + p * even) * (g[0] + p * g[1]) / (2.0 * p * (p * p - q * q))
            };
            let products = [(a, point(a, b)), (-a, point(-a, b)), (b, point(b, a)), (-b, point(-b, a))];
            let infinity = (d[4] - (a * a + b * b) * d[2] + a * a * b * b * d[0]) * g[1];
            for k in 0..4 {
                let mut parts: Vec<f32> = products.iter().map(|(p, m)| p.powi(k) * m).collect();
                parts.push(if k == 3 { infinity } else { 0.0 });
                let at = k as usize;
                let direct = g[0] * d[at] + g[1] * d[at + 1];
                assert!((parts.iter().sum::<f32>() - direct).abs() < 1e-5, "{g:?} {d:?}");
                let most = factor * largest(&d) * (g[0].abs() + g[1].abs());
                assert!(parts.iter().map(|part| part.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
            }
        }
    }

    #[test]
    fn inputs_are_the_largest_ones_near_their_place() {
        let thw = Thw::new(1, 3, 4);
        let values = [0.0, 0.0, 0.0, -7.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0];
        assert_eq!(Products::of(1.0).inputs(&values, thw, 1), values.map(f32::abs));
        let near = [0.0, 0.0, 7.0, 7.0, 2.0, 2.0, 7.0, 7.0, 2.0, 2.0, 0.0, 0.0];
        assert_eq!(Products::of(9.0 / 16.0).inputs(&values, thw, 1), near);
        let rows = [7.0, 7.0, 7.0, 7.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0];
        assert_eq!(Products::of(5.0 / 8.0).inputs(&values, thw, 1), rows);
    }
}
