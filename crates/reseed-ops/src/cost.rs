//! The cost of an op, from its shapes alone. Estimates and reports share one definition.

use crate::operands::{MlpActivation, TemporalCache};
use crate::pixels::Depth;
use crate::residency::Payload;
use crate::shape::Thw;
use crate::tensor::Tensor;
use crate::weights::{ConvSpec, Linear, LinearSpec, Norm, UpsampleSpec};

/// Arithmetic and traffic of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes read and written, each operand once.
    pub bytes: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

/// Weights count as f32, whatever the file and the device store.
const WEIGHT_BYTES: usize = 4;

fn moved(tensors: &[&Tensor], weights: usize) -> u64 {
    (tensors.iter().map(|t| t.bytes()).sum::<usize>() + weights * WEIGHT_BYTES) as u64
}

/// A convolution from `x` to `y`; taps that read the same first frame count once.
pub fn conv(spec: &ConvSpec, cache: TemporalCache, x: &Tensor, y: &Tensor, residual: bool) -> Cost {
    let read = x.bytes() + cache.frames().map_or(0, |frames| frames.bytes());
    let Thw { t, h, w } = y.thw();
    let taps_t = |t| if cache.starts() { spec.taps.t + 1 - spec.folded(t) } else { spec.taps.t };
    let taps = (0..t).map(taps_t).sum::<usize>() * spec.taps.h * spec.taps.w;
    let weights = spec.c_in * spec.c_out;
    let written = if residual { 2 * y.bytes() } else { y.bytes() };
    let bytes = read as u64 + written as u64 + moved(&[], weights * spec.taps.count());
    Cost { flops: 2 * (taps * h * w * weights) as u64, bytes }
}

/// An upsampler from `x` to `y`.
pub fn upsample(spec: &UpsampleSpec, cache: TemporalCache, x: &Tensor, y: &Tensor) -> Cost {
    let taps_t = |k: usize| match (cache.starts(), spec.time) {
        (true, _) if k == 0 => 1,
        (true, false) => (k + 1).min(spec.taps_t()),
        _ => spec.taps_t() * spec.frames(),
    };
    let Thw { t, h, w } = x.thw();
    let weights = spec.channels * spec.channels;
    let taps = (0..t).map(taps_t).sum::<usize>() * 16;
    let bytes = moved(&[x, y], weights * spec.taps_t() * spec.phases() * 4);
    Cost { flops: 2 * (taps * h * w * weights) as u64, bytes }
}

/// A copy of the last frames.
pub fn tail(kept: &Tensor) -> Cost {
    Cost { flops: 0, bytes: 2 * kept.bytes() as u64 }
}

/// A norm; it reads its input once more when it computes the statistics.
pub fn group_norm(norm: &Norm, y: &Tensor, given: bool) -> Cost {
    let passes = if given { 2 } else { 3 };
    Cost { flops: 8 * y.count() as u64, bytes: (passes * y.bytes() + 2 * norm.channels * WEIGHT_BYTES) as u64 }
}

/// A linear layer from `x` to `y`.
pub fn linear(linear: &Linear, x: &Tensor, y: &Tensor) -> Cost {
    linear_from(linear, x.bytes(), y)
}

/// A linear layer from an input of `read` bytes to `y`.
fn linear_from(linear: &Linear, read: usize, y: &Tensor) -> Cost {
    let LinearSpec { d_in, d_out, quant, int8 } = linear.spec;
    let (rows, weights) = (y.rows(), d_in * d_out);
    let flops = 2 * (rows * weights) as u64;
    if int8 {
        // The bytes of the input are written before they are read.
        return Cost { flops, bytes: moved(&[y], 0) + (read + weights + 2 * rows * d_in) as u64 };
    }
    // A quantized matrix is read, and its floats are written before they are read.
    let widened = quant.map_or(0, |quant| quant.bytes(weights) + weights * WEIGHT_BYTES);
    Cost { flops, bytes: moved(&[y], weights) + (read + widened) as u64 }
}

/// A linear layer of activated rows to `y`. Where products are of floats, the activated rows are in memory.
pub fn activated_linear(linear: &Linear, act: MlpActivation, y: &Tensor) -> Cost {
    let count = y.rows() * linear.spec.d_in;
    let (activated, flops) = (count * y.dtype().bytes(), if act == MlpActivation::SwiGlu { 4 } else { 8 });
    let between = if linear.spec.int8 { 0 } else { 2 * activated };
    let mut cost = linear_from(linear, act.inputs() * activated, y);
    cost += Cost { flops: flops * count as u64, bytes: between as u64 };
    cost
}

/// An offloaded payload that is copied back.
pub fn prefetch(payload: &Payload) -> Cost {
    let bytes = match payload {
        Payload::Tensor(x) => x.bytes(),
        Payload::Conv(conv) => conv.spec.weights() * WEIGHT_BYTES,
        Payload::Linear(linear) => linear.spec.bytes(WEIGHT_BYTES),
        Payload::Upsample(upsample) => upsample.spec.weights() * WEIGHT_BYTES,
    };
    Cost { flops: 0, bytes: bytes as u64 }
}

/// Attention over sequences of `lengths` tokens.
pub fn attention(qkv: &Tensor, out: &Tensor, lengths: &[usize]) -> Cost {
    let flops = lengths.iter().map(|&n| 4 * (n * n * out.channels()) as u64).sum();
    Cost { flops, bytes: moved(&[qkv, out], 0) }
}

/// An op that passes over its operands once.
pub fn elementwise(tensors: &[&Tensor], flops_per_value: u64) -> Cost {
    let values = tensors.last().map_or(0, |t| t.count()) as u64;
    Cost { flops: flops_per_value * values, bytes: moved(tensors, 0) }
}

/// Conversion of codes to values, or of values to codes.
pub fn pixels(values: &Tensor, depth: Depth) -> Cost {
    Cost { flops: 4 * values.count() as u64, bytes: (values.bytes() + values.count() * depth.bytes()) as u64 }
}

/// Norms and rotation of queries and keys.
pub fn qk_norm_rope(y: &Tensor) -> Cost {
    // A square and a sum, a gain and two products and a sum for two of three values.
    Cost { flops: 4 * y.count() as u64, bytes: 2 * y.bytes() as u64 }
}

/// Rows copied or averaged.
pub fn gather_rows(y: &Tensor, per: usize) -> Cost {
    let read = per as u64 * y.bytes() as u64;
    Cost { flops: if per > 1 { (per * y.count()) as u64 } else { 0 }, bytes: read + y.bytes() as u64 }
}
