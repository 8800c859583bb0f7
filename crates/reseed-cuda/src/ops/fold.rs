//! Weights at the start of a clip: temporal taps that read the same first frame are summed to one tap.

use reseed_ops::{DType, Result};

use super::CudaOps;
use crate::device_memory::ArenaBuffer;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::stream::Stream;

/// Weights as convolutions read them: `[phase][temporal tap][rest]`.
#[derive(Clone, Copy)]
pub struct Taps {
    pub at: Ptr,
    pub dtype: DType,
    pub phases: usize,
    /// Temporal taps.
    pub time: usize,
    /// Values of one temporal tap.
    pub each: usize,
}

impl Taps {
    /// Temporal taps after the first `folded` are summed.
    pub fn folded_count(&self, folded: usize) -> usize {
        self.time + 1 - folded
    }

    /// The weights with the first `folded` temporal taps summed to one.
    ///
    /// # Safety
    /// `at` holds the weights.
    pub unsafe fn fold(&self, cuda: &CudaOps, op: &'static str, folded: usize) -> Result<ArenaBuffer> {
        let (bytes, left) = (self.each * self.dtype.bytes(), self.folded_count(folded));
        let out = cuda.scratch(op, self.phases * left * self.each, self.dtype)?;
        let name = format!("fold_{}", self.dtype);
        let grid = Grid::new([self.each.div_ceil(1024).min(4096), 1, 1], 256);
        for phase in 0..self.phases {
            let (from, to) = (self.at.plus(phase * self.time * bytes), out.ptr().plus(phase * left * bytes));
            let (count, parts) = (long(self.each), int(folded));
            // SAFETY: arguments follow kernels/fold.cu in order and type; a phase of the weights holds `time` taps, a
            // phase of the result `left`: the sum and copies of the others.
            unsafe {
                cuda.driver.launch(&name, grid, args![to, from, count, parts, count])?;
                cuda.driver.copy(Stream::Compute, to.plus(bytes), from.plus(folded * bytes), (left - 1) * bytes)?;
            }
        }
        Ok(out)
    }
}
