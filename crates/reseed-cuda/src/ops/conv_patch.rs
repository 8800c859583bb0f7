//! Launch of `kernels/conv_patch.cu`: convolutions on the tensor cores of every GPU since Ampere.

use reseed_ops::{DType, Result};

use super::CudaOps;
use super::convolution::Convolution;
use crate::launch::{Grid, args};

/// Rows and columns of a tile of `conv_patch`; `conv_gather` has as many pixels in a row.
const SIDE: usize = 16;
/// Output channels of a tile.
const CHANNELS: usize = 128;
/// Output channels of a tile of the kernel for the last layer.
const FEW: usize = 16;
/// Bytes of a pixel that are loaded at a time.
const ROW: usize = 64;
/// Bytes of one copy into shared memory, and of one store.
const CHUNK: usize = 16;
/// Bytes that aligning the tiles may need.
const SLACK: usize = 128;

/// A kernel of `kernels/conv_patch.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Loads a tile once for 3x3 taps.
    Three,
    /// The same for at most [`FEW`] output channels.
    ThreeFew,
    /// Loads a tile once for 2x2 taps.
    Two,
    /// Loads pixels for every tap.
    Gather,
}

impl Patch {
    fn stem(self) -> &'static str {
        match self {
            Patch::Three => "conv_patch_3x3",
            Patch::ThreeFew => "conv_patch_3x3_few",
            Patch::Two => "conv_patch_2x2",
            Patch::Gather => "conv_gather",
        }
    }

    fn channels(self) -> usize {
        if self == Patch::ThreeFew { FEW } else { CHANNELS }
    }

    /// Bytes of shared memory for tiles of pixels and of weights.
    fn shared(self) -> usize {
        let (pixels, pixel_stages, taps, stages) = match self {
            Patch::Three | Patch::ThreeFew => ((SIDE + 2) * (SIDE + 2), 2, 3, 2),
            Patch::Two => ((SIDE + 1) * (SIDE + 2), 2, 2, 3),
            Patch::Gather => (SIDE * SIDE, 4, 1, 4),
        };
        (pixels * pixel_stages + self.channels() * taps * stages) * ROW + SLACK
    }

    /// Blocks per multiprocessor.
    fn blocks(self) -> usize {
        if self == Patch::ThreeFew { 2 } else { 1 }
    }
}

impl Convolution {
    /// The kernel that computes this, if one does; f32 only where it may be rounded to tf32.
    pub fn patch(&self, tf32: bool) -> Option<Patch> {
        let (a, bytes) = (&self.args, self.dtype.bytes());
        let whole = |values: i32, bytes: usize, of: usize| (values as usize * bytes).is_multiple_of(of);
        let aligned = |pointers: &[crate::driver::Ptr]| pointers.iter().all(|p| p.0.is_multiple_of(CHUNK as u64));
        let reads = whole(a.c_in, bytes, ROW) && whole(a.x_pitch, bytes, CHUNK) && whole(a.w_pitch, bytes, CHUNK);
        if self.dtype == DType::F32 && !tf32 || !reads || !aligned(&[self.x, self.cache, self.w]) {
            return None;
        }
        let dense = (a.stride_h, a.stride_w) == (1, 1);
        let writes = a.c_out % 8 == 0 && a.y_pitch % 8 == 0 && aligned(&[self.y, self.residual, self.bias]);
        match (a.taps_h, a.taps_w, a.phases) {
            (3, 3, 1) if dense && a.c_out <= FEW as i32 && self.out == self.dtype => Some(Patch::ThreeFew),
            _ if !writes => None,
            (3, 3, 1) if dense && self.out == self.dtype => Some(Patch::Three),
            (2, 2, _) if dense && self.out == self.dtype => Some(Patch::Two),
            (_, _, 1) => Some(Patch::Gather),
            _ => None,
        }
    }

    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_patch(&self, cuda: &CudaOps, patch: Patch) -> Result<()> {
        let Convolution { dtype, out, x, cache, w, bias, y, residual, args, .. } = *self;
        let (h, w_out) = (args.out_h as usize, args.out_w as usize);
        let planes = match patch {
            Patch::Gather => (h * w_out).div_ceil(SIDE * SIDE),
            _ => h.div_ceil(SIDE) * w_out.div_ceil(SIDE),
        };
        let tiles =
            planes * (args.c_out as usize).div_ceil(patch.channels()) * (args.phases * args.out_frames) as usize;
        let blocks = [tiles.min(patch.blocks() * cuda.driver.multiprocessors), 1, 1];
        let grid = Grid { blocks, threads: [256, 1], shared: patch.shared() };
        // Sums of f16 are for layers with strides; those of most others are computed by Winograd.
        let fast = cuda.conv.half_sums && args.taps() > 1 && patch == Patch::Gather;
        let name = match (dtype, out == dtype) {
            (DType::F32, _) => format!("{}_tf32", patch.stem()),
            (_, true) if fast => format!("{}_{dtype}_fast", patch.stem()),
            (_, true) => format!("{}_{dtype}", patch.stem()),
            (_, false) => format!("{}_{dtype}_{out}", patch.stem()),
        };
        // SAFETY: arguments follow kernels/conv_patch.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![y, x, cache, w, bias, residual, args]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Ptr;
    use crate::params::ConvArgs;

    fn convolution(args: ConvArgs, dtype: DType, out: DType) -> Convolution {
        let none = Ptr::NULL;
        Convolution { out, ..Convolution::product(dtype, none, none, none, none, args) }
    }

    #[test]
    fn patch_kernels_get_what_they_support() {
        let half = |args| convolution(args, DType::F16, DType::F16).patch(false);
        let plane = ConvArgs { in_h: 9, in_w: 17, out_h: 9, out_w: 17, ..ConvArgs::matrix(1, 96, 136) };
        let three = ConvArgs { taps_t: 3, taps_h: 3, taps_w: 3, pad_h: 1, pad_w: 1, ..plane };
        let two = ConvArgs { taps_t: 2, taps_h: 2, taps_w: 2, pad_h: 1, pad_w: 1, phases: 4, ..plane };
        assert_eq!(half(three), Some(Patch::Three));
        assert_eq!(half(ConvArgs { c_out: 3, y_pitch: 3, ..three }), Some(Patch::ThreeFew));
        assert_eq!(half(two), Some(Patch::Two));
        assert_eq!(half(plane), Some(Patch::Gather));
        assert_eq!(half(ConvArgs { stride_h: 2, stride_w: 2, ..three }), Some(Patch::Gather));
        assert_eq!(convolution(plane, DType::Bf16, DType::F32).patch(false), Some(Patch::Gather));
        let full = convolution(ConvArgs { c_in: 16, x_pitch: 16, w_pitch: 16, ..three }, DType::F32, DType::F32);
        assert_eq!((full.patch(false), full.patch(true)), (None, Some(Patch::Three)));
        for no in [
            ConvArgs { c_in: 48, ..three },
            ConvArgs { x_pitch: 100, ..three },
            ConvArgs { c_out: 100, y_pitch: 100, ..three },
            ConvArgs { stride_h: 2, ..two },
        ] {
            assert_eq!(half(no), None, "{no:?}");
        }
    }

    /// Consumer GPUs allow 99 KiB per block, data-centre GPUs more.
    #[test]
    fn tiles_fit_into_the_shared_memory_of_every_gpu() {
        for patch in [Patch::Three, Patch::ThreeFew, Patch::Two, Patch::Gather] {
            assert!(patch.shared() * patch.blocks() <= 99 << 10, "{patch:?}: {}", patch.shared());
        }
    }
}
