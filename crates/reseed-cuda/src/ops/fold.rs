//! Kernels at a clip's start: taps that read the same first frame are summed and cost one.

use reseed_ops::{DType, Result};

use super::CudaOps;
use crate::driver::Ptr;
use crate::event::Lane;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::store::ArenaBuffer;

/// Kernels as convolutions read them: `[phase][tap of time][the rest]`.
#[derive(Clone, Copy)]
pub struct Taps {
    pub at: Ptr,
    pub dtype: DType,
    pub phases: usize,
    /// Taps of time.
    pub time: usize,
    /// Values of one tap of time.
    pub each: usize,
}

impl Taps {
    /// Taps of time that are left when the first `folded` are summed.
    pub fn left(&self, folded: usize) -> usize {
        self.time + 1 - folded
    }

    /// The kernels with the first `folded` taps of time summed to one.
    ///
    /// # Safety
    /// `at` holds the kernels.
    pub unsafe fn fold(&self, cuda: &CudaOps, op: &'static str, folded: usize) -> Result<ArenaBuffer> {
        let (bytes, left) = (self.each * self.dtype.bytes(), self.left(folded));
        let out = cuda.scratch(op, self.phases * left * self.each, self.dtype)?;
        let name = format!("fold_{}", self.dtype);
        let grid = Grid::new([self.each.div_ceil(1024).min(4096), 1, 1], 256);
        for phase in 0..self.phases {
            let (from, to) = (self.at.plus(phase * self.time * bytes), out.ptr().plus(phase * left * bytes));
            let (count, parts) = (long(self.each), int(folded));
            // SAFETY: arguments follow kernels/small.cu in order and type; a phase of the kernels holds `time` taps,
            // a phase of the result `left`, of which one is the sum and the others are copied.
            unsafe {
                cuda.driver.launch(&name, grid, args![to, from, count, parts, count])?;
                cuda.driver.copy(Lane::Compute, to.plus(bytes), from.plus(folded * bytes), (left - 1) * bytes)?;
            }
        }
        Ok(out)
    }
}
