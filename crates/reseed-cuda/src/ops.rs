//! The ops: each checks its operands, takes memory for its result and queues kernels.
//!
//! Nothing waits but uploads and downloads. Memory that a queued kernel uses may be given back at once: the pool hands
//! it only to work that comes behind.

mod attention;
mod conv;
mod convolve;
mod dit;
mod fold;
mod group_norm;
mod linear;
mod memory;
mod small;
mod upsample;
mod weights;
mod workspace;

use std::sync::Arc;

use reseed_ops::{
    Activation, Conv, ConvData, ConvSpec, DType, Epilogue, Linear, Norm, Ops, Packed, Past, Placement, Qkv, Read,
    Result, Rotary, RotaryData, Rows, Shape, Stats, Summed, Tensor, TraceOps, Upsample, UpsampleData, UpsampleSpec,
    Vector, merge,
};

use crate::driver::{DeviceInfo, Driver};
use crate::pool::Pool;

/// One NVIDIA card.
pub struct CudaOps {
    driver: Arc<Driver>,
    memory: Arc<Pool>,
    dtype: DType,
}

impl CudaOps {
    /// Card `ordinal`, with activations and weights of `dtype`; sums are f32.
    pub fn new(ordinal: usize, dtype: DType) -> Result<CudaOps> {
        let driver = Driver::new(ordinal)?;
        let memory = Pool::new(driver.clone());
        Ok(CudaOps { driver, memory, dtype })
    }

    /// The card.
    pub fn info(&self) -> &DeviceInfo {
        &self.driver.info
    }

    /// Most bytes that tensors and workspace have taken at once, weights not included.
    pub fn peak_bytes(&self) -> usize {
        self.memory.peak()
    }

    /// Bytes of the card's memory that nobody has taken.
    pub fn free_bytes(&self) -> Result<usize> {
        Ok(self.driver.memory()?.0)
    }

    /// A device that computes nothing and counts what this one would take.
    pub fn trace(&self) -> TraceOps {
        TraceOps::new(self.dtype, workspace::of(self.dtype))
    }

    fn unpack<'a, T: 'static>(&self, packed: &'a Packed) -> &'a T {
        packed.downcast_ref().expect("weights must stay on the device that packed them")
    }
}

impl Ops for CudaOps {
    fn device(&self) -> String {
        self.driver.label.clone()
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn finish(&self) -> Result<()> {
        self.driver.synchronize()
    }

    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        Ok(Conv { spec, packed: conv::pack(self, &spec, &read()?)? })
    }

    fn linear_weights(&self, d_in: usize, d_out: usize, read: Read<ConvData>) -> Result<Linear> {
        Ok(Linear { d_in, d_out, packed: linear::pack(self, d_in, d_out, &read()?)? })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        Ok(Norm { channels, groups, eps, packed: group_norm::pack(self, channels, &read()?)? })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        Ok(Upsample { spec, packed: upsample::pack(self, &spec, &merge(&spec, &read()?))? })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        dit::vector(self, len, &read()?)
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        dit::rows(self, per, rows)
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        dit::rotary(self, data)
    }

    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        memory::upload(self, shape, values)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        memory::download(self, x)
    }

    fn conv(&self, past: Past, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<Summed> {
        conv::run(self, past, x, conv, epilogue)
    }

    fn upsample(&self, past: Past, x: &Tensor, upsample: &Upsample, groups: Option<usize>) -> Result<Summed> {
        upsample::run(self, past, x, upsample, groups)
    }

    fn tail(&self, past: Past, x: Tensor, keep: usize) -> Result<Tensor> {
        small::tail(self, past, x, keep)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        group_norm::run(self, x, stats, norm, act)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        linear::run(self, x, linear, residual)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        attention::run(self, qkv, heads, lengths)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        dit::rms_norm_modulate(self, x, norm)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        dit::gated_add(self, x, h, gate)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        dit::swiglu(self, x)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        dit::gelu(self, x)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        dit::qk_norm_rope(self, streams, rows, rotary, eps)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        dit::gather_rows(self, x, rows)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        dit::axpby(self, a, x, b, y)
    }

    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        small::gaussian(self, moments, noise, scale)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        small::blend_add(self, canvas, tile, at)
    }
}
