//! Memory that the blocked kernels take beside their operands.

use super::attention;
use reseed_ops::DType;
use reseed_ops::{Kernels, Work, Workspace};

/// Input and sums of a region or of a block of rows and a widened panel, for every thread: what fits into a core's
/// second-level cache.
const PER_THREAD: usize = 2 << 20;

/// What ops take on `threads` threads, where packed weights are of `packed`: bf16 in tiles, f32 in panels. `kernels` tells
/// how many a convolution has.
pub fn of(threads: usize, packed: DType, kernels: Kernels) -> Workspace {
    Box::new(move |work| match work {
        Work::Linear(_) | Work::Pixels(_) | Work::Repacked(_) => 0,
        // Kernels folded over time, one set for each frame that needs one.
        Work::Conv(spec, folded) => threads * PER_THREAD + folded * kernels(spec) / spec.taps.t * packed.bytes(),
        work => threads * PER_THREAD + of_op(work, threads, packed),
    })
}

fn of_op(work: &Work, threads: usize, packed: DType) -> usize {
    let value = packed.bytes();
    match *work {
        Work::Upsample(spec, frames) => {
            // At a clip's start; with time also the kernels behind the first frame, of one half or of both, unless they
            // are kept.
            let sets = match (frames.min(2), spec.time) {
                (0, _) => 0,
                (_, true) if packed == DType::Bf16 => 1,
                (frames, true) => frames + 1,
                (frames, false) => frames,
            };
            sets * 16 * spec.channels * spec.channels * value
        }
        Work::Conv(..) | Work::Stats(..) | Work::Linear(_) | Work::Pixels(_) | Work::Repacked(_) => 0,
        // Keys and values of one head, for every thread that has one to itself.
        Work::Attention { longest, width } => {
            let heads = if longest < attention::LONG { threads } else { 1 };
            heads * 2 * longest * width * value
        }
    }
}
