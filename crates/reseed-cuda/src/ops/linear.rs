//! Linear layers: a convolution of one tap over a plane that is one row high, and the kernel that Hopper has for it.

use reseed_ops::{Conv, ConvData, ConvSpec, DType, Epilogue, Linear, Packed, Past, Result, Shape, Tensor, Thw};

use super::convolve::Convolution;
use super::{CudaOps, conv};
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::tensor_map::Boxes;

/// Rows of x and of w that a block of `linear` copies at a time, and channels of them.
const ROWS: u32 = 128;
const DEPTH: u32 = 64;
/// Rows and columns that one of its warps writes at a time.
const WRITTEN: [u32; 2] = [64, 16];
/// Rows and columns of what a pair of its blocks makes.
const TILE: usize = 256;
const SHARED: usize = 226 << 10;

fn spec(d_in: usize, d_out: usize) -> ConvSpec {
    ConvSpec::same(d_in, d_out, Thw::new(1, 1, 1))
}

pub fn pack(cuda: &CudaOps, d_in: usize, d_out: usize, data: &ConvData) -> Result<Packed> {
    conv::pack(cuda, &spec(d_in, d_out), data)
}

pub fn run(cuda: &CudaOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
    let row = |channels| Shape::clip(Thw::new(1, 1, x.rows()), channels);
    let mut dims = x.shape().dims().to_vec();
    *dims.last_mut().expect("a tensor has dimensions") = linear.d_out;
    let conv = Conv { spec: spec(linear.d_in, linear.d_out), packed: linear.packed.clone() };
    let epilogue = Epilogue { residual: residual.map(|r| r.reshape(row(linear.d_out))), groups: None };
    let x = x.clone().reshape(row(linear.d_in));
    Ok(conv::run(cuda, Past::Start, &x, &conv, epilogue)?.tensor.reshape(&dims[..]))
}

impl Convolution {
    /// Whether the kernel for matrix products computes this.
    pub fn is_matrix(&self) -> bool {
        let a = &self.args;
        let half = self.dtype != DType::F32 && self.out == self.dtype;
        let point = (a.taps_t, a.taps_h, a.taps_w, a.out_frames, a.out_h, a.phases) == (1, 1, 1, 1, 1, 1);
        // The copying unit wants rows that start on 16 bytes.
        let even = [a.c_in, a.x_pitch, a.w_pitch, a.c_out].iter().all(|n| n % 8 == 0) && a.y_pitch == a.c_out;
        let aligned = [self.x, self.w, self.y].iter().all(|p| p.0.is_multiple_of(16));
        half && point && even && aligned && a.in_w == a.out_w && a.c_out as usize >= TILE
    }

    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_linear(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { dtype, x, w, y, bias, residual, args: a, .. } = *self;
        let [m, n, k] = [a.out_w, a.c_out, a.c_in];
        let map = |at, pitch: i32, rows: i32, columns: i32, area| {
            cuda.driver.tensor_map(&Boxes::new(at, dtype, pitch as usize, [columns as usize, rows as usize], area))
        };
        let map_x = map(x, a.x_pitch, m, k, [DEPTH, ROWS])?;
        let map_w = map(w, a.w_pitch, n, k, [DEPTH, ROWS])?;
        let map_y = map(y, a.y_pitch, m, n, WRITTEN)?;
        assert!(residual == Ptr::NULL || residual == y, "linear: what is added lies where the result goes");
        let tiles = (m as usize).div_ceil(TILE) * (n as usize).div_ceil(TILE);
        let blocks = 2 * tiles.min(cuda.driver.multiprocessors / 2);
        let grid = Grid { blocks: [blocks, 1, 1], threads: [384, 1], shared: SHARED };
        let (name, add) = (format!("linear_{dtype}"), i32::from(residual == y));
        // SAFETY: arguments follow kernels/linear.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![map_x, map_w, map_y, y, bias, add, m, n, k]) }
    }
}
