//! Shapes that the awkward ones of [`reseed_ops::conformance`] leave out: channels that the tensor-core kernels take
//! whole, planes that do not fill their tiles, and more keys than one chunk of queries.

use reseed_ops::conformance::{self, Values};
use reseed_ops::{
    BORDER_CLASSES, CheckOps, ConvData, ConvSpec, CpuOps, Disagreement, Epilogue, Level, Ops, Past, Result, Shape,
    Tensor, Thw, UpsampleData, UpsampleSpec,
};

/// Everything that `device` computes differently from the definition.
pub fn disagreements(device: &dyn Ops) -> Result<Vec<Disagreement>> {
    let reference = CpuOps::at(Level::Reference, device.dtype(), None)?;
    let mut found = conformance::run(&reference, device)?;
    let ops = CheckOps::new(&reference, device);
    for (i, case) in CONV.iter().enumerate() {
        ops.stage(&format!("wide conv case {i}"));
        conv(&ops, case, i as u64)?;
    }
    for (i, case) in UPSAMPLE.iter().enumerate() {
        ops.stage(&format!("wide upsample case {i}"));
        upsample(&ops, case, i as u64)?;
    }
    ops.stage("long attention");
    let (tokens, width) = (1100, 64);
    let qkv = Values::new(900).take(tokens * 3 * width);
    ops.attention(&ops.upload(Shape::from([tokens, 3 * width]), &qkv)?, 1, &[tokens])?;
    found.extend(ops.disagreements());
    Ok(found)
}

const CONV: &[(Thw, ConvSpec)] = &[
    //              t  h  w         in   out taps of time
    (Thw::new(1, 1, 1), same(64, 128, 3)),
    (Thw::new(4, 7, 35), same(64, 128, 3)),
    (Thw::new(3, 17, 16), same(128, 256, 3)),
    (Thw::new(2, 40, 33), same(128, 128, 1)),
    (Thw::new(3, 19, 21), same(64, 3, 3)),
    (Thw::new(2, 16, 16), same(128, 16, 3)),
    (Thw::new(3, 18, 37), same(96, 136, 3)), // one eight beyond a tile
    (Thw::new(2, 19, 34), down(64, 1)),
    (Thw::new(5, 21, 23), down(128, 3)),
];

const fn same(c_in: usize, c_out: usize, taps_t: usize) -> ConvSpec {
    ConvSpec { c_in, c_out, taps: Thw::new(taps_t, 3, 3), stride: Thw::new(1, 1, 1), pad_before: 1, pad_after: 1 }
}

/// Halves the plane and, with taps of time, the frames.
const fn down(channels: usize, taps_t: usize) -> ConvSpec {
    let stride = Thw::new(if taps_t > 1 { 2 } else { 1 }, 2, 2);
    ConvSpec { stride, pad_before: 0, ..same(channels, channels, taps_t) }
}

fn clip(ops: &dyn Ops, thw: Thw, channels: usize, values: &mut Values) -> Result<Tensor> {
    let shape = Shape::clip(thw, channels);
    ops.upload(shape, &values.take(shape.count()))
}

fn scaled(values: &mut Values, count: usize, terms: usize) -> Vec<f32> {
    let scale = (3.0 / terms as f32).sqrt();
    values.take(count).iter().map(|v| v * scale).collect()
}

fn conv(ops: &dyn Ops, &(input, spec): &(Thw, ConvSpec), seed: u64) -> Result<()> {
    let values = &mut Values::new(700 + seed);
    let ConvSpec { c_in, c_out, .. } = spec;
    let weight = scaled(values, c_out * c_in * spec.taps.count(), c_in * spec.taps.count());
    let bias = values.take(c_out);
    let conv = ops.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))?;
    let x = clip(ops, input, c_in, values)?;
    let residual = clip(ops, spec.output(input, true), c_out, values)?;
    let groups = Some(if c_out.is_multiple_of(32) { 32 } else { 1 });
    let epilogue = Epilogue { residual: Some(residual), groups };
    ops.conv(Past::Start, &x, &conv, epilogue)?;
    if spec.keeps() > 0 {
        let tail = ops.tail(Past::Start, x.clone(), spec.keeps())?;
        let x = x.frames(0, x.thw().t / spec.stride.t * spec.stride.t);
        ops.conv(Past::Frames(&tail), &x, &conv, Epilogue::default())?;
    }
    Ok(())
}

const UPSAMPLE: &[(Thw, bool)] =
    &[(Thw::new(1, 1, 1), true), (Thw::new(3, 5, 19), true), (Thw::new(1, 1, 1), false), (Thw::new(4, 17, 16), false)];

fn upsample(ops: &dyn Ops, &(input, time): &(Thw, bool), seed: u64) -> Result<()> {
    let (c, values) = (128, &mut Values::new(800 + seed));
    let spec = UpsampleSpec { channels: c, time };
    let (taps, moments) = (spec.taps_t() * 4, if time { 3 } else { 1 });
    let kernels = scaled(values, spec.phases() * taps * c * c, c * taps);
    let after_first = scaled(values, if time { spec.phases() * 4 * c * c } else { 0 }, c * taps);
    let bias = values.take(moments * spec.frames() * BORDER_CLASSES * BORDER_CLASSES * c);
    let upsample = ops.upsample_weights(spec, &|| {
        Ok(UpsampleData { kernels: kernels.clone(), after_first: after_first.clone(), bias: bias.clone() })
    })?;
    let x = clip(ops, input, c, values)?;
    ops.upsample(Past::Start, &x, &upsample, Some(32))?;
    let first = ops.tail(Past::Start, x.frames(0, 1), spec.keeps())?;
    ops.upsample(Past::AfterFirst(&first), &x, &upsample, None)?;
    ops.upsample(Past::Frames(&first), &x, &upsample, Some(32))?;
    Ok(())
}
