//! The convolution kernels, and which of them runs.

pub mod pairs;

use cudarc::driver::sys;
use reseed_ops::{ConvSpec, DType, Result, Thw};

use super::CudaOps;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{ConvArgs, NormArgs, int};
use crate::tensor_map::Boxes;

/// Pixels and channels of a block of `conv_gemm`, and bytes of a row of its stages.
const GEMM_TILE: (usize, usize) = (128, 64);
const GEMM_PITCH: usize = 80;

/// Rows and columns of the output that a block of `conv_halo` makes at a time, and their channels.
pub const HALO_PLANE: usize = 16;
const HALO_CHANNELS: usize = 128;
/// Output channels of a tile of the kernel for the last layer.
const HALO_FEW: usize = 16;
/// Input channels that it loads at a time.
const HALO_DEPTH: usize = 64;
const HALO_THREADS: usize = 384;
const HALO_SHARED: usize = 217 << 10;
/// The same of the one that normalises what it reads: more threads, and a table of eight bytes a channel.
const NORM_THREADS: usize = 512;
const NORM_SHARED: usize = HALO_SHARED + 8 * NORM_IN;
/// Most channels that it reads, and most that it makes: every 128 of these normalise anew, and more than two are slower than a
/// norm by itself.
const NORM_IN: usize = 1024;
const NORM_OUT: usize = 256;
/// Rows of pixels that one of its warps writes at a time.
const HALO_ROWS: u32 = 2;

/// Channels of the pictures that `conv_stem` reads, at most, and how many output channels it makes at a time.
const STEM_IN: i32 = 4;
const STEM_OUT: i32 = 64;
/// Rows and columns of its tiles, and values between rows of its weights.
const STEM_PLANE: usize = 16;
const STEM_PITCH: usize = 120;

/// One launch: operands, and how they are read.
#[derive(Clone, Copy)]
pub struct Convolution {
    /// Type of x, cache, w and, where there is one, the residual.
    pub dtype: DType,
    /// Type of y: that of x, or f32.
    pub out: DType,
    pub x: Ptr,
    /// Frames in x.
    pub frames: usize,
    pub cache: Ptr,
    pub w: Ptr,
    pub bias: Ptr,
    pub y: Ptr,
    pub residual: Ptr,
    /// Where statistics of the output go, and of how many groups; only for what [`Convolution::sums`] says.
    pub partial: Ptr,
    pub groups: usize,
    /// Applied to x on its way in; only for what [`norms_on_load`] says.
    pub norm: Option<NormArgs>,
    pub args: ConvArgs,
}

/// Whether a convolution of a picture can apply the norm before it to what it reads.
pub fn norms_on_load(dtype: DType, hopper: bool, spec: &ConvSpec) -> bool {
    let ConvSpec { c_in, c_out, taps, stride, pad_before, pad_after } = *spec;
    let cube = (taps, stride, pad_before, pad_after) == (Thw::new(3, 3, 3), Thw::new(1, 1, 1), 1, 1);
    let fits = |channels: usize, most| channels.is_multiple_of(8) && channels <= most;
    hopper && dtype != DType::F32 && cube && fits(c_in, NORM_IN) && fits(c_out, NORM_OUT) && c_out > HALO_FEW
}

/// A kernel of the `conv_halo` family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Halo {
    /// Rows and columns of taps.
    taps: usize,
    /// Step from pixel to pixel.
    stride: usize,
    /// Whether it is the one for few output channels.
    few: bool,
}

/// How one of these kernels cuts a plane: rows of square tiles and, where eight rows or fewer are left over, one of wide ones.
struct Cut {
    /// Tiles of a plane.
    tiles: usize,
    /// Columns of squares.
    columns: usize,
    /// Pairs of rows.
    lines: usize,
}

impl Halo {
    fn cut(self, args: &ConvArgs) -> Cut {
        let (h, w, half) = (args.out_h as usize, args.out_w as usize, HALO_PLANE / 2);
        let wide = self.taps > 1 && self.stride == 1 && (1..=half).contains(&(h % HALO_PLANE)) && w > HALO_PLANE;
        let rows = if wide { h / HALO_PLANE } else { h.div_ceil(HALO_PLANE) };
        let columns = w.div_ceil(HALO_PLANE);
        let (over, lines) = if wide { (columns.div_ceil(2), half / 2) } else { (0, 0) };
        Cut { tiles: rows * columns + over, columns, lines: rows * half + lines }
    }
}

