//! Linear layers: a convolution of one tap over a plane that is one row high.

use super::CpuOps;
use super::conv;
use crate::error::Result;
use crate::ops::{Epilogue, Past};
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::{Conv, ConvData, ConvSpec, Linear, Packed};

fn spec(d_in: usize, d_out: usize) -> ConvSpec {
    ConvSpec::same(d_in, d_out, Thw::new(1, 1, 1))
}

pub fn pack(cpu: &CpuOps, d_in: usize, d_out: usize, data: ConvData) -> Packed {
    conv::pack(cpu, &spec(d_in, d_out), data)
}

pub fn run(cpu: &CpuOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
    let row = |channels| Shape::clip(Thw::new(1, 1, x.rows()), channels);
    let mut dims = x.shape().dims().to_vec();
    *dims.last_mut().expect("a tensor has dimensions") = linear.d_out;
    let conv = Conv { spec: spec(linear.d_in, linear.d_out), packed: linear.packed.clone() };
    let epilogue = Epilogue { residual: residual.map(|r| r.reshape(row(linear.d_out))), groups: None };
    let x = x.clone().reshape(row(linear.d_in));
    Ok(conv::run(cpu, Past::Start, &x, &conv, epilogue)?.tensor.reshape(&dims[..]))
}
