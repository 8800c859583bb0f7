//! A device that does one thing differently.

use reseed_cpu::CpuOps;
use reseed_ops::{
    Activation, Conv, ConvData, ConvOutput, ConvSpec, DType, Epilogue, Linear, LinearData, LinearSpec, Norm, Ops,
    Placement, Qkv, Read, Result, Rotary, RotaryData, Rows, Shape, Stats, TemporalCache, Tensor, Upsample,
    UpsampleData, UpsampleSpec, Vector,
};

/// What becomes of an upsampler's result.
pub type Change = Box<dyn Fn(&CpuOps, ConvOutput) -> Result<ConvOutput> + Send + Sync>;

/// The processor with another upsampler.
pub struct OtherUpsample(pub CpuOps, pub Change);

impl Ops for OtherUpsample {
    fn device(&self) -> String {
        format!("{}, with another upsampler", self.0.device())
    }

    fn dtype(&self) -> DType {
        self.0.dtype()
    }

    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        self.0.conv_weights(spec, read)
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        self.0.linear_weights(spec, read)
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        self.0.norm_weights(groups, eps, channels, read)
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        self.0.upsample_weights(spec, read)
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        self.0.vector(len, read)
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        self.0.rows(per, rows)
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        self.0.rotary(data)
    }

    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        self.0.upload(shape, values)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.0.download(x)
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        self.0.conv(cache, x, conv, epilogue)
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        self.1(&self.0, self.0.upsample(cache, x, upsample, groups)?)
    }

    fn tail(&self, cache: Option<Tensor>, x: Tensor, keep: usize) -> Result<Tensor> {
        self.0.tail(cache, x, keep)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        self.0.group_norm(x, stats, norm, act)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        self.0.linear(x, linear, residual)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.0.attention(qkv, heads, lengths)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.0.rms_norm_modulate(x, norm)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        self.0.gated_add(x, h, gate)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        self.0.swiglu(x)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        self.0.gelu(x)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        self.0.qk_norm_rope(streams, rows, rotary, eps)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        self.0.gather_rows(x, rows)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        self.0.axpby(a, x, b, y)
    }

    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        self.0.gaussian(moments, noise, scale)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        self.0.blend_add(canvas, tile, at)
    }
}
