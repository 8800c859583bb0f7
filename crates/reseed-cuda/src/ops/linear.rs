//! Linear layers: a convolution of one tap over a plane that is one row high.

use reseed_ops::{Conv, ConvData, ConvSpec, Epilogue, Linear, Packed, Past, Result, Shape, Tensor, Thw};

use super::{CudaOps, conv};

fn spec(d_in: usize, d_out: usize) -> ConvSpec {
    ConvSpec::same(d_in, d_out, Thw::new(1, 1, 1))
}

pub fn pack(cuda: &CudaOps, d_in: usize, d_out: usize, data: &ConvData) -> Result<Packed> {
    conv::pack(cuda, &spec(d_in, d_out), data)
}

pub fn run(cuda: &CudaOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
    let row = |channels| Shape::clip(Thw::new(1, 1, x.rows()), channels);
    let mut dims = x.shape().dims().to_vec();
    *dims.last_mut().expect("a tensor has dimensions") = linear.d_out;
    let conv = Conv { spec: spec(linear.d_in, linear.d_out), packed: linear.packed.clone() };
    let epilogue = Epilogue { residual: residual.map(|r| r.reshape(row(linear.d_out))), groups: None };
    let x = x.clone().reshape(row(linear.d_in));
    Ok(conv::run(cuda, Past::Start, &x, &conv, epilogue)?.tensor.reshape(&dims[..]))
}
