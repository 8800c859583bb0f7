//! Every op on awkward shapes, on two devices. A device conforms when [`run`] finds no disagreement.

mod int8;
mod int8_conv;
mod pixels;
mod quant;
mod tokens;

use crate::check::{CheckOps, Disagreement};
use crate::device::Device;
use crate::error::Result;
use crate::operands::{Activation, Epilogue, Placement, TemporalCache};
use crate::residency::{offload, prefetch};
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::timing::Timing;
use crate::weights::{Conv, ConvData, ConvSpec, Linear, LinearSpec, UpsampleData, UpsampleSpec};

/// Pseudo-random numbers from -1 to 1.
pub struct Values(u64);

impl Values {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Values {
        Values(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// The next `count` numbers.
    pub fn take(&mut self, count: usize) -> Vec<f32> {
        let next = |_| {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(next).collect()
    }
}

/// Compares `device` with `reference` in every case.
pub fn run(reference: &dyn Device, device: &dyn Device) -> Result<Vec<Disagreement>> {
    let ops = CheckOps::new(reference, device);
    for (i, case) in CONV.iter().enumerate() {
        ops.stage(&format!("conv case {i}"));
        conv(&ops, case, i as u64)?;
    }
    for (i, case) in UPSAMPLE.iter().enumerate() {
        ops.stage(&format!("upsample case {i}"));
        upsample(&ops, case, i as u64)?;
    }
    for (i, case) in GROUP_NORM.iter().enumerate() {
        ops.stage(&format!("group_norm case {i}"));
        group_norm(&ops, case, i as u64)?;
    }
    for (i, case) in LINEAR.iter().enumerate() {
        ops.stage(&format!("linear case {i}"));
        linear(&ops, case, i as u64)?;
    }
    let mut inexact = Vec::new();
    for (i, case) in quant::CASES.iter().enumerate() {
        ops.stage(&format!("quant case {i}"));
        quant::linear(&ops, case, i as u64)?;
        inexact.extend(quant::exact(device, case, i as u64)?);
    }
    for (i, case) in int8::CASES.iter().enumerate() {
        ops.stage(&format!("int8 case {i}"));
        int8::linear(&ops, case, i as u64)?;
    }
    for (i, case) in int8_conv::CASES.iter().enumerate() {
        inexact.extend(int8_conv::run(device, case, i as u64)?);
    }
    for (i, case) in ATTENTION.iter().enumerate() {
        ops.stage(&format!("attention case {i}"));
        attention(&ops, case, i as u64)?;
    }
    tokens::run(&ops)?;
    for (i, case) in pixels::CASES.iter().enumerate() {
        ops.stage(&format!("pixels case {i}"));
        pixels::run(&ops, case, i as u64)?;
    }
    inexact.extend(pixels::exact(device)?);
    ops.stage("blend_add");
    blend_add(&ops)?;
    Ok(ops.disagreements().into_iter().chain(inexact).collect())
}

/// The layers with most of the networks' work, each over a few tiles, without a comparison: for tools that watch a
/// device at a great cost.
pub fn main_layers(device: &dyn Device) -> Result<()> {
    for (i, case) in MAIN_CONV.iter().enumerate() {
        conv(device, case, i as u64)?;
    }
    for (i, case) in MAIN_UPSAMPLE.iter().enumerate() {
        upsample(device, case, i as u64)?;
    }
    conv(device, &same((1, 18, 20), (128, 128), (3, 3), 32), 0)?;
    group_norm(device, &(Thw::new(2, 18, 20), 128, 32), 0)?;
    attention(device, &(1, 512, &[150]), 0)?;
    attention(device, &(2, 256, &[129, 64, 60]), 1)?;
    linear(device, &(150, 256, 520), 0)?;
    int8::linear(device, &int8::CASES[0], 0)?;
    int8_conv::run(device, &int8_conv::CASES[2], 0).map(|_| ())
}

fn clip(ops: &dyn Device, thw: Thw, channels: usize, values: &mut Values) -> Result<Tensor> {
    let shape = Shape::clip(thw, channels);
    ops.upload(shape, &values.take(shape.count()))
}

struct ConvCase {
    input: Thw,
    spec: ConvSpec,
    groups: usize,
}

const fn same(input: (usize, usize, usize), channels: (usize, usize), taps: (usize, usize), groups: usize) -> ConvCase {
    let (kt, k) = taps;
    let spec = ConvSpec {
        c_in: channels.0,
        c_out: channels.1,
        taps: Thw::new(kt, k, k),
        stride: Thw::new(1, 1, 1),
        pad_before: k / 2,
        pad_after: k / 2,
    };
    ConvCase { input: Thw::new(input.0, input.1, input.2), spec, groups }
}

const fn down(input: (usize, usize, usize), channels: usize, kt: usize, groups: usize) -> ConvCase {
    let spec = ConvSpec {
        c_in: channels,
        c_out: channels,
        taps: Thw::new(kt, 3, 3),
        stride: Thw::new(if kt == 3 { 2 } else { 1 }, 2, 2),
        pad_before: 0,
        pad_after: 1,
    };
    ConvCase { input: Thw::new(input.0, input.1, input.2), spec, groups }
}

const CONV: &[ConvCase] = &[
    //    t  h  w    in   out   taps  groups
    same((1, 1, 1), (1, 1), (3, 3), 1),       // only padding around one pixel
    same((1, 2, 3), (3, 8), (3, 3), 4),       // the image layer
    same((2, 5, 7), (8, 3), (3, 3), 3),       // fewer channels than a register
    same((3, 9, 17), (16, 24), (3, 3), 8),    // a half-empty panel
    same((4, 11, 59), (12, 33), (3, 3), 11),  // wider than a region, one channel beyond a panel
    same((5, 17, 13), (40, 96), (3, 3), 32),  // groups of three channels
    same((2, 6, 5), (96, 64), (1, 1), 32),    // a shortcut
    same((1, 33, 114), (32, 64), (3, 3), 32), // many regions
    same((3, 7, 35), (64, 96), (3, 3), 32),   // Winograd over rows, an odd number of them
    same((2, 21, 35), (64, 128), (3, 3), 32), // Winograd over columns, an odd number of them; a partial tile of rows
    same((2, 23, 50), (64, 128), (3, 3), 32), // Winograd over columns: two columns more than triples, a wide tile
    same((1, 9, 18), (128, 512), (3, 3), 32), // groups of sixteen channels
    down((1, 7, 9), 16, 1, 4),
    down((3, 8, 6), 24, 3, 8),
    down((5, 12, 118), 8, 3, 2),
];

const MAIN_CONV: &[ConvCase] = &[
    same((2, 18, 20), (128, 128), (3, 3), 32),
    same((1, 9, 18), (256, 128), (3, 3), 32),
    same((2, 9, 18), (256, 128), (1, 1), 32),
    same((2, 18, 20), (128, 3), (3, 3), 3),
    same((2, 9, 17), (3, 128), (3, 3), 32),
    down((1, 18, 20), 128, 1, 32),
    down((3, 18, 20), 128, 3, 32),
];

fn kernels(ops: &dyn Device, spec: &ConvSpec, values: &mut Values) -> Result<Conv> {
    let fan_in = spec.c_in * spec.taps.count();
    let scale = (3.0 / fan_in as f32).sqrt();
    let weight: Vec<f32> = values.take(fan_in * spec.c_out).iter().map(|v| v * scale).collect();
    let bias = values.take(spec.c_out);
    ops.conv_weights(*spec, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))
}

/// At the start of a clip, then with its cache, with and without residual and statistics.
fn conv(ops: &dyn Device, case: &ConvCase, seed: u64) -> Result<()> {
    let (spec, values) = (&case.spec, &mut Values::new(seed));
    let conv = kernels(ops, spec, values)?;

    let x = clip(ops, case.input, spec.c_in, values)?;
    ops.conv(TemporalCache::Start, &x, &conv, Epilogue { residual: None, groups: Some(case.groups) })?;
    if spec.cached_frames() == 0 {
        return Ok(());
    }
    // From here on with prefetched weights.
    let conv = prefetch(ops, &offload(ops, &conv)?)?;
    let tail = ops.tail(None, x, spec.cached_frames())?;
    let next = clip(ops, Thw { t: 2 * spec.stride.t, ..case.input }, spec.c_in, values)?;
    let residual = clip(ops, spec.output(next.thw(), false), spec.c_out, values)?;
    let epilogue = Epilogue { residual: Some(residual), groups: Some(case.groups) };
    ops.conv(TemporalCache::Frames(&tail), &next, &conv, epilogue)?;
    let single = next.frames(0, spec.stride.t);
    let tail = ops.tail(Some(tail), single.clone(), spec.cached_frames())?;
    ops.conv(TemporalCache::Frames(&tail), &single, &conv, Epilogue::default())?;
    Ok(())
}

struct UpsampleCase {
    input: Thw,
    spec: UpsampleSpec,
    groups: usize,
}

const fn up(input: (usize, usize, usize), channels: usize, time: bool, groups: usize) -> UpsampleCase {
    UpsampleCase { input: Thw::new(input.0, input.1, input.2), spec: UpsampleSpec { channels, time }, groups }
}

const UPSAMPLE: &[UpsampleCase] = &[
    up((1, 1, 1), 4, true, 2), // every pixel is a corner
    up((1, 1, 1), 4, false, 2),
    up((3, 2, 5), 8, true, 4),
    up((4, 3, 2), 8, false, 4),
    up((2, 9, 61), 33, true, 11),
    up((2, 9, 61), 24, false, 8),
];

const MAIN_UPSAMPLE: &[UpsampleCase] = &[up((2, 9, 18), 128, true, 32), up((2, 9, 18), 128, false, 32)];

fn upsample(ops: &dyn Device, case: &UpsampleCase, seed: u64) -> Result<()> {
    let (spec, values) = (case.spec, &mut Values::new(100 + seed));
    let c = spec.channels;
    let mut part = |c_out: usize, fan_in: usize| {
        let scale = (3.0 / fan_in as f32).sqrt();
        let weight: Vec<f32> = values.take(c_out * fan_in).iter().map(|v| v * scale).collect();
        (weight, values.take(c_out))
    };
    let (upscale, conv) = (part(spec.phases() * c, c), part(c, 27 * c));
    let data = |(weight, bias): &(Vec<f32>, Vec<f32>)| ConvData { weight: weight.clone(), bias: bias.clone() };
    let read = || Ok(UpsampleData { upscale: data(&upscale), conv: data(&conv) });
    let upsample = ops.upsample_weights(spec, &read)?;

    let x = clip(ops, case.input, c, values)?;
    ops.upsample(TemporalCache::Start, &x, &upsample, Some(case.groups))?;
    let first = ops.tail(None, x.frames(0, 1), spec.cached_frames())?;
    ops.upsample(TemporalCache::AfterFirst(&first), &x, &upsample, Some(case.groups))?;
    // With prefetched weights.
    let upsample = prefetch(ops, &offload(ops, &upsample)?)?;
    ops.upsample(TemporalCache::AfterFirst(&first), &x, &upsample, None)?;
    let tail = ops.tail(Some(first), x.clone(), spec.cached_frames())?;
    ops.upsample(TemporalCache::Frames(&tail), &x, &upsample, None)?;
    Ok(())
}

const GROUP_NORM: &[(Thw, usize, usize)] = &[
    (Thw::new(1, 1, 1), 32, 32),    // one value per group: variance 0, eps decides
    (Thw::new(1, 7, 5), 64, 32),    // nothing divides a register
    (Thw::new(3, 16, 16), 96, 32),  // frames must not share statistics
    (Thw::new(2, 45, 80), 128, 32), // many blocks
];

fn group_norm(ops: &dyn Device, &(thw, channels, groups): &(Thw, usize, usize), seed: u64) -> Result<()> {
    let values = &mut Values::new(200 + seed);
    let (weight, bias) = (values.take(channels), values.take(channels));
    let read = || Ok(ConvData { weight: weight.clone(), bias: bias.clone() });
    let norm = ops.norm_weights(groups, 1e-6, channels, &read)?;
    // A mean far from zero: squares must not be subtracted from squares.
    let shifted: Vec<f32> = values.take(thw.count() * channels).iter().map(|v| 10.0 + v).collect();
    let x = ops.upload(Shape::clip(thw, channels), &shifted)?;
    ops.group_norm(x.clone(), None, &norm, Activation::None)?;
    ops.group_norm(x, None, &norm, Activation::Silu)?;
    let x = clip(ops, thw, channels, values)?;
    ops.group_norm(x, None, &norm, Activation::Silu)?;
    Ok(())
}

const LINEAR: &[(usize, usize, usize)] = &[
    //rows d_in d_out
    (1, 1, 1),
    (7, 5, 33),
    (130, 64, 192),
    (57, 96, 16),
    (300, 328, 520), // partial tiles of rows and columns
    (1, 64, 256),
];

fn linear(ops: &dyn Device, &(rows, d_in, d_out): &(usize, usize, usize), seed: u64) -> Result<()> {
    let values = &mut Values::new(300 + seed);
    let (weight, bias) = (values.take(d_in * d_out), values.take(d_out));
    let data = || ConvData { weight: weight.clone(), bias: bias.clone() };
    let linear = ops.linear_weights(LinearSpec::floats(d_in, d_out), &|| Ok(data().into()))?;
    let x = ops.upload(Shape::from([rows, d_in]), &values.take(rows * d_in))?;
    linear_of_rows(ops, &x, &linear, values)
}

/// A linear layer with resident weights, with prefetched ones twice, and with a residual.
fn linear_of_rows(ops: &dyn Device, x: &Tensor, linear: &Linear, values: &mut Values) -> Result<()> {
    ops.linear(x, linear, None)?;
    let offloaded = offload(ops, linear)?;
    for _ in 0..2 {
        ops.linear(x, &prefetch(ops, &offloaded)?, None)?;
    }
    let shape = Shape::from([x.rows(), linear.spec.d_out]);
    let residual = ops.upload(shape, &values.take(shape.count()))?;
    ops.linear(x, linear, Some(residual))?;
    Ok(())
}

const ATTENTION: &[(usize, usize, &[usize])] = &[
    //heads width lengths
    (1, 8, &[1]),
    (1, 32, &[35, 35]),
    (2, 48, &[3, 57, 1]),
    (1, 96, &[600]),                              // more keys than a block
    (3, 384, &[59, 63, 60, 61, 58, 64, 120, 59]), // windows of a transformer: many, short, of different lengths
    (1, 128, &[530, 2, 1]),
    (2, 256, &[129, 64, 300]), // whole and partial blocks of queries and keys
];

fn attention(ops: &dyn Device, &(heads, width, lengths): &(usize, usize, &[usize]), seed: u64) -> Result<()> {
    let tokens: usize = lengths.iter().sum();
    // Large scores: the softmax must not overflow, and one key may get all the weight.
    let qkv: Vec<f32> = Values::new(400 + seed).take(tokens * 3 * width).iter().map(|v| 6.0 * v).collect();
    let qkv = ops.upload(Shape::from([tokens, 3 * width]), &qkv)?;
    ops.attention(&qkv, heads, lengths)?;
    Ok(())
}

fn blend_add(ops: &dyn Device) -> Result<()> {
    let values = &mut Values::new(600);
    let canvas = clip(ops, Thw::new(2, 9, 11), 3, values)?;
    let tile = clip(ops, Thw::new(2, 4, 5), 3, values)?;
    let at = Placement { y: 5, x: 3, rows: vec![0.25, 1.0, 1.0, 0.5], columns: vec![0.0, 0.5, 1.0, 1.0, 0.75] };
    ops.blend_add(canvas, &tile, &at)?;
    Ok(())
}
