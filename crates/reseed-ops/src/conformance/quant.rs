//! Linear layers with quantized matrices.

use half::f16;

use super::Values;
use crate::check::{Disagreement, relative_error};
use crate::device::Device;
use crate::error::Result;
use crate::quant::{Numbers, Quant};
use crate::residency::{offload, prefetch};
use crate::shape::Shape;
use crate::weights::{Linear, LinearData, LinearSpec};

/// A layer and its number of input rows.
pub struct Case {
    rows: usize,
    spec: LinearSpec,
}

const fn case(quant: Quant, rows: usize, d_in: usize, d_out: usize) -> Case {
    Case { rows, spec: LinearSpec { d_in, d_out, quant: Some(quant) } }
}

pub const CASES: &[Case] = &[
    //                rows  in  out
    case(Quant::Q8_0, 1, 32, 1),
    case(Quant::Q8_0, 57, 96, 33),    // rows of three blocks
    case(Quant::Q8_0, 130, 160, 264), // partial tiles of rows and columns
    case(Quant::Q4K, 3, 256, 5),
    case(Quant::Q4K, 130, 768, 264),
    case(Quant::E4m3, 1, 1, 1),
    case(Quant::E4m3, 7, 5, 33), // unaligned rows
    case(Quant::E4m3, 300, 328, 520),
];

/// Blocks of random bytes, with scales from large to subnormal in f16, and without NaN.
fn stored(quant: Quant, count: usize, values: &mut Values) -> Vec<u8> {
    let mut bytes: Vec<u8> = values.take(quant.bytes(count)).iter().map(|v| ((v + 1.0) * 128.0) as u8).collect();
    let scales = match quant {
        Quant::Q8_0 => 1,
        Quant::Q4K => 2,
        Quant::E4m3 => 0,
    };
    for (i, block) in bytes.chunks_exact_mut(quant.block().1).enumerate() {
        let size = 0.5f32.powi(i as i32 % 22);
        for (place, scale) in block.chunks_exact_mut(2).zip(values.take(scales)) {
            place.copy_from_slice(&f16::from_f32(scale * size).to_le_bytes());
        }
        if quant == Quant::E4m3 && block[0] & 0x7F == 0x7F {
            block[0] -= 1;
        }
    }
    bytes
}

fn layer(ops: &dyn Device, spec: LinearSpec, weight: &Numbers, values: &mut Values) -> Result<Linear> {
    let bias = values.take(spec.d_out);
    ops.linear_weights(spec, &|| Ok(LinearData { weight: weight.clone(), bias: bias.clone() }))
}

fn matrix(case: &Case, seed: u64) -> (Quant, Numbers) {
    let quant = case.spec.quant.expect("a quantized case");
    let bytes = stored(quant, case.spec.d_in * case.spec.d_out, &mut Values::new(1000 + seed));
    (quant, Numbers::Quant(quant, bytes))
}

/// Against the definition, with resident and with prefetched weights.
pub fn linear(ops: &dyn Device, case: &Case, seed: u64) -> Result<()> {
    let values = &mut Values::new(1100 + seed);
    let Case { rows, spec } = *case;
    let linear = layer(ops, spec, &matrix(case, seed).1, values)?;
    let x = ops.upload(Shape::from([rows, spec.d_in]), &values.take(rows * spec.d_in))?;
    ops.linear(&x, &linear, None)?;
    let offloaded = offload(ops, &linear)?;
    for _ in 0..2 {
        ops.linear(&x, &prefetch(ops, &offloaded)?, None)?;
    }
    let residual = ops.upload(Shape::from([rows, spec.d_out]), &values.take(rows * spec.d_out))?;
    ops.linear(&x, &linear, Some(residual))?;
    Ok(())
}

/// A device must return the same bytes as from the dequantized matrix.
pub fn exact(device: &dyn Device, case: &Case, seed: u64) -> Result<Option<Disagreement>> {
    let Case { rows, spec: LinearSpec { d_in, d_out, .. } } = *case;
    let (quant, few) = matrix(case, seed);
    let floats = Numbers::Floats(few.clone().floats());
    let result = |spec, weight| -> Result<Vec<f32>> {
        let values = &mut Values::new(1200 + seed);
        let linear = layer(device, spec, weight, values)?;
        let x = device.upload(Shape::from([rows, d_in]), &values.take(rows * d_in))?;
        device.download(&device.linear(&x, &linear, None)?)
    };
    let (want, got) = (result(LinearSpec::floats(d_in, d_out), &floats)?, result(case.spec, &few)?);
    let differs = want.iter().zip(&got).any(|(want, got)| want.to_bits() != got.to_bits());
    Ok(differs.then(|| Disagreement {
        stage: format!("{quant:?} case {seed} against its floats"),
        op: "linear",
        call: 0,
        shape: Shape::from([rows, d_out]),
        element: None,
        error: relative_error(&want, &got),
        allowed: 0.0,
    }))
}
