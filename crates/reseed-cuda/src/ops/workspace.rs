//! Memory that ops need in addition to their operands.

use reseed_ops::{ConvSpec, DType, Work, Workspace};

use super::conv_hopper::PLANE;
use super::conv_kernels::Winograd;
use super::group_norm::CHUNK;
use super::upsample::PHASES;
use super::{attention, attention_512, conv_winograd, conv_winograd_2d, dequantize, linear_int8};
use crate::cublaslt::WORKSPACE;

/// Workspace of ops with values of `dtype`, with or without the kernels for Hopper and cuBLASLt.
pub fn of(dtype: DType, hopper: bool, winograd: Winograd, library: bool) -> Workspace {
    let weights = if winograd == Winograd::Plane { conv_winograd_2d::packed_weights } else { ConvSpec::weights };
    Box::new(move |work| match *work {
        // Weights with folded temporal taps, for one frame at a time.
        Work::Conv(spec, folded) => {
            let taps = (0..folded).map(|t| spec.taps.t + 1 - spec.folded(t)).max().unwrap_or(0);
            taps * weights(spec) / spec.taps.t * dtype.bytes()
        }
        Work::Repacked(spec) => conv_winograd::bytes(dtype, winograd == Winograd::Columns, spec),
        Work::Upsample(spec, frames) => {
            let taps = frames.min(if spec.time { 1 } else { 2 });
            PHASES * taps * weights(&spec.phase()) / spec.taps_t() * dtype.bytes()
        }
        Work::Stats(y, groups) => {
            let (thw, tiles) = (y.thw(), |n: usize| n.div_ceil(2 * PLANE));
            let from_convolution = 4 * tiles(thw.h) * tiles(thw.w) * PLANE / 2 * groups;
            let second_pass = (thw.h * thw.w).div_ceil(CHUNK) * y.channels();
            thw.t * from_convolution.max(second_pass) * 2 * DType::F32.bytes()
        }
        Work::Linear(spec, rows) if spec.int8 => linear_int8::workspace(spec, rows),
        Work::Linear(spec, _) => dequantize::workspace(spec, dtype.bytes()) + if library { WORKSPACE } else { 0 },
        Work::Pixels(codes) => codes,
        Work::Attention { width, .. } if attention_512::fits(dtype, hopper, width) => 0,
        Work::Attention { longest, width } => attention::workspace(dtype, longest, width),
    })
}