impl Convolution {
    /// y = x wᵀ in f32 of operands of `dtype`; `zeros` stand for the bias.
    pub fn product(dtype: DType, x: Ptr, w: Ptr, zeros: Ptr, y: Ptr, args: ConvArgs) -> Convolution {
        let none = Ptr::NULL;
        let (cache, residual, partial) = (none, none, none);
        Convolution {
            dtype,
            out: DType::F32,
            x,
            frames: 1,
            cache,
            w,
            bias: zeros,
            y,
            residual,
            partial,
            groups: 0,
            norm: None,
            args,
        }
    }

    /// Queues the fastest kernel that takes it.
    ///
    /// # Safety
    /// The pointers hold what `args` says that is read and written there.
    pub unsafe fn launch(&self, cuda: &CudaOps) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_as(cuda, cuda.tf32) }
    }

    /// Queues the fastest kernel that rounds no f32 for its products.
    ///
    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_exact(&self, cuda: &CudaOps) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_as(cuda, false) }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_as(&self, cuda: &CudaOps, tf32: bool) -> Result<()> {
        if self.is_matrix() && cuda.driver.kernels.halo {
            // SAFETY: the caller's promise.
            return unsafe { self.launch_linear(cuda) };
        }
        let plane = self.as_plane();
        match plane.halo().filter(|_| cuda.driver.kernels.halo) {
            // SAFETY: the caller's promise.
            Some(_) if plane.pairs(cuda) => unsafe { plane.launch_pairs(cuda, 1) },
            // SAFETY: the caller's promise.
            Some(halo) => unsafe { plane.launch_halo(cuda, halo) },
            None if self.norm.is_some() => panic!("{:?}: no kernel applies a norm to what it reads", self.args),
            // SAFETY: the caller's promise.
            None if self.stem() => unsafe { self.launch_stem(cuda) },
            None => match self.patch(tf32).filter(|_| cuda.driver.kernels.ampere) {
                // SAFETY: the caller's promise.
                Some(patch) => unsafe { self.launch_patch(cuda, patch) },
                // SAFETY: the caller's promise.
                None => unsafe { self.launch_gemm(cuda) },
            },
        }
    }

    /// Slots of a frame and a group in which the kernel leaves statistics of its output, where it can.
    pub fn sums(&self, cuda: &CudaOps, groups: usize) -> Option<usize> {
        let (a, channels) = (&self.args, self.args.c_out as usize);
        let width = Some(channels / groups).filter(|width| channels == groups * width)?;
        let halo = self.halo().filter(|_| cuda.driver.kernels.halo);
        let cut = match halo {
            Some(halo) if channels.is_multiple_of(HALO_CHANNELS) && matches!(width, 4 | 8 | 16) => halo.cut(a),
            None if self.stem() && matches!(width, 4 | 8) => {
                let (rows, columns) =
                    ((a.out_h as usize).div_ceil(STEM_PLANE), (a.out_w as usize).div_ceil(STEM_PLANE));
                Cut { tiles: rows * columns, columns, lines: rows * STEM_PLANE / 2 }
            }
            _ => return None,
        };
        Some(a.phases as usize * cut.lines * cut.columns)
    }

    /// Whether `conv_stem` computes this: pictures, read as they are.
    pub fn stem(&self) -> bool {
        let a = &self.args;
        let half = self.dtype != DType::F32 && self.out == self.dtype;
        let taps = (a.taps_h, a.taps_w, a.pad_h, a.pad_w) == (3, 3, 1, 1) && a.taps_t <= 3;
        let plain = (a.stride_t, a.stride_h, a.stride_w, a.phases) == (1, 1, 1, 1) && a.x_pitch == a.c_in;
        half && taps && plain && self.residual == Ptr::NULL && a.c_in <= STEM_IN && a.c_out % STEM_OUT == 0
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_stem(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { dtype, x, cache, w, bias, y, args, .. } = *self;
        let tiles = (args.out_h as usize).div_ceil(STEM_PLANE)
            * (args.out_w as usize).div_ceil(STEM_PLANE)
            * args.out_frames as usize;
        let pixels = 3 * (STEM_PLANE + 2) * (STEM_PLANE + 2) * STEM_IN as usize;
        let shared = (args.c_out as usize * STEM_PITCH + pixels) * dtype.bytes();
        let grid = Grid { blocks: [tiles.min(2 * cuda.driver.multiprocessors), 1, 1], threads: [256, 1], shared };
        let (name, groups) = (format!("conv_stem_{dtype}"), int(self.groups));
        // SAFETY: arguments follow kernels/conv_stem.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![y, x, cache, w, bias, self.partial, groups, args]) }
    }

    /// A matrix product as a convolution over a plane as wide as a tile, where the rows fill it.
    fn as_plane(&self) -> Convolution {
        let a = self.args;
        let (width, single) = (HALO_PLANE as i32, (a.taps_h, a.taps_w, a.in_h, a.out_h) == (1, 1, 1, 1));
        match single && a.in_w == a.out_w && a.in_w % width == 0 {
            false => *self,
            true => {
                let rows = a.in_w / width;
                let args = ConvArgs { in_h: rows, in_w: width, out_h: rows, out_w: width, ..a };
                Convolution { args, ..*self }
            }
        }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_gemm(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { dtype, out, x, cache, w, bias, y, residual, args, .. } = *self;
        let (pixels, channels) = if dtype == DType::F32 { (64, 64) } else { GEMM_TILE };
        let name = match out == dtype {
            true => format!("conv_gemm_{dtype}"),
            false => format!("conv_gemm_{dtype}_{out}"),
        };
        let stages = if dtype == DType::F32 { 0 } else { cuda.driver.kernels.gemm_stages() };
        let shared = stages * (pixels + channels) * GEMM_PITCH;
        let blocks = [
            (args.out_h as usize * args.out_w as usize).div_ceil(pixels),
            (args.c_out as usize).div_ceil(channels),
            (args.out_frames * args.phases) as usize,
        ];
        let grid = Grid { blocks, threads: [256, 1], shared };
        // SAFETY: arguments follow kernels/conv_gemm.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![y, x, cache, w, bias, residual, args]) }
    }

    /// The kernel of the `conv_halo` family that computes this, if one does.
    fn halo(&self) -> Option<Halo> {
        let a = &self.args;
        let half = self.dtype != DType::F32 && self.out == self.dtype;
        let dense = (a.x_pitch, a.w_pitch, a.y_pitch) == (a.c_in, a.c_in, a.c_out);
        // The copying unit and the epilogue want rows that start on 16 bytes.
        let even = a.x_pitch % 8 == 0 && a.w_pitch % 8 == 0 && a.y_pitch % 8 == 0 && a.c_out % 8 == 0;
        let aligned = [self.x, self.w, self.cache, self.y].iter().all(|p| p.0.is_multiple_of(16));
        if !(half && aligned && a.c_in % 8 == 0) {
            return None;
        }
        let (few, many) = (a.c_out <= HALO_FEW as i32, a.c_out > HALO_FEW as i32 && even);
        let halo = |taps, stride| Some(Halo { taps, stride, few: !many });
        let stride = (a.stride_t, a.stride_h, a.stride_w);
        match (a.taps_h, a.taps_w, a.pad_h, a.pad_w, a.phases) {
            (3, 3, 0 | 1, 1, 1) if dense && stride == (1, 1, 1) && (few || many) => halo(3, 1),
            (3, 3, 0, 0, 1) if dense && (a.stride_h, a.stride_w) == (2, 2) && many => halo(3, 2),
            (2, 2, 1, 1, 4) if dense && stride == (1, 1, 1) && many => halo(2, 1),
            (1, 1, 0, 0, 1) if stride == (1, 1, 1) && many => halo(1, 1),
            _ => None,
        }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_halo(&self, cuda: &CudaOps, halo: Halo) -> Result<()> {
        let Convolution { dtype, y, bias, residual, partial, args, .. } = *self;
        let Halo { taps, stride, few } = halo;
        let size = |n: i32| n as usize;
        let side = |pixels: usize| (pixels - 1) * stride + taps;
        let inputs = self.inputs(cuda, [stride as u32; 2], |tile| tile.map(side))?;
        let mut maps_y = inputs; // of phases that there are not nobody reads
        for (phase, map) in maps_y.iter_mut().enumerate().take(if few { 0 } else { size(args.phases) }) {
            *map = cuda.driver.tensor_map(&self.outputs(phase))?;
        }
        let rows = size(args.phases) * args.taps() * size(args.c_out);
        let channels = if few { HALO_FEW } else { HALO_CHANNELS };
        let (dims_w, box_w) = ([size(args.c_in), rows], [HALO_DEPTH as u32, channels as u32]);
        let map_w = cuda.driver.tensor_map(&Boxes::new(self.w, dtype, size(args.w_pitch), dims_w, box_w))?;
        let tiles = halo.cut(&args).tiles * size(args.c_out).div_ceil(channels) * size(args.phases * args.out_frames);
        let blocks = [cuda.driver.multiprocessors.min(tiles), 1, 1];
        let kind = match (few, stride) {
            (true, _) => "few_",
            (_, 2) => "by2_",
            _ => "",
        };
        let (normed, norm, threads, shared) = match self.norm {
            Some(norm) => ("norm_", norm, NORM_THREADS, NORM_SHARED),
            None => ("", NormArgs::NONE, HALO_THREADS, HALO_SHARED),
        };
        let name = format!("conv_halo_{taps}x{taps}_{kind}{normed}{dtype}");
        let grid = Grid { blocks, threads: [threads, 1], shared };
        assert!(residual == Ptr::NULL || residual == y, "{name}: what is added lies where the result goes");
        let (add, groups) = (i32::from(residual == y), int(self.groups));
        // SAFETY: arguments follow kernels/conv_halo.cu in order and type; the caller's promise.
        unsafe {
            cuda.driver.launch(&name, grid, args![inputs, map_w, maps_y, y, bias, add, partial, groups, args, norm])
        }
    }

    /// The input and its cache, as square tiles read them and as wide ones do: of `area` columns and rows for those of a tile, every
    /// `step`-th.
    fn inputs(
        &self,
        cuda: &CudaOps,
        step: [u32; 2],
        area: impl Fn([usize; 2]) -> [usize; 2],
    ) -> Result<[sys::CUtensorMap; 4]> {
        let (args, size) = (&self.args, |n: i32| n as usize);
        let clip = |at: Ptr, frames: usize, tile: [usize; 2]| {
            let (dims, [w, h]) = ([size(args.c_in), size(args.in_w), size(args.in_h), frames], area(tile));
            let boxes =
                Boxes::new(at, self.dtype, size(args.x_pitch), dims, [HALO_DEPTH as u32, w as u32, h as u32, 1]);
            cuda.driver.tensor_map(&Boxes { step, ..boxes })
        };
        let (square, wide) = ([HALO_PLANE; 2], [HALO_PLANE * 2, HALO_PLANE / 2]);
        let x = [clip(self.x, self.frames, square)?, clip(self.x, self.frames, wide)?];
        let cache = match size(args.past_frames) {
            0 => x,
            frames => [clip(self.cache, frames, square)?, clip(self.cache, frames, wide)?],
        };
        Ok([x[0], x[1], cache[0], cache[1]])
    }

    /// What a phase writes: every pixel, or every second of every second row.
    fn outputs(&self, phase: usize) -> Boxes<4> {
        let (a, size) = (&self.args, |n: i32| n as usize);
        let factor = if a.phases == 4 { 2 } else { 1 };
        let (pixel, line) = (size(a.y_pitch), factor * size(a.out_w) * size(a.y_pitch));
        let frames = size(a.frame_start) + (size(a.out_frames) - 1) * size(a.frame_step) + 1;
        Boxes {
            at: self.y.plus((phase / 2 * line + phase % 2 * pixel) * self.dtype.bytes()),
            dtype: self.dtype,
            dims: [size(a.c_out), size(a.out_w), size(a.out_h), frames],
            strides: [1, factor * pixel, factor * line, factor * size(a.out_h) * line],
            size: [HALO_DEPTH as u32, HALO_PLANE as u32, HALO_ROWS, 1],
            step: [1; 2],
        }
    }
}

#[cfg(test)]
mod tests;
