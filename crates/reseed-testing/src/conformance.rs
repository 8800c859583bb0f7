//! Conformance cases beyond those of [`reseed_ops::conformance`]: channel counts that select the tensor-core kernels,
//! planes that do not fill a tile, and attention with more keys than one chunk of queries.

use reseed_cpu::{CpuOps, Level};
use reseed_ops::conformance::{self, Values};
use reseed_ops::{
    CheckOps, ConvData, ConvSpec, Device, Disagreement, Epilogue, Ops, Result, Shape, TemporalCache, Tensor, Thw,
    Timing, Transfer, UpsampleData, UpsampleSpec,
};

/// Every disagreement of `device` with the reference level in the same mode.
pub fn disagreements(device: &dyn Device) -> Result<Vec<Disagreement>> {
    let reference = CpuOps::at(Level::Reference, device.dtype(), None)?.with_math(device.math_mode());
    let mut found = conformance::run(&reference, device)?;
    let ops = CheckOps::new(&reference, device);
    for (i, case) in CONV.iter().enumerate() {
        ops.stage(&format!("wide conv case {i}"));
        conv(&ops, case, i as u64)?;
    }
    for (i, case) in DOWN.iter().enumerate() {
        ops.stage(&format!("wide strided conv case {i}"));
        down(&ops, case)?;
    }
    for (i, case) in UPSAMPLE.iter().enumerate() {
        ops.stage(&format!("wide upsample case {i}"));
        upsample(&ops, case, i as u64)?;
    }
    for (width, lengths) in ATTENTION {
        ops.stage(&format!("attention of {width} channels over {lengths:?}"));
        let tokens = lengths.iter().sum::<usize>();
        let qkv = Values::new(900).take(tokens * 3 * width);
        ops.attention(&ops.upload(Shape::from([tokens, 3 * width]), &qkv)?, 1, lengths)?;
    }
    found.extend(ops.disagreements());
    Ok(found)
}

const ATTENTION: &[(usize, &[usize])] = &[(64, &[1100]), (512, &[300]), (512, &[1, 1]), (512, &[129, 129, 129, 64])];

const CONV: &[(Thw, usize, usize, usize)] = &[
    // (input, input channels, output channels, temporal taps)
    (Thw::new(1, 1, 1), 64, 128, 3),
    (Thw::new(4, 7, 35), 64, 128, 3),
    (Thw::new(3, 17, 16), 128, 256, 3),
    (Thw::new(2, 40, 33), 128, 128, 1),
    (Thw::new(3, 19, 21), 64, 3, 3),
    (Thw::new(2, 16, 16), 128, 16, 3),
    (Thw::new(3, 18, 37), 64, 512, 3),
    (Thw::new(2, 17, 19), 192, 64, 3), // an odd number of 64 input channels, one block of 64 output channels
    (Thw::new(3, 18, 37), 96, 136, 3), // eight channels more than a tile
    (Thw::new(4, 21, 35), 3, 128, 3),
    (Thw::new(1, 5, 17), 4, 64, 1),
];

fn clip(ops: &dyn Device, thw: Thw, channels: usize, values: &mut Values) -> Result<Tensor> {
    let shape = Shape::clip(thw, channels);
    ops.upload(shape, &values.take(shape.count()))
}

fn scaled(values: &mut Values, count: usize, terms: usize) -> Vec<f32> {
    let scale = (3.0 / terms as f32).sqrt();
    values.take(count).iter().map(|v| v * scale).collect()
}

fn conv(ops: &dyn Device, &(input, c_in, c_out, taps_t): &(Thw, usize, usize, usize), seed: u64) -> Result<()> {
    let values = &mut Values::new(700 + seed);
    let spec = ConvSpec::same(c_in, c_out, Thw::new(taps_t, 3, 3));
    let weight = scaled(values, c_out * c_in * spec.taps.count(), c_in * spec.taps.count());
    let bias = values.take(c_out);
    let conv = ops.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))?;
    let x = clip(ops, input, c_in, values)?;
    let residual = clip(ops, input, c_out, values)?;
    let groups = Some(if c_out.is_multiple_of(32) { 32 } else { 1 });
    let epilogue = Epilogue { residual: Some(residual), groups };
    ops.conv(TemporalCache::Start, &x, &conv, epilogue)?;
    ops.conv(TemporalCache::Start, &x, &conv, Epilogue { residual: None, groups })?;
    if spec.cached_frames() > 0 {
        let tail = ops.tail(None, x.clone(), spec.cached_frames())?;
        ops.conv(TemporalCache::Frames(&tail), &x, &conv, Epilogue::default())?;
    }
    Ok(())
}

/// Strided convolutions: (input, input channels, output channels, temporal taps, stride).
const DOWN: &[(Thw, usize, usize, usize, Thw)] = &[
    (Thw::new(3, 34, 70), 64, 128, 3, Thw::new(2, 2, 2)),
    (Thw::new(2, 16, 18), 128, 128, 1, Thw::new(1, 2, 2)),
    (Thw::new(5, 8, 8), 128, 256, 3, Thw::new(2, 2, 2)),
];

fn down(ops: &dyn Device, &(input, c_in, c_out, taps_t, stride): &(Thw, usize, usize, usize, Thw)) -> Result<()> {
    let values = &mut Values::new(600);
    let spec = ConvSpec { stride, pad_before: 0, pad_after: 1, ..ConvSpec::same(c_in, c_out, Thw::new(taps_t, 3, 3)) };
    let weight = scaled(values, c_out * c_in * spec.taps.count(), c_in * spec.taps.count());
    let bias = values.take(c_out);
    let conv = ops.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))?;
    let x = clip(ops, input, c_in, values)?;
    ops.conv(TemporalCache::Start, &x, &conv, Epilogue { residual: None, groups: Some(32) })?;
    if spec.cached_frames() > 0 {
        let (later, kept) = (clip(ops, Thw { t: 4, ..input }, c_in, values)?, x.frames(0, spec.cached_frames()));
        ops.conv(TemporalCache::Frames(&kept), &later, &conv, Epilogue { residual: None, groups: Some(32) })?;
    }
    Ok(())
}

const UPSAMPLE: &[(Thw, bool)] =
    &[(Thw::new(1, 1, 1), true), (Thw::new(3, 5, 19), true), (Thw::new(1, 1, 1), false), (Thw::new(4, 17, 16), false)];

fn upsample(ops: &dyn Device, &(input, time): &(Thw, bool), seed: u64) -> Result<()> {
    let (c, values) = (128, &mut Values::new(800 + seed));
    let spec = UpsampleSpec { channels: c, time };
    let mut part = |c_out: usize, fan_in: usize| (scaled(values, c_out * fan_in, fan_in), values.take(c_out));
    let (upscale, conv) = (part(spec.phases() * c, c), part(c, 27 * c));
    let data = |(weight, bias): &(Vec<f32>, Vec<f32>)| ConvData { weight: weight.clone(), bias: bias.clone() };
    let read = || Ok(UpsampleData { upscale: data(&upscale), conv: data(&conv) });
    let upsample = ops.upsample_weights(spec, &read)?;
    let x = clip(ops, input, c, values)?;
    ops.upsample(TemporalCache::Start, &x, &upsample, Some(32))?;
    let first = ops.tail(None, x.frames(0, 1), spec.cached_frames())?;
    ops.upsample(TemporalCache::AfterFirst(&first), &x, &upsample, None)?;
    ops.upsample(TemporalCache::Frames(&first), &x, &upsample, Some(32))?;
    Ok(())
}
