//! Launch of `kernels/conv_hopper.cu`: convolutions on the tensor cores of Hopper.

use cudarc::driver::sys;
use reseed_ops::{DType, Result};

use super::CudaOps;
use super::convolution::Convolution;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{ConvArgs, int};
use crate::tensor_map::Boxes;

/// Rows and columns of a square tile.
pub const PLANE: usize = 16;
/// Output channels of a tile.
const CHANNELS: usize = 128;
/// Output channels of a tile of the kernel for the last layer.
const FEW: usize = 16;
/// Input channels loaded at a time.
const DEPTH: usize = 64;
/// Rows of pixels that a warp writes at a time.
const ROWS: u32 = 2;
/// Threads and shared memory of a block.
pub const THREADS: usize = 384;
pub const SHARED: usize = 217 << 10;
/// A kernel of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hopper {
    /// Rows and columns of taps.
    pub taps: usize,
    /// Spatial stride.
    pub stride: usize,
    /// Whether it is the one for few output channels.
    pub few: bool,
}

/// The kernel of convolutions of 3x3 pixels with stride 1.
pub const DIRECT: Hopper = Hopper { taps: 3, stride: 1, few: false };

/// A plane in tiles: rows of square tiles and, where at most eight rows remain, one row of wide tiles.
pub struct Tiling {
    /// Tiles of a plane.
    pub tiles: usize,
    /// Columns of square tiles.
    columns: usize,
    /// Pairs of rows of pixels.
    lines: usize,
}

impl Tiling {
    /// Tiles of 16 rows of `width` pixels; `Cut` in `kernels/tiles.cuh` computes the same.
    pub fn new(args: &ConvArgs, width: usize, may_widen: bool) -> Tiling {
        let (h, w, half) = (args.out_h as usize, args.out_w as usize, PLANE / 2);
        let wide = may_widen && (1..=half).contains(&(h % PLANE)) && w > width;
        let rows = if wide { h / PLANE } else { h.div_ceil(PLANE) };
        let columns = w.div_ceil(width);
        let (over, lines) = if wide { (columns.div_ceil(2), half / 2) } else { (0, 0) };
        Tiling { tiles: rows * columns + over, columns, lines: rows * half + lines }
    }

    /// Slots of statistics per frame and group of `width` channels, where kernels write them.
    pub fn slots(&self, args: &ConvArgs, width: usize) -> Option<usize> {
        let writes = (args.c_out as usize).is_multiple_of(CHANNELS) && matches!(width, 4 | 8 | 16);
        writes.then_some(args.phases as usize * self.lines * self.columns)
    }
}

impl Hopper {
    /// How the kernel tiles a plane.
    pub fn tiling(self, args: &ConvArgs) -> Tiling {
        Tiling::new(args, PLANE, self.taps > 1 && self.stride == 1)
    }

    /// The kernel's name.
    fn name(self, dtype: DType) -> String {
        let Hopper { taps, stride, few } = self;
        let kind = match (few, stride) {
            (true, _) => "few_",
            (_, 2) => "by2_",
            _ => "",
        };
        format!("conv_hopper_{taps}x{taps}_{kind}{dtype}")
    }
}

