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
    data: ConvData,
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
        Ok(Some(Layer { spec, data, norm, conv, bytes }))
    }
}

/// The bytes of normed values, their convolutions at the start of a clip and after a cache, and their statistics.
pub fn run(device: &dyn Device, &(thw, c_in, c_out): &Case, seed: u64) -> Result<Vec<Disagreement>> {
    let values = &mut Values::new(1700 + seed);
    let norm = ConvData { weight: values.take(c_in), bias: values.take(c_in) };
    let mut copying = vec![0.0; c_in * c_in * 27];
    (0..c_in).for_each(|c| copying[(c * c_in + c) * 27 + 22] = 1.0); // the last frame, the pixel itself
    let size = (3.0 / (27 * c_in) as f32).sqrt();
    let weight = values.take(c_out * c_in * 27).iter().map(|w| w * size).collect();
    let Some(copy) = Layer::new(device, &norm, c_in, copying)? else { return Ok(Vec::new()) };
    let Some(layer) = Layer::new(device, &norm, c_out, weight)? else { return Ok(Vec::new()) };
    let x = device.upload(Shape::clip(thw, c_in), &values.take(thw.count() * c_in))?;
    let exact = normed(&device.download(&x)?, thw, &norm);
    let h = device.group_norm(x.clone(), None, &layer.norm, Activation::Silu)?;
    let copied = device.conv(TemporalCache::Start, &h, &copy.conv, Epilogue::default())?;
    let copied = device.download(&copied.tensor)?;
    let byte = |i: usize| {
        let c = i % c_in;
        ((copied[i] - copy.data.bias[c]) * copy.bytes.per_unit[c]).round()
    };
    let bytes: Vec<i8> = (0..copied.len()).map(|i| byte(i) as i8).collect();
    let off = |i: usize| {
        let wanted = exact[i] * f64::from(layer.bytes.per_unit[i % c_in]);
        let nearest = wanted.clamp(-127.0, 127.0);
        (f64::from(bytes[i]) - nearest).abs() - SLACK
    };
    let element = |index: usize| Element { index, reference: exact[index] as f32, device: copied[index] };
    let report = |op, shape, element, error, allowed| Disagreement {
        stage: "convolution of bytes".into(),
        op,
        call: seed as usize,
        shape,
        element: Some(element),
        error,
        allowed,
    };
    let mut found = Vec::new();
    found.extend(
        (0..bytes.len()).find(|&i| off(i) > 0.5).map(|i| report("group_norm", x.shape(), element(i), off(i), 0.5)),
    );

    let residual = values.take(thw.count() * c_out);
    let start = |frame: usize| (0..3).map(|dt| (frame + dt).saturating_sub(2)).collect::<Vec<_>>();
    let cached = |frame: usize| {
        (0..3).map(|dt| if frame + dt < 2 { (thw.t + frame + dt).saturating_sub(2) } else { frame + dt - 2 }).collect()
    };
    let tail = device.tail(None, h.clone(), 2)?;
    let cases: [(TemporalCache, &dyn Fn(usize) -> Vec<usize>); 2] =
        [(TemporalCache::Start, &start), (TemporalCache::Frames(&tail), &cached)];
    for (cache, frames) in cases {
        let add = device.upload(Shape::clip(thw, c_out), &residual)?;
        let added = device.download(&add)?;
        let epilogue = Epilogue { residual: Some(add), groups: Some(GROUPS) };
        let y = device.conv(cache, &h, &layer.conv, epilogue)?;
        let wanted = convolved(&layer, &bytes, thw, cache.starts(), frames);
        found.extend(
            compare(device, &y.tensor, &wanted, &added)?
                .map(|(element, error, allowed)| report("conv", y.tensor.shape(), element, error, allowed)),
        );
    }
    Ok(found)
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

/// The convolution of bytes; `frames` are the input frames that the temporal taps of an output frame read.
fn convolved(layer: &Layer, x: &[i8], thw: Thw, starts: bool, frames: &dyn Fn(usize) -> Vec<usize>) -> Vec<f32> {
    let Layer { spec, bytes, .. } = layer;
    let (c_in, c_out) = (spec.c_in, spec.c_out);
    let sources: Vec<Vec<usize>> = (0..thw.t).map(frames).collect();
    let pixel = |i: usize| {
        let (t, row, column) = (i / (thw.h * thw.w), i / thw.w % thw.h, i % thw.w);
        let folded = if starts { spec.folded(t) } else { 1 };
        let mut sums = vec![0i32; c_out];
        for (tap, dy, dx) in (0..4 - folded).flat_map(|t| (0..9).map(move |s| (t, s / 3, s % 3))) {
            let (y, x_at) = ((row + dy).wrapping_sub(1), (column + dx).wrapping_sub(1));
            if y >= thw.h || x_at >= thw.w {
                continue;
            }
            let source = sources[t][tap + folded - 1];
            let from = &x[((source * thw.h + y) * thw.w + x_at) * c_in..][..c_in];
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

/// The element furthest beyond its bound: one rounding of the result, and some of f32.
fn compare(device: &dyn Device, y: &Tensor, sums: &[f32], added: &[f32]) -> Result<Option<(Element, f64, f64)>> {
    let values = device.download(y)?;
    let of = |i: usize| {
        let wanted = f64::from(sums[i]) + f64::from(added[i]);
        let floats =
            8.0 * f64::from(DType::F32.rounding()) * (f64::from(sums[i]).abs() + f64::from(added[i]).abs() + 1.0);
        let allowed = wanted.abs() * f64::from(y.dtype().rounding()) + floats;
        (
            Element { index: i, reference: wanted as f32, device: values[i] },
            (f64::from(values[i]) - wanted).abs(),
            allowed,
        )
    };
    Ok((0..values.len()).map(of).find(|(_, error, allowed)| !(error <= allowed)))
}
