//! The range limit.

use reseed_ops::{Hw, RangeLimit, Result};

use super::CudaFrames;
use super::resize::sample_name;
use crate::launch::args;
use crate::ops::row_grid;
use crate::params::int;

impl CudaFrames {
    /// Keeps a frame within the range of the input. The samples become values in memory that the low band has left.
    pub(super) fn limit_range(&self, frame: usize) -> Result<()> {
        let Some(RangeLimit { resized, margin }) = self.spec.limit else { return Ok(()) };
        let (Hw { h, w }, output) = (self.spec.input, self.spec.output);
        let (values, width) = (self.at(self.layout.scratch.resized[1]), int(w));
        let name = format!("resize_none_{}", sample_name(self.spec.samples));
        // SAFETY: arguments follow kernels/resize.cu in order and type; values and samples have the size of the input.
        unsafe { self.launch(&name, row_grid(h, 3 * w), args![values, self.samples(), width, width]) }?;
        let (content, grid) = (self.content(frame), row_grid(output.h, 3 * output.w));
        let [height, resized_h, resized_w, columns] = [h, resized.h, resized.w, output.w].map(int);
        let args = args![content, values, height, width, resized_h, resized_w, columns, margin];
        // SAFETY: arguments follow kernels/limit.cu in order and type; content has the size of the output.
        unsafe { self.launch("limit_range", grid, args) }
    }
}