impl Convolution {
    /// The kernel of the family that computes this, if one does.
    pub fn hopper(&self) -> Option<Hopper> {
        let a = &self.args;
        let half = self.dtype != DType::F32 && self.out == self.dtype;
        let dense = (a.x_pitch, a.w_pitch, a.y_pitch) == (a.c_in, a.c_in, a.c_out);
        // Tensor maps and the epilogue need rows that start on 16 bytes.
        let even = a.x_pitch % 8 == 0 && a.w_pitch % 8 == 0 && a.y_pitch % 8 == 0 && a.c_out % 8 == 0;
        let aligned = [self.x, self.w, self.cache, self.y].iter().all(|p| p.0.is_multiple_of(16));
        if !(half && aligned && a.c_in % 8 == 0) {
            return None;
        }
        let (few, many) = (a.c_out <= FEW as i32, a.c_out > FEW as i32 && even);
        let hopper = |taps, stride| Some(Hopper { taps, stride, few: !many });
        let stride = (a.stride_t, a.stride_h, a.stride_w);
        match (a.taps_h, a.taps_w, a.pad_h, a.pad_w, a.phases) {
            (3, 3, 0 | 1, 1, 1) if dense && stride == (1, 1, 1) && (few || many) => hopper(3, 1),
            (3, 3, 0, 0, 1) if dense && (a.stride_h, a.stride_w) == (2, 2) && many => hopper(3, 2),
            (2, 2, 1, 1, 4) if dense && stride == (1, 1, 1) && many => hopper(2, 1),
            (1, 1, 0, 0, 1) if stride == (1, 1, 1) && many => hopper(1, 1),
            _ => None,
        }
    }

    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_hopper(&self, cuda: &CudaOps, hopper: Hopper) -> Result<()> {
        let Convolution { dtype, y, bias, residual, partial, args, .. } = *self;
        let size = |n: i32| n as usize;
        let side = |pixels: usize| (pixels - 1) * hopper.stride + hopper.taps;
        let boxes = |[w, h]: [usize; 2]| [DEPTH, side(w), side(h)];
        let inputs = self.input_maps(cuda, PLANE, [hopper.stride as u32; 2], boxes)?;
        let mut maps_y = inputs; // the kernel does not read maps of further phases
        for (phase, map) in maps_y.iter_mut().enumerate().take(if hopper.few { 0 } else { size(args.phases) }) {
            *map = cuda.driver.tensor_map(&self.output_boxes(phase, PLANE))?;
        }
        let rows = size(args.phases) * args.taps() * size(args.c_out);
        let channels = if hopper.few { FEW } else { CHANNELS };
        let (dims_w, box_w) = ([size(args.c_in), rows], [DEPTH as u32, channels as u32]);
        let map_w = cuda.driver.tensor_map(&Boxes::new(self.w, dtype, size(args.w_pitch), dims_w, box_w))?;
        let planes = size(args.c_out).div_ceil(channels) * size(args.phases * args.out_frames);
        let blocks = [cuda.driver.multiprocessors.min(hopper.tiling(&args).tiles * planes), 1, 1];
        let name = hopper.name(dtype);
        let grid = Grid { blocks, threads: [THREADS, 1], shared: SHARED };
        assert!(residual == Ptr::NULL || residual == y, "{name}: the residual must be in y");
        let (add, groups) = (i32::from(residual == y), int(self.groups));
        // SAFETY: arguments follow kernels/conv_hopper.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![inputs, map_w, maps_y, y, bias, add, partial, groups, args]) }
    }

    /// Tensor maps of x for tiles of `width` columns and for wide tiles, then of the cache: `boxes` gives the channels,
    /// input columns and rows of a tile; every `step`-th column and row is copied.
    pub fn input_maps(
        &self,
        cuda: &CudaOps,
        width: usize,
        step: [u32; 2],
        boxes: impl Fn([usize; 2]) -> [usize; 3],
    ) -> Result<[sys::CUtensorMap; 4]> {
        let (args, size) = (&self.args, |n: i32| n as usize);
        let clip = |at: Ptr, frames: usize, tile: [usize; 2]| {
            let dims = [size(args.c_in), size(args.in_w), size(args.in_h), frames];
            let [channels, w, h] = boxes(tile).map(|n| n as u32);
            let boxes = Boxes::new(at, self.dtype, size(args.x_pitch), dims, [channels, w, h, 1]);
            cuda.driver.tensor_map(&Boxes { step, ..boxes })
        };
        self.maps_of_tiles(width, clip)
    }

    /// Tensor maps of x for tiles of `width` columns and for wide tiles, then of the cache; `clip` makes one from an
    /// address, a number of frames, and the columns and rows of a tile.
    pub fn maps_of_tiles(
        &self,
        width: usize,
        clip: impl Fn(Ptr, usize, [usize; 2]) -> Result<sys::CUtensorMap>,
    ) -> Result<[sys::CUtensorMap; 4]> {
        let (square, wide) = ([width, PLANE], [width * 2, PLANE / 2]);
        let x = [clip(self.x, self.frames, square)?, clip(self.x, self.frames, wide)?];
        let cache = match self.args.cache_frames as usize {
            0 => x,
            frames => [clip(self.cache, frames, square)?, clip(self.cache, frames, wide)?],
        };
        Ok([x[0], x[1], cache[0], cache[1]])
    }

