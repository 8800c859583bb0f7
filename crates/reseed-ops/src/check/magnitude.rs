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
pub fn conv_magnitude(spec: &ConvSpec, data: ConvData) -> ConvData {
    let ConvData { mut weight, bias } = absolute_data(data);
    if winograd(spec) {
        for plane in weight.chunks_exact_mut(9) {
            let g: [f32; 9] = std::array::from_fn(|i| plane[i]);
            for (i, to) in plane.iter_mut().enumerate() {
                let (y, x) = (i / 3, i % 3);
                let along = |line: [f32; 3], at: usize| line.iter().sum::<f32>() + [line[2], 0.0, line[0]][at];
                *to = along([0, 1, 2].map(|x| g[3 * y + x]), x) + along([0, 1, 2].map(|y| g[3 * y + x]), y);
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
