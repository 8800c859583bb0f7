//! Launch of `kernels/conv_stem.cu`: convolutions of images, which have few channels.

use reseed_ops::{DType, Result};

use super::CudaOps;
use super::convolution::Convolution;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::int;

/// Most input channels.
const IN: i32 = 4;
/// Output channels that a block computes at a time.
const OUT: i32 = 64;
/// Rows and columns of a tile.
const PLANE: usize = 16;
/// Values between rows of the weights in shared memory.
const PITCH: usize = 120;

impl Convolution {
    /// Whether `conv_stem` computes this.
    pub fn is_stem(&self) -> bool {
        let a = &self.args;
        let half = self.dtype != DType::F32 && self.out == self.dtype;
        let taps = (a.taps_h, a.taps_w, a.pad_h, a.pad_w) == (3, 3, 1, 1) && a.taps_t <= 3;
        let plain = (a.stride_t, a.stride_h, a.stride_w, a.phases) == (1, 1, 1, 1) && a.x_pitch == a.c_in;
        half && taps && plain && self.residual == Ptr::NULL && a.c_in <= IN && a.c_out % OUT == 0
    }

    /// Rows and columns of tiles.
    fn stem_tiles(&self) -> (usize, usize) {
        ((self.args.out_h as usize).div_ceil(PLANE), (self.args.out_w as usize).div_ceil(PLANE))
    }

    /// Slots of statistics per frame and group of `width` channels, where the kernel writes them.
    pub fn stem_slots(&self, width: usize) -> Option<usize> {
        let (rows, columns) = self.stem_tiles();
        (self.is_stem() && matches!(width, 4 | 8)).then_some(rows * PLANE / 2 * columns)
    }

    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_stem(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { dtype, x, cache, w, bias, y, args, .. } = *self;
        let (rows, columns) = self.stem_tiles();
        let tiles = rows * columns * args.out_frames as usize;
        let pixels = 3 * (PLANE + 2) * (PLANE + 2) * IN as usize;
        let shared = (args.c_out as usize * PITCH + pixels) * dtype.bytes();
        let grid = Grid { blocks: [tiles.min(2 * cuda.driver.multiprocessors), 1, 1], threads: [256, 1], shared };
        let (name, groups) = (format!("conv_stem_{dtype}"), int(self.groups));
        // SAFETY: arguments follow kernels/conv_stem.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![y, x, cache, w, bias, self.partial, groups, args]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::ConvArgs;

    #[test]
    fn images_have_their_own_kernel() {
        let convolution = |args, dtype| Convolution {
            out: dtype,
            ..Convolution::product(dtype, Ptr::NULL, Ptr::NULL, Ptr::NULL, Ptr::NULL, args)
        };
        let plane = ConvArgs { in_h: 9, in_w: 17, out_h: 9, out_w: 17, ..ConvArgs::matrix(1, 3, 128) };
        let stem = ConvArgs { taps_t: 3, taps_h: 3, taps_w: 3, pad_h: 1, pad_w: 1, w_pitch: 8, ..plane };
        assert!(convolution(stem, DType::F16).is_stem() && !convolution(stem, DType::F32).is_stem());
        assert!(!convolution(ConvArgs { c_in: 8, x_pitch: 8, ..stem }, DType::F16).is_stem());
        assert!(!convolution(ConvArgs { c_out: 16, y_pitch: 16, ..stem }, DType::F16).is_stem());
    }
}