    /// The output of a phase, by tiles of `width` columns: every pixel, or every second pixel of every second row.
    pub fn output_boxes(&self, phase: usize, width: usize) -> Boxes<4> {
        let (a, size) = (&self.args, |n: i32| n as usize);
        let factor = if a.phases == 4 { 2 } else { 1 };
        let (pixel, line) = (size(a.y_pitch), factor * size(a.out_w) * size(a.y_pitch));
        let frames = size(a.frame_start) + (size(a.out_frames) - 1) * size(a.frame_step) + 1;
        Boxes {
            at: self.y.plus((phase / 2 * line + phase % 2 * pixel) * self.dtype.bytes()),
            dtype: self.dtype.into(),
            dims: [size(a.c_out), size(a.out_w), size(a.out_h), frames],
            strides: [1, factor * pixel, factor * line, factor * size(a.out_h) * line],
            size: [DEPTH as u32, width as u32, ROWS, 1],
            step: [1; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution(args: ConvArgs, dtype: DType) -> Convolution {
        let none = Ptr::NULL;
        Convolution { out: dtype, ..Convolution::product(dtype, none, none, none, none, args) }
    }

    #[test]
    fn kernels_for_hopper_get_what_they_support() {
        let plane = ConvArgs { in_h: 9, in_w: 17, out_h: 9, out_w: 17, ..ConvArgs::matrix(1, 128, 256) };
        let three = ConvArgs { taps_t: 3, taps_h: 3, taps_w: 3, pad_h: 1, pad_w: 1, ..plane };
        let two = ConvArgs { taps_t: 2, taps_h: 2, taps_w: 2, pad_h: 1, pad_w: 1, phases: 4, ..plane };
        let down = ConvArgs { stride_t: 2, stride_h: 2, stride_w: 2, pad_h: 0, pad_w: 0, out_h: 4, out_w: 8, ..three };
        let hopper = |taps, stride, few| Some(Hopper { taps, stride, few });
        assert_eq!(convolution(three, DType::F16).hopper(), hopper(3, 1, false));
        assert_eq!(convolution(two, DType::Bf16).hopper(), hopper(2, 1, false));
        assert_eq!(convolution(down, DType::Bf16).hopper(), hopper(3, 2, false));
        assert_eq!(convolution(two, DType::F32).hopper(), None);
        assert_eq!(convolution(plane, DType::F16).hopper(), hopper(1, 1, false));
        assert_eq!(convolution(ConvArgs { c_out: 3, y_pitch: 3, ..three }, DType::F16).hopper(), hopper(3, 1, true));
        for no in [
            ConvArgs { stride_h: 2, ..three },
            ConvArgs { stride_t: 2, ..three },
            ConvArgs { c_in: 100, x_pitch: 100, w_pitch: 100, ..three },
            ConvArgs { c_out: 20, y_pitch: 20, ..three },
            ConvArgs { c_out: 132, y_pitch: 132, ..three },
            ConvArgs { phases: 1, ..two },
        ] {
            assert_eq!(convolution(no, DType::F16).hopper(), None, "{no:?}");
        }
    }

    #[test]
    fn remaining_rows_have_wide_tiles() {
        let hopper = Hopper { taps: 3, stride: 1, few: false };
        let tiling = |h, w, hopper: Hopper| {
            let args = ConvArgs { out_h: h, out_w: w, ..ConvArgs::matrix(1, 128, 128) };
            let Tiling { tiles, columns, lines } = hopper.tiling(&args);
            (tiles, columns, lines)
        };
        assert_eq!(tiling(32, 240, hopper), (2 * 15, 15, 16));
        assert_eq!(tiling(135, 240, hopper), (8 * 15 + 8, 15, 68));
        assert_eq!(tiling(137, 240, hopper), (9 * 15, 15, 72));
        assert_eq!(tiling(5, 40, hopper), (2, 3, 4));
        assert_eq!(tiling(5, 16, hopper), (1, 1, 8));
        assert_eq!(tiling(135, 240, Hopper { taps: 1, ..hopper }), (9 * 15, 15, 72));
    }
}
