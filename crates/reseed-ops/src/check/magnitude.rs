//! Weights and activations without their signs: the reference computes from them how large the terms of a sum are.

use super::CheckOps;
use super::bound::{EPS, independent};
use super::compare::grouped;
use crate::error::Result;
use crate::shape::{DType, Thw};
use crate::tensor::Tensor;
use crate::weights::{ConvData, ConvSpec, Norm};

/// Absolute values.
pub fn absolute(values: &[f32]) -> Vec<f32> {
    values.iter().map(|v| v.abs()).collect()
}

/// Both parts of a layer without signs.
pub fn absolute_data(data: ConvData) -> ConvData {
    ConvData { weight: absolute(&data.weight), bias: absolute(&data.bias) }
}

/// Whether a device may compute a convolution by Winograd F(2,3).
pub fn winograd(spec: &ConvSpec) -> bool {
    spec.stride == Thw::new(1, 1, 1) && (spec.taps.h, spec.taps.w) == (3, 3)
}

/// Products of Winograd F(2,3), relative to the direct algorithm; less a rounding.
const WINOGRAD: f32 = 0.66;

/// Whether a device that executes this part of the products of the direct algorithm uses F(2x2,3x3).
pub fn two_axes(executed: f32) -> bool {
    executed < WINOGRAD
}

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
/// of the other axis. A device uses it where it executes less than F(2,3) does of the products of the direct algorithm.
pub fn conv_magnitude(spec: &ConvSpec, data: ConvData, executed: f32) -> ConvData {
    let ConvData { mut weight, bias } = absolute_data(data);
    if winograd(spec) {
        for plane in weight.chunks_exact_mut(9) {
            let g: [f32; 9] = std::array::from_fn(|i| plane[i]);
            let along = |line: [f32; 3], at: usize| line.iter().sum::<f32>() + [line[2], 0.0, line[0]][at];
            let along_row = |g: &[f32; 9], i: usize| along([0, 1, 2].map(|x| g[i / 3 * 3 + x]), i % 3);
            let along_column = |g: &[f32; 9], i: usize| along([0, 1, 2].map(|y| g[y * 3 + i % 3]), i / 3);
            let rows: [f32; 9] = std::array::from_fn(|i| along_row(&g, i));
            for (i, to) in plane.iter_mut().enumerate() {
                *to = match two_axes(executed) {
                    true => along_column(&rows, i),
                    false => rows[i] + along_column(&g, i),
                };
            }
        }
    }
    ConvData { weight, bias }
}

/// A norm's result before its activation, and its largest error on a correct device.
pub struct Normalized {
    pub z: Vec<f64>,
    pub dz: Vec<f64>,
}

impl CheckOps<'_> {
    /// Values of a tensor on the reference.
    pub(super) fn values(&self, x: &Tensor) -> Result<Vec<f32>> {
        let [values, _] = self.both(|side| match side.index {
            0 => side.device.download(&side.tensor(x)),
            _ => Ok(Vec::new()),
        })?;
        Ok(values)
    }

    /// |x| on the reference.
    pub(super) fn absolute(&self, x: &Tensor) -> Result<Tensor> {
        self.reference.upload(x.shape(), &absolute(&self.values(x)?))
    }

    /// What the reference computed from magnitudes. Where f16 has no room for one, its largest number is a smaller
    /// bound.
    pub(super) fn magnitudes(&self, y: &Tensor) -> Result<Vec<f64>> {
        let most = if y.dtype() == DType::F16 { 65504.0 } else { f32::MAX };
        Ok(self.reference.download(y)?.into_iter().map(|v| f64::from(v.min(most))).collect())
    }

    /// z = (x - μ) r γ + β with r = 1 / √(σ² + eps), and the error of z.
    ///
    /// Statistics that a device takes itself are sums of deviations from a value of the group, at most 2D for the
    /// largest deviation D from the mean. Given statistics differ by what the devices hold. The error of z is then
    /// |γ| r dμ + |γ| |x - μ| dr and a few roundings of f32.
    pub(super) fn normalized(
        &self,
        x: &Tensor,
        stats: Option<&Tensor>,
        norm: &Norm,
        data: &ConvData,
    ) -> Result<Normalized> {
        let (values, thw, channels) = (self.values(x)?, x.thw(), x.channels());
        let width = channels / norm.groups;
        let given = stats.map(|stats| self.both(|side| side.device.download(&side.tensor(stats)))).transpose()?;
        let mut groups = Vec::new();
        for (i, group) in grouped(&values, thw.t, channels, norm.groups).enumerate() {
            let n = group.len() as f64;
            let (mean, variance, dm, dv) = match &given {
                Some([a, b]) => {
                    let (at, apart) = (2 * i, |i: usize| f64::from((a[i] - b[i]).abs()) / 2.0);
                    (f64::from(a[at]), f64::from(a[at + 1]), apart(at), apart(at + 1))
                }
                None => {
                    let mean = group.iter().sum::<f64>() / n;
                    let variance = group.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
                    let most = group.iter().map(|v| (v - mean).abs()).fold(0.0, f64::max);
                    let summed = independent(group.len()) * EPS;
                    let dm = summed * 2.0 * most + 2.0 * EPS * mean.abs();
                    (mean, variance, dm, summed * 4.0 * most * most + dm * dm)
                }
            };
            let scale = |variance: f64| 1.0 / (variance.max(0.0) + f64::from(norm.eps)).sqrt();
            let r = scale(variance);
            groups.push((mean, r, dm, scale(variance - dv) - r + 4.0 * EPS * r));
        }
        let frame = values.len() / thw.t;
        let (mut z, mut dz) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
        for (i, &v) in values.iter().enumerate() {
            let (v, c) = (f64::from(v), i % channels);
            let (mean, r, dm, dr) = groups[i / frame * norm.groups + c / width];
            let (gain, shift) = (f64::from(data.weight[c]), f64::from(data.bias[c]));
            let scaled = (v - mean) * r * gain;
            let dm = dm + 2.0 * EPS * (v.abs() + mean.abs());
            z.push(scaled + shift);
            dz.push(gain.abs() * ((r + dr) * dm + (v - mean).abs() * dr) + 4.0 * EPS * (scaled.abs() + shift.abs()));
        }
        Ok(Normalized { z, dz })
    }
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

    /// One axis has the smaller bound.
    #[test]
    fn the_bound_follows_the_algorithm() {
        let spec = ConvSpec::same(1, 1, Thw::new(1, 3, 3));
        let ones = || ConvData { weight: vec![1.0; 9], bias: vec![1.0] };
        let corner = |executed| conv_magnitude(&spec, ones(), executed).weight[0];
        assert_eq!([corner(1.0), corner(4.0 / 6.0), corner(4.0 / 9.0)], [8.0, 8.0, 16.0]);
    }
}
