//! Memory that ops take beside their operands.

use reseed_ops::{DType, Work, Workspace};

use super::attention;
use super::convolve::{HALO_PLANE, pairs};
use super::group_norm::CHUNK;
use super::quant;
use crate::cublaslt::WORKSPACE;

/// What ops take with values of `dtype`, on Hopper or elsewhere, by our kernels alone or by a library's too.
pub fn of(dtype: DType, hopper: bool, library: bool) -> Workspace {
    Box::new(move |work| match *work {
        // Kernels folded over time, for one frame at a time.
        Work::Conv(spec, folded) => {
            let taps = (0..folded).map(|t| spec.taps.t + 1 - spec.folded(t)).max().unwrap_or(0);
            taps * spec.taps.h * spec.taps.w * spec.c_in * spec.c_out * dtype.bytes()
        }
        Work::Repacked(spec) => pairs::bytes(dtype, hopper, spec),
        Work::Upsample(spec, frames) => {
            let taps = frames.min(if spec.time { 1 } else { 2 });
            taps * 16 * spec.channels * spec.channels * dtype.bytes()
        }
        Work::Stats(y, groups) => {
            let (thw, tiles) = (y.thw(), |n: usize| n.div_ceil(2 * HALO_PLANE));
            let left = 4 * tiles(thw.h) * tiles(thw.w) * HALO_PLANE / 2 * groups;
            let taken = (thw.h * thw.w).div_ceil(CHUNK) * y.channels();
            thw.t * left.max(taken) * 2 * DType::F32.bytes()
        }
        Work::Linear(spec) => quant::workspace(spec, dtype.bytes()) + if library { WORKSPACE } else { 0 },
        Work::Pixels(codes) => codes,
        Work::Attention { width, .. } if attention::fuses(dtype, hopper, width) => 0,
        Work::Attention { longest, width } => attention::workspace(dtype, longest, width),
    })
}
