//! Weights and activations without their signs: the reference computes from them how large the terms of a sum are.

use super::CheckOps;
use super::bound::{EPS, independent};
use super::compare::grouped;
use super::winograd::{reach, widened};
use crate::error::Result;
use crate::shape::{DType, Hw};
use crate::tensor::Tensor;
use crate::weights::{Conv, ConvData, Norm};

/// Absolute values.
pub fn absolute(values: &[f32]) -> Vec<f32> {
    values.iter().map(|v| v.abs()).collect()
}

/// Both parts of a layer without signs.
pub fn absolute_data(data: ConvData) -> ConvData {
    ConvData { weight: absolute(&data.weight), bias: absolute(&data.bias) }
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

    /// The input of a convolution without signs, as [`super::winograd::conv_magnitude`] needs it.
    pub(super) fn conv_input(&self, x: &Tensor, conv: &Conv) -> Result<Tensor> {
        let values = absolute(&self.values(x)?);
        let (thw, channels) = (x.thw(), x.channels());
        let values = match reach(conv) {
            // Rows of frames are like columns of as many channels as a row has values.
            Some(Hw { h, w }) => widened(&widened(&values, thw.w, channels, w), thw.h, thw.w * channels, h),
            None => values,
        };
        self.reference.upload(x.shape(), &values)
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
