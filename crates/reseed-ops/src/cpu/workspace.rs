//! Memory that the blocked kernels take beside their operands.

use super::attention;
use crate::trace::{Work, Workspace};

/// Input and sums of a region or of a block of rows and a widened panel, for every thread: what fits into a core's
/// second-level cache.
const PER_THREAD: usize = 2 << 20;

/// Bytes of f32 weights.
const VALUE: usize = size_of::<f32>();

/// What ops take on `threads` threads.
pub fn of(threads: usize) -> Workspace {
    Box::new(move |work| threads * PER_THREAD + of_op(work, threads))
}

fn of_op(work: &Work, threads: usize) -> usize {
    match *work {
        // Kernels folded over time, one set for each frame that needs one.
        Work::Conv(spec, folded) => folded * spec.taps.h * spec.taps.w * spec.c_in * spec.c_out * VALUE,
        Work::Upsample(spec, frames) => {
            // At a clip's start; with time also the kernels behind the first frame, of one half or of both.
            let sets = match (frames.min(2), spec.time) {
                (0, _) => 0,
                (frames, true) => frames + 1,
                (frames, false) => frames,
            };
            sets * 16 * spec.channels * spec.channels * VALUE
        }
        Work::Stats(..) => 0,
        // Keys and values of one head, for every thread that has one to itself.
        Work::Attention { longest, width } => {
            let heads = if longest < attention::LONG { threads } else { 1 };
            heads * 2 * longest * width * VALUE
        }
    }
}
