//! Convolutions of bytes after a norm. The bytes of an input are found with a convolution that copies it; the sums of
//! products are then known exactly.

use rayon::prelude::*;

use super::Values;
use crate::check::{Disagreement, Element};
use crate::device::Device;
use crate::error::Result;
use crate::int8_conv::{Int8Conv, first_kernel};
use crate::operands::{Activation, Epilogue, TemporalCache};
use crate::shape::{DType, Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::{Conv, ConvData, ConvSpec, Norm};

/// Input, input channels, output channels.
pub type Case = (Thw, usize, usize);

pub const CASES: &[Case] = &[
    (Thw::new(1, 1, 1), 128, 128),  // only border
    (Thw::new(4, 7, 35), 128, 256), // one row of wide tiles
    (Thw::new(3, 18, 21), 256, 128),
    (Thw::new(2, 33, 17), 384, 128), // an odd number of 128 channels
];

const GROUPS: usize = 32;

/// Error of a value before it is rounded to a byte, in bytes: that of f32 statistics and of a fast exponential, which
/// is below 2⁻¹³ of at most 127 bytes.
const SLACK: f64 = 127.0 / 8192.0;

/// A layer, and its bytes as the device has to compute them.
struct Layer {
    spec: ConvSpec,
    norm: Norm,
    conv: Conv,
    bytes: Int8Conv,
}

impl Layer {
    /// None if the device multiplies floats.
    fn new(device: &dyn Device, gain_shift: &ConvData, c_out: usize, weight: Vec<f32>) -> Result<Option<Layer>> {
        let copy = |data: &ConvData| ConvData { weight: data.weight.clone(), bias: data.bias.clone() };
        let spec = ConvSpec::same(gain_shift.weight.len(), c_out, Thw::new(3, 3, 3));
        let data = ConvData { weight, bias: Values::new(7).take(c_out) };
        let (read_norm, read_conv) = (|| Ok(copy(gain_shift)), || Ok(copy(&data)));
        let (norm, conv) = device.norm_conv_weights(GROUPS, 1e-6, spec, &read_norm, &read_conv)?;
        if !norm.int8 {
            return Ok(None);
        }
        let bytes = Int8Conv::quantize(gain_shift, &spec, &data).expect("a layer that the device has rounded");
        Ok(Some(Layer { spec, norm, conv, bytes }))
    }
}

/// The bytes of normed values, and their convolutions at the start of a clip and after a cache.
pub fn run(device: &dyn Device, &(thw, c_in, c_out): &Case, seed: u64) -> Result<Vec<Disagreement>> {
    let values = &mut Values::new(1700 + seed);
    let norm = ConvData { weight: values.take(c_in), bias: values.take(c_in) };
    let size = (3.0 / (27 * c_in) as f32).sqrt();
    let weight = values.take(c_out * c_in * 27).iter().map(|w| w * size).collect();
    let Some(layer) = Layer::new(device, &norm, c_out, weight)? else { return Ok(Vec::new()) };
    let x = device.upload(Shape::clip(thw, c_in), &values.take(thw.count() * c_in))?;
    let exact = normed(&device.download(&x)?, thw, &norm);
    let h = device.group_norm(x, None, &layer.norm, Activation::Silu)?;
    let bytes = bytes_of(device, &h, &norm)?;
    let mut found = Vec::new();
    found.extend(compare_bytes(&bytes, &exact, &layer).map(|error| report("group_norm", seed, &h, error)));
    let tail = device.tail(None, h.clone(), 2)?;
    for cache in [TemporalCache::Start, TemporalCache::Frames(&tail)] {
        let residual = device.upload(Shape::clip(thw, c_out), &values.take(thw.count() * c_out))?;
        let added = device.download(&residual)?;
        let epilogue = Epilogue { residual: Some(residual), groups: Some(GROUPS) };
        let y = device.conv(cache, &h, &layer.conv, epilogue)?.tensor;
        let wanted = convolved(&layer, &bytes, thw, cache.starts());
        let error = compare(&device.download(&y)?, y.dtype(), &wanted, &added);
        found.extend(error.map(|error| report("conv", seed, &y, error)));
    }
    Ok(found)
}

/// An element, its error, and the bound of that.
type Excess = (Element, f64, f64);

fn report(op: &'static str, seed: u64, y: &Tensor, (element, error, allowed): Excess) -> Disagreement {
    let (stage, element) = (format!("convolution of bytes, case {seed}"), Some(element));
    Disagreement { stage, op, call: seed as usize, shape: y.shape(), element, error, allowed }
}

/// The bytes of normed values, by a convolution that copies them.
fn bytes_of(device: &dyn Device, h: &Tensor, norm: &ConvData) -> Result<Vec<i8>> {
    let channels = h.channels();
    let mut copying = vec![0.0; channels * channels * 27];
    (0..channels).for_each(|c| copying[(c * channels + c) * 27 + 22] = 1.0); // the last frame, the pixel itself
    let copy = Layer::new(device, norm, channels, copying)?.expect("a layer of bytes, as the one before");
    let y = device.conv(TemporalCache::Start, h, &copy.conv, Epilogue::default())?;
    let byte = |(i, y): (usize, f32)| {
        let c = i % channels;
        ((y - copy.bytes.factors[c][1]) * copy.bytes.per_unit[c]).round() as i8
    };
    Ok(device.download(&y.tensor)?.into_iter().enumerate().map(byte).collect())
}

/// A byte that is not the nearest one.
fn compare_bytes(bytes: &[i8], exact: &[f64], layer: &Layer) -> Option<Excess> {
    let of = |(index, &byte): (usize, &i8)| {
        let wanted = exact[index] * f64::from(layer.bytes.per_unit[index % layer.spec.c_in]);
        let element = Element { index, reference: wanted as f32, device: byte.into() };
        (element, (f64::from(byte) - wanted.clamp(-127.0, 127.0)).abs(), 0.5 + SLACK)
    };
    bytes.iter().enumerate().map(of).find(|(_, error, allowed)| error > allowed)
}

/// silu of a group norm, in f64.
fn normed(x: &[f32], thw: Thw, norm: &ConvData) -> Vec<f64> {
    let (channels, plane) = (norm.weight.len(), thw.h * thw.w);
    let width = channels / GROUPS;
    let mut y = vec![0.0; x.len()];
    for (frame, group) in (0..thw.t).flat_map(|t| (0..GROUPS).map(move |g| (t, g))) {
        let at = |i: usize| (frame * plane + i / width) * channels + group * width + i % width;
        let count = (plane * width) as f64;
        let mean = (0..plane * width).map(|i| f64::from(x[at(i)])).sum::<f64>() / count;
        let variance = (0..plane * width).map(|i| (f64::from(x[at(i)]) - mean).powi(2)).sum::<f64>() / count;
        for i in (0..plane * width).map(at) {
            let (gain, shift) = (f64::from(norm.weight[i % channels]), f64::from(norm.bias[i % channels]));
            let z = (f64::from(x[i]) - mean) / (variance + 1e-6).sqrt() * gain + shift;
            y[i] = z / (1.0 + (-z).exp());
        }
    }
    y
}

/// The convolution of bytes, at the start of a clip or after a cache of the last frames of `x` itself.
fn convolved(layer: &Layer, x: &[i8], thw: Thw, starts: bool) -> Vec<f32> {
    let Layer { spec, bytes, .. } = layer;
    let (c_in, c_out) = (spec.c_in, spec.c_out);
    let source = |frame: usize| match frame.checked_sub(2) {
        Some(frame) => frame,
        None if starts => 0,
        None => (thw.t + frame).saturating_sub(2),
    };
    let pixel = |i: usize| {
        let (t, row, column) = (i / (thw.h * thw.w), i / thw.w % thw.h, i % thw.w);
        let folded = if starts { spec.folded(t) } else { 1 };
        let mut sums = vec![0i32; c_out];
        for (tap, dy, dx) in (0..4 - folded).flat_map(|t| (0..9).map(move |s| (t, s / 3, s % 3))) {
            let (y, x_at) = ((row + dy).wrapping_sub(1), (column + dx).wrapping_sub(1));
            if y >= thw.h || x_at >= thw.w {
                continue;
            }
            let from = &x[((source(t + tap + folded - 1) * thw.h + y) * thw.w + x_at) * c_in..][..c_in];
            let kernel = first_kernel(spec, folded) + tap * 9 + dy * 3 + dx;
            for (o, sum) in sums.iter_mut().enumerate() {
                let w = &bytes.kernels[(kernel * c_out + o) * c_in..][..c_in];
                *sum += from.iter().zip(w).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
            }
        }
        let factors = bytes.factors[(folded - 1) * c_out..].iter();
        sums.into_iter().zip(factors).map(|(sum, [scale, bias])| sum as f32 * scale + bias).collect::<Vec<f32>>()
    };
    (0..thw.count()).into_par_iter().flat_map_iter(pixel).collect()
}

/// An element beyond its bound: one rounding of the result, and some of f32.
fn compare(values: &[f32], dtype: DType, sums: &[f32], added: &[f32]) -> Option<Excess> {
    let of = |index: usize| {
        let [y, sum, add] = [values[index], sums[index], added[index]].map(f64::from);
        let floats = 8.0 * f64::from(DType::F32.rounding()) * (sum.abs() + add.abs() + 1.0);
        let allowed = (sum + add).abs() * f64::from(dtype.rounding()) + floats;
        (Element { index, reference: (sum + add) as f32, device: values[index] }, (y - sum - add).abs(), allowed)
    };
    (0..values.len()).map(of).find(|(_, error, allowed)| error.is_nan() || error > allowed)
}
