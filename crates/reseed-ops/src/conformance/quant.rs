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
    Case { rows, spec: LinearSpec { d_in, d_out, quant: Some(quant), int8: false } }
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
    case(Quant::ScaledE4m3, 3, 128, 1),
    case(Quant::ScaledE4m3, 130, 384, 264),
    case(Quant::Mxfp8, 1, 128, 5),
    case(Quant::Mxfp8, 130, 384, 264),
    case(Quant::Nvfp4, 1, 64, 3), // fewer values than a block of threads
    case(Quant::Nvfp4, 130, 320, 264),
    case(Quant::Int8ConvRot, 3, 256, 1), // one warp
    case(Quant::Int8ConvRot, 130, 768, 264),
];

/// Blocks of random bytes, with scales from large to small (subnormal in f16), and without NaN.
fn stored(quant: Quant, count: usize, values: &mut Values) -> Vec<u8> {
    let mut bytes: Vec<u8> = values.take(quant.bytes(count)).iter().map(|v| ((v + 1.0) * 128.0) as u8).collect();
    let not_nan = |bytes: &mut [u8]| bytes.iter_mut().filter(|b| **b & 0x7F == 0x7F).for_each(|b| *b -= 1);
    for (i, block) in bytes.chunks_exact_mut(quant.block().1).enumerate() {
        let size = 0.5f32.powi(i as i32 % 22);
        let mut halves = |block: &mut [u8], count: usize| {
            for (place, scale) in block.chunks_exact_mut(2).zip(values.take(count)) {
                place.copy_from_slice(&f16::from_f32(scale * size).to_le_bytes());
            }
        };
        match quant {
            Quant::Q8_0 => halves(block, 1),
            Quant::Q4K => halves(block, 2),
            Quant::E4m3 => not_nan(block),
            Quant::Mxfp8 => {
                // From 2^-15 to 1, so that products stay in the range of f16, and a block of zeros.
                block[..4].iter_mut().for_each(|b| *b = if *b < 16 { 0 } else { 0x70 + *b % 16 });
                not_nan(&mut block[4..]);
            }
            Quant::ScaledE4m3 | Quant::Nvfp4 | Quant::Int8ConvRot => {
                block[..4].copy_from_slice(&(values.take(1)[0] * size / 16.0).to_le_bytes());
                if quant != Quant::Int8ConvRot {
                    not_nan(&mut block[4..]);
                }
            }
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
