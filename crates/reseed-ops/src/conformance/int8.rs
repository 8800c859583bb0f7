//! Linear layers that may multiply in 8 bits. Devices in other modes compute them in floats.

use super::{Values, linear_of_rows};
use crate::device::Device;
use crate::error::Result;
use crate::operands::MlpActivation;
use crate::quant::{Numbers, Quant};
use crate::shape::Shape;
use crate::weights::{LinearData, LinearSpec};

/// Rows, input columns, output columns, and the format of the matrix.
pub type Case = (usize, usize, usize, Option<Quant>);

pub const CASES: &[Case] = &[
    (1, 5, 3, None), // no device multiplies rows of five bytes
    (1, 16, 8, None),
    (7, 48, 40, None),      // less than a warp
    (57, 80, 16, None),     // one step and a quarter
    (300, 336, 520, None),  // partial tiles of rows and columns
    (3, 256, 8, None),      // rotated from here on
    (130, 768, 264, None),  // a warp with one group
    (259, 1024, 520, None), // partial tiles of a cluster
    (5, 6912, 256, None),   // an odd number of groups in many warps
    (65, 512, 264, Some(Quant::Int8ConvRot)),
    (9, 96, 40, Some(Quant::Q8_0)),
    (9, 256, 40, Some(Quant::Q4K)), // stays in its blocks
];

/// The matrix: rows of the same size, so that their products add up in f16 too.
fn matrix(&(_, d_in, d_out, quant): &Case, values: &mut Values) -> Numbers {
    let (count, size) = (d_in * d_out, 1.0 / (d_in as f32).sqrt());
    let Some(quant) = quant else {
        return Numbers::Floats(values.take(count).iter().map(|v| v * size).collect());
    };
    let mut bytes: Vec<u8> = values.take(quant.bytes(count)).iter().map(|v| ((v + 1.0) * 128.0) as u8).collect();
    for block in bytes.chunks_exact_mut(quant.block().1) {
        let half = half::f16::from_f32(size / 127.0).to_le_bytes();
        match quant {
            // All blocks of a row have the scale of the row.
            Quant::Int8ConvRot => block[..4].copy_from_slice(&(size / 127.0).to_le_bytes()),
            Quant::Q8_0 => block[..2].copy_from_slice(&half),
            _ => block[..4].copy_from_slice(&[half, half].concat()),
        }
    }
    Numbers::Quant(quant, bytes)
}

/// Rows of zeros, of one value, and of large ones.
pub fn linear(ops: &dyn Device, case: &Case, seed: u64) -> Result<()> {
    let (&(rows, d_in, d_out, quant), values) = (case, &mut Values::new(1300 + seed));
    let (weight, bias) = (matrix(case, values), values.take(d_out));
    let spec = LinearSpec { d_in, d_out, quant, int8: true };
    let linear = ops.linear_weights(spec, &|| Ok(LinearData { weight: weight.clone(), bias: bias.clone() }))?;
    let mut x = values.take(rows * d_in);
    for (i, row) in x.chunks_exact_mut(d_in).enumerate() {
        match i % 5 {
            1 => row.fill(0.0),
            2 => row.fill(0.75),
            3 => row[i % d_in] = 100.0,
            _ => {}
        }
    }
    linear_of_rows(ops, &ops.upload(Shape::from([rows, d_in]), &x)?, &linear, values)?;
    for act in [MlpActivation::SwiGlu, MlpActivation::Gelu] {
        let x: Vec<f32> = values.take(rows * act.inputs() * d_in).iter().map(|v| 8.0 * v).collect();
        let x = ops.upload(Shape::from([rows, act.inputs() * d_in]), &x)?;
        ops.activated_linear(x.clone(), act, &linear)?; // another owner of the input
        ops.activated_linear(x, act, &linear)?;
    }
    Ok(())
}
