//! The memory that the kernels allocate in addition to their operands.

use crate::host::level::Level;
use crate::simd::heads::LONG;
use crate::simd::winograd_planes;
use reseed_ops::DType;
use reseed_ops::{Kernels, Work, Workspace};

/// Bytes of scratch of a thread: input, sums and a panel in f32. They fit into a core's second-level cache.
const PER_THREAD: usize = 2 << 20;

/// The workspace of every op at `level` on `threads` threads. `packed` is the type of packed weights: bf16 in tiles,
/// f32 in panels. `kernels` returns the number of packed weights of a convolution.
pub fn of(level: Level, threads: usize, packed: DType, kernels: Kernels) -> Workspace {
    Box::new(move |work| match work {
        Work::Linear(..) | Work::Pixels(_) | Work::Repacked(_) => 0,
        // Kernels that are summed over temporal taps, one set for each frame that needs one, and transformed ones.
        Work::Conv(spec, folded) => {
            let planes = level != Level::TILES && winograd_planes::supports(level.simd(), spec);
            let transformed = if planes { winograd_planes::kernel_floats(level.simd(), spec, *folded) } else { 0 };
            let summed = folded * kernels(spec) / spec.taps.t;
            threads * PER_THREAD + summed * packed.bytes() + transformed * size_of::<f32>()
        }
        work => threads * PER_THREAD + of_op(work, threads, packed),
    })
}

fn of_op(work: &Work, threads: usize, packed: DType) -> usize {
    let value = packed.bytes();
    match *work {
        Work::Upsample(spec, frames) => {
            // Summed kernels at the start of a clip. With temporal upsampling also the kernels after the first frame,
            // for one or both output frames, unless they are packed for tiles.
            let sets = match (frames.min(2), spec.time) {
                (0, _) => 0,
                (_, true) if packed == DType::Bf16 => 1,
                (frames, true) => frames + 1,
                (frames, false) => frames,
            };
            sets * 16 * spec.channels * spec.channels * value
        }
        Work::Conv(..) | Work::Stats(..) | Work::Linear(..) | Work::Pixels(_) | Work::Repacked(_) => 0,
        // Keys and values of one head, for every thread that processes a head alone.
        Work::Attention { longest, width } => {
            let heads = if longest < LONG { threads } else { 1 };
            heads * 2 * longest * width * value
        }
    }
}
