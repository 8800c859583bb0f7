//! Linear layers: a convolution of one tap over a plane of one row, with its own kernel on Hopper.

use std::sync::Arc;

use cudarc::driver::sys::CUtensorMap;
use reseed_ops::{DType, Linear, LinearData, LinearSpec, Numbers, Packed, Result, Shape, Tensor};

use super::convolution::Convolution;
use super::layers::{Layer, Matrix};
use super::memory::ptr;
use super::weights::{Order, taps_first};
use super::{CudaOps, dequantize, tuned};
use crate::device_memory::ArenaBuffer;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::ConvArgs;
use crate::tensor_map::{Boxes, MapType};

/// Rows of x and w that a block of `linear` copies at a time, and bytes of them.
const ROWS: u32 = 128;
const DEPTH: usize = 128;
/// Columns and rows that a warp writes at a time.
const WRITTEN: [u32; 2] = [64, 16];
/// Rows and columns of the tile of a cluster.
const TILE: usize = 256;
pub const SHARED: usize = 226 << 10;

/// A product in tiles of `linear` and `linear_int8`.
pub struct Tiles {
    /// Rows of x.
    pub m: usize,
    /// Rows of w.
    pub n: usize,
    /// Columns of both.
    pub k: usize,
    /// Type of x and w.
    pub operands: MapType,
    /// Values between rows of x, w and y.
    pub pitches: [usize; 3],
}

impl Tiles {
    /// Whether so many columns fill a tile.
    pub fn fill(columns: usize) -> bool {
        columns >= TILE
    }

    /// Tensor maps of x, w and y.
    pub fn maps(&self, cuda: &CudaOps, [x, w, y]: [Ptr; 3]) -> Result<[CUtensorMap; 3]> {
        let Tiles { m, n, k, operands, pitches } = *self;
        let map = |at, dtype, pitch, dims, area| cuda.driver.tensor_map(&Boxes::new(at, dtype, pitch, dims, area));
        let area = [(DEPTH / operands.bytes()) as u32, ROWS];
        Ok([
            map(x, operands, pitches[0], [k, m], area)?,
            map(w, operands, pitches[1], [k, n], area)?,
            map(y, cuda.dtype.into(), pitches[2], [n, m], WRITTEN)?,
        ])
    }

    /// A cluster of two blocks per tile, as many as fit.
    pub fn grid(&self, cuda: &CudaOps, shared: usize) -> Grid {
        let tiles = self.m.div_ceil(TILE) * self.n.div_ceil(TILE);
        let blocks = 2 * tiles.min(cuda.driver.multiprocessors / 2);
        Grid { blocks: [blocks, 1, 1], threads: [384, 1], shared }
    }
}

pub fn pack(cuda: &CudaOps, spec: &LinearSpec, data: LinearData) -> Result<Packed> {
    let LinearSpec { d_in, d_out, quant, .. } = *spec;
    let LinearData { weight, bias } = data;
    assert_eq!((weight.quant(), bias.len()), (quant, d_out), "{spec:?}");
    let weight = match weight {
        Numbers::Floats(weight) => cuda.upload_weights(
            taps_first(&weight, Order { phases: 1, c_out: d_out, c_in: d_in, taps: 1 }, cuda.dtype).bytes(),
        )?,
        Numbers::Quant(quant, bytes) => {
            assert_eq!(bytes.len(), quant.bytes(d_in * d_out), "{spec:?}");
            cuda.upload_weights(&bytes)?
        }
    };
    let biased = bias.iter().any(|&b| b != 0.0);
    let rounded = || {
        cuda.upload_weights(taps_first(&bias, Order { phases: 1, c_out: d_out, c_in: 1, taps: 1 }, cuda.dtype).bytes())
    };
    let rounded = biased.then(rounded).transpose()?.map(Arc::new);
    Ok(Arc::new(Layer {
        weight: Arc::new(Matrix::Resident(weight)),
        bias: Arc::new(cuda.upload_weights(&bias)?),
        rounded,
    }))
}

