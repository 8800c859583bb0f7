//! The computing ops of a device.

use crate::error::Result;
use crate::operands::{Activation, ConvOutput, Epilogue, MlpActivation, Placement, Qkv, Stats, TemporalCache};
use crate::packing::{Rotary, RotaryData, Rows};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Read, Upsample, UpsampleData, UpsampleSpec, Vector,
};

/// The fused units that the networks are made of, and the packing of their weights.
///
/// The contract of every op:
///
/// * Tensors are dense `[T, H, W, C]`, or tokens `[N, D]`, of the device's type. Statistics are f32.
/// * The formula defines the result. A device may sum in any order and may fuse, fold and transform; it conforms when
///   [`crate::conformance`] finds no element outside the derived bound.
/// * The result is a new tensor, or uses the memory of an operand that is passed by value and that nothing else refers
///   to.
/// * Ops may return before the result is computed. Ops of one device run in the order of the calls.
/// * A wrong shape is a bug of the caller and panics. An error is a failure of the device, such as exhausted memory.
pub trait Ops: Send + Sync {
    /// Packs the kernels of a convolution.
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv>;

    /// Packs a linear layer. A device may keep a quantized matrix as it is stored, or convert it to floats; the result
    /// of [`Ops::linear`] is the same. Where the layer allows it, a device in [`crate::MathMode::Fast`] may keep the
    /// matrix as [`crate::Int8Rows`]; every call of [`Ops::linear`] then rounds its input in the same way.
    /// [`Linear::spec`] of the result says which.
    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear>;

    /// Packs the gain (`weight`) and shift (`bias`) of a norm.
    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm>;

    /// Packs a group norm and the convolution that alone reads its result, through [`Activation::Silu`]. A device in
    /// [`crate::MathMode::Int8`] may multiply bytes there ([`crate::Int8Conv`]). [`Norm::int8`] then says that the
    /// result of [`Ops::group_norm`] is a tensor only in size: it may be passed to [`Ops::conv`], [`Ops::tail`] and
    /// [`crate::Residency`], and its values mean nothing to other ops.
    fn norm_conv_weights(
        &self,
        groups: usize,
        eps: f32,
        spec: ConvSpec,
        norm: Read<ConvData>,
        conv: Read<ConvData>,
    ) -> Result<(Norm, Conv)> {
        Ok((self.norm_weights(groups, eps, spec.c_in, norm)?, self.conv_weights(spec, conv)?))
    }

    /// Merges and packs the two convolutions of an upsampler; see [`crate::Merged`].
    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample>;

    /// Products that the device executes in an upsampler, relative to those of its merged kernels, as
    /// [`Conv::executed`] says it of a convolution.
    fn upsample_executed(&self, _: &UpsampleSpec) -> f32 {
        1.0
    }

    /// Packs numbers as f32.
    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector>;

    /// Packs row indices, `per` for each row of a result.
    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows>;

    /// Packs rotary positions.
    fn rotary(&self, data: &RotaryData) -> Result<Rotary>;

    /// y\[t\] = Σ w\[dt,dy,dx\] · x\[t·s+dt-(kt-1), …\] + b (+ residual), zero outside the plane, `cache` before the
    /// slice.
    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput>;

    /// Doubles the plane (and the frames) by one convolution on the low-resolution grid; see [`crate::Merged`].
    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput>;

    /// The last `frames` frames of `cache` followed by `x`. Without a cache the first frame of `x` is repeated in
    /// front. Where `x` is offloaded, so are `cache` and the result, and nothing is copied between host and device.
    fn tail(&self, cache: Option<Tensor>, x: Tensor, frames: usize) -> Result<Tensor>;

    /// y = act((x - mean) / sqrt(var + eps) · gain + shift), mean and variance per frame and group.
    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor>;

    /// y = x Wᵀ + b (+ residual) over the last dimension.
    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor>;

    /// y = act(x) Wᵀ + b, with the bytes of the activation's own op followed by `linear`.
    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor>;

    /// softmax(q kᵀ / √d) v within each of the consecutive sequences of `lengths` tokens; `qkv` is `[N, 3 · heads ·
    /// d]`.
    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor>;

    /// y = x / sqrt(mean(x²) + eps) · gain + shift over the last dimension.
    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor>;

    /// x + gate ⊙ h.
    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor>;

    /// silu(a) ⊙ b, where `x` is `[…, a b]`.
    fn swiglu(&self, x: &Tensor) -> Result<Tensor>;

    /// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
    fn gelu(&self, x: Tensor) -> Result<Tensor>;

    /// The tokens of both streams, numbered consecutively, in the order of `rows`. q and k of every head are divided by
    /// sqrt(mean(x²) + eps), multiplied by their gain and rotated by `rotary`, which numbers the tokens of the result;
    /// v is copied.
    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor>;

    /// Row i of the result is the mean of the i-th `rows.per` rows; a single row is copied.
    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor>;

    /// a · x + b · y.
    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor>;

    /// Adds a weighted tile to a canvas; where the weight is one, the tile is copied.
    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor>;
}

impl MlpActivation {
    /// The op of the activation by itself.
    pub fn run<D: Ops + ?Sized>(self, ops: &D, x: Tensor) -> Result<Tensor> {
        match self {
            MlpActivation::SwiGlu => ops.swiglu(&x),
            MlpActivation::Gelu => ops.gelu(x),
        }
    }
}
