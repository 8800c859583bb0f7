//! Linear layers with products of 8-bit integers. Every level computes the definition: no CPU runs these layers unless
//! it checks a GPU or measures the loss.

use std::sync::Arc;

use crate::CpuOps;
use crate::host::memory;
use reseed_ops::reference;
use reseed_ops::{Int8Rows, Linear, LinearData, LinearSpec, Packed, Result, Shape, Tensor};

struct Weights {
    matrix: Int8Rows,
    bias: Vec<f64>,
}

/// Packs the weights of the op.
pub fn pack(cpu: &CpuOps, spec: &LinearSpec, data: LinearData) -> Packed {
    let matrix = cpu.install(|| Int8Rows::matrix(data.weight, spec.d_in));
    assert_eq!((matrix.bytes.len(), data.bias.len()), (spec.d_in * spec.d_out, spec.d_out), "{spec:?}");
    Arc::new(Weights { matrix, bias: data.bias.iter().map(|&b| f64::from(b)).collect() })
}

/// Runs the op.
pub fn run(cpu: &CpuOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
    let LinearSpec { d_in, d_out, .. } = linear.spec;
    assert_eq!(x.channels(), d_in, "linear: input {x:?}");
    let mut dims = x.shape().dims().to_vec();
    *dims.last_mut().expect("a tensor has dimensions") = d_out;
    let (shape, weights): (_, &Weights) = (Shape::from(&dims[..]), cpu.unpack(&linear.packed));
    let mut y = cpu.install(|| {
        let rows = Int8Rows::quantize(&memory::download(x), d_in);
        reference::linear_int8(&rows, &weights.matrix, &weights.bias)
    });
    if let Some(residual) = &residual {
        assert_eq!(residual.count(), shape.count(), "linear: residual");
        y.iter_mut().zip(cpu.to_f64(residual)).for_each(|(y, r)| *y += r);
    }
    cpu.round_to_tensor(shape, &y)
}
