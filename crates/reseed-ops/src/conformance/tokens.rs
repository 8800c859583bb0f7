//! The ops of a transformer.

use super::Values;
use crate::device::Device;
use crate::error::Result;
use crate::operands::Qkv;
use crate::packing::RotaryData;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::weights::{ConvData, Vector};

const SIZES: &[(usize, usize)] = &[
    (1, 1),     // one value: eps decides
    (3, 7),     // less than a vector
    (61, 33),   // two vectors and one value
    (5, 2560),  // a real width
    (700, 130), // many blocks of rows
];

/// Every op; the stage names the case.
pub fn run(ops: &dyn Device) -> Result<()> {
    for (i, &(rows, width)) in SIZES.iter().enumerate() {
        ops.stage(&format!("tokens case {i}"));
        rows_of(ops, rows, width, &mut Values::new(700 + i as u64))?;
    }
    for (i, case) in QK_NORM_ROPE.iter().enumerate() {
        ops.stage(&format!("qk_norm_rope case {i}"));
        qk_norm_rope(ops, case, &mut Values::new(800 + i as u64))?;
    }
    for (i, case) in GATHER_ROWS.iter().enumerate() {
        ops.stage(&format!("gather_rows case {i}"));
        gather_rows(ops, case, &mut Values::new(900 + i as u64))?;
    }
    Ok(())
}

fn matrix(ops: &dyn Device, rows: usize, width: usize, values: &mut Values, scale: f32) -> Result<Tensor> {
    let values: Vec<f32> = values.take(rows * width).iter().map(|v| v * scale).collect();
    ops.upload(Shape::from([rows, width]), &values)
}

fn vector(ops: &dyn Device, len: usize, values: &mut Values) -> Result<Vector> {
    let numbers = values.take(len);
    ops.vector(len, &|| Ok(numbers.clone()))
}

/// Ops on rows and channels.
fn rows_of(ops: &dyn Device, rows: usize, width: usize, values: &mut Values) -> Result<()> {
    // Small values, for which eps matters.
    let x = matrix(ops, rows, width, values, 0.01)?;
    let (weight, bias) = (values.take(width), values.take(width));
    let read = || Ok(ConvData { weight: weight.clone(), bias: bias.clone() });
    let norm = ops.norm_weights(1, 1e-5, width, &read)?;
    ops.rms_norm_modulate(&x, &norm)?;
    let (x, h) = (matrix(ops, rows, width, values, 3.0)?, matrix(ops, rows, width, values, 3.0)?);
    ops.rms_norm_modulate(&x, &norm)?;
    let gate = vector(ops, width, values)?;
    ops.gated_add(x.clone(), &h, &gate)?;
    ops.axpby(1.0, &x, -1.0, h.clone())?;
    ops.axpby(0.25, &h, 2.0, x)?;
    // Both tails of the activations.
    ops.swiglu(&matrix(ops, rows, 2 * width, values, 30.0)?)?;
    ops.gelu(matrix(ops, rows, width, values, 12.0)?)?;
    ops.gelu(h)?;
    Ok(())
}

struct QkCase {
    tokens: [usize; 2],
    heads: usize,
    d: usize,
    frequencies: usize,
    places: usize,
}

const QK_NORM_ROPE: &[QkCase] = &[
    QkCase { tokens: [1, 1], heads: 1, d: 6, frequencies: 1, places: 1 },
    QkCase { tokens: [7, 3], heads: 2, d: 8, frequencies: 0, places: 1 }, // no rotation
    QkCase { tokens: [37, 5], heads: 3, d: 128, frequencies: 21, places: 40 }, // two channels are not rotated
    QkCase { tokens: [64, 58], heads: 2, d: 128, frequencies: 10, places: 9 }, // half of the channels are not rotated
];

/// Every second token of the first stream, then the second stream twice.
fn qk_norm_rope(ops: &dyn Device, case: &QkCase, values: &mut Values) -> Result<()> {
    let QkCase { tokens: [first, second], heads, d, frequencies, places } = *case;
    let ends = first as u32..(first + second) as u32;
    let rows: Vec<u32> = (0..first as u32).rev().step_by(2).chain(ends.clone()).chain(ends).collect();
    let angles = values.take(places * frequencies);
    let place = |i: usize| [i % places, i / 2 % places, (7 * i + 3) % places].map(|place| place as u32);
    let data = RotaryData {
        frequencies,
        turns: angles.iter().map(|a| [(9.0 * a).cos(), (9.0 * a).sin()]).collect(),
        places: (0..rows.len()).map(place).collect(),
    };
    let (rows, rotary) = (ops.rows(1, &rows)?, ops.rotary(&data)?);
    let (x, y) = (matrix(ops, first, 3 * heads * d, values, 2.0)?, matrix(ops, second, 3 * heads * d, values, 0.01)?);
    let [xq, xk, yq, yk] = [0; 4].map(|_| vector(ops, d, values));
    let streams = [Qkv { qkv: &x, q_gain: &xq?, k_gain: &xk? }, Qkv { qkv: &y, q_gain: &yq?, k_gain: &yk? }];
    ops.qk_norm_rope(streams, &rows, &rotary, 1e-5)?;
    Ok(())
}

const GATHER_ROWS: &[(usize, usize, usize)] = &[
    //rows width per
    (1, 1, 1),
    (70, 33, 1),
    (70, 33, 3),
    (900, 256, 27), // a mean over many windows
];

fn gather_rows(ops: &dyn Device, &(rows, width, per): &(usize, usize, usize), values: &mut Values) -> Result<()> {
    let x = matrix(ops, rows, width, values, 1.0)?;
    let indices: Vec<u32> = (0..rows / per * per).map(|i| (i * 17 % rows) as u32).collect();
    let indices = ops.rows(per, &indices)?;
    ops.gather_rows(&x, &indices)?;
    Ok(())
}