pub fn run(cuda: &CudaOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
    // SAFETY: `run_by` checks the operands of the product.
    run_by(cuda, x, linear, residual, |product, rounded| unsafe { tuned::launch(cuda, product, rounded) })
}

/// The result of a layer over `x`: undefined, or the residual.
pub fn output(cuda: &CudaOps, x: &Tensor, d_out: usize, residual: Option<Tensor>) -> Result<Tensor> {
    let mut dims = x.shape().dims().to_vec();
    *dims.last_mut().expect("a tensor has dimensions") = d_out;
    let shape = Shape::from(&dims[..]);
    match residual {
        Some(residual) => {
            assert_eq!((residual.count(), residual.dtype()), (shape.count(), x.dtype()), "linear: residual");
            Ok(cuda.writable("linear", residual)?.reshape(shape))
        }
        None => cuda.empty("linear", shape, x.dtype()),
    }
}

/// A linear layer by `launch`, which gets the product with checked operands, and the bias in their type.
pub fn run_by(
    cuda: &CudaOps,
    x: &Tensor,
    linear: &Linear,
    residual: Option<Tensor>,
    launch: impl FnOnce(&Convolution, Option<Ptr>) -> Result<()>,
) -> Result<Tensor> {
    let LinearSpec { d_in, d_out, quant, .. } = linear.spec;
    assert_eq!((x.channels(), x.dtype()), (d_in, cuda.dtype), "linear: input {x:?}");
    let add = residual.is_some();
    let y = output(cuda, x, d_out, residual)?;
    let layer: &Layer = cuda.unpack(&linear.packed);
    let stored = layer.weight.ptr();
    // SAFETY: `pack` has checked the number of values.
    let weight = quant.map(|quant| unsafe { dequantize::run(cuda, quant, stored, d_in * d_out) }).transpose()?;
    let product = Convolution {
        out: y.dtype(),
        bias: layer.bias.ptr(),
        residual: if add { ptr(&y) } else { Ptr::NULL },
        ..Convolution::product(
            x.dtype(),
            ptr(x),
            weight.as_ref().map_or(stored, ArenaBuffer::ptr),
            Ptr::NULL,
            ptr(&y),
            ConvArgs::matrix(x.rows(), d_in, d_out),
        )
    };
    launch(&product, layer.rounded.as_ref().map(|rounded| rounded.ptr()))?;
    Ok(y)
}

impl Convolution {
    /// Whether the kernel `linear` computes this.
    pub fn is_matrix(&self) -> bool {
        let a = &self.args;
        let half = self.dtype != DType::F32 && self.out == self.dtype;
        let point = (a.taps_t, a.taps_h, a.taps_w, a.out_frames, a.out_h, a.phases) == (1, 1, 1, 1, 1, 1);
        // Tensor maps need rows that start on 16 bytes.
        let even = [a.c_in, a.x_pitch, a.w_pitch, a.c_out].iter().all(|n| n % 8 == 0) && a.y_pitch == a.c_out;
        let aligned = [self.x, self.w, self.y].iter().all(|p| p.0.is_multiple_of(16));
        half && point && even && aligned && a.in_w == a.out_w && Tiles::fill(a.c_out as usize)
    }

    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_linear(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { dtype, x, w, y, bias, residual, args: a, .. } = *self;
        let [m, n, k] = [a.out_w, a.c_out, a.c_in];
        let pitches = [a.x_pitch, a.w_pitch, a.y_pitch].map(|pitch| pitch as usize);
        let tiles = Tiles { m: m as usize, n: n as usize, k: k as usize, operands: dtype.into(), pitches };
        let [map_x, map_w, map_y] = tiles.maps(cuda, [x, w, y])?;
        assert!(residual == Ptr::NULL || residual == y, "linear: the residual must be in y");
        let grid = tiles.grid(cuda, SHARED);
        let (name, add) = (format!("linear_{dtype}"), i32::from(residual == y));
        // SAFETY: arguments follow kernels/linear.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![map_x, map_w, map_y, y, bias, add, m, n, k]) }
    }
}
