//! Linear layers with products of 8-bit integers: rows of the input are rounded to bytes, then multiplied.

use std::sync::Arc;

use reseed_ops::int8::as_bytes;
use reseed_ops::{
    DType, Int8Rows, Linear, LinearData, LinearSpec, MathMode, MlpActivation, Packed, Result, Shape, Tensor,
};

use super::CudaOps;
use super::layers::{Layer, Matrix};
use super::linear::{SHARED, Tiles, output};
use super::memory::ptr;
use crate::driver::{DeviceInfo, Ptr};
use crate::launch::{Grid, args};
use crate::params::int;
use crate::stream::Stream;
use crate::tensor_map::MapType;

/// Columns that a warp of `quantize_rows` rounds at a time, how often, and most warps of a block.
const GROUP: usize = 256;
const GROUPS: usize = 4;
const WARPS: usize = 32;
/// Columns of the result that `linear_int8` computes at a time: scales and biases are padded to whole tiles.
const COLUMNS: usize = 256;
/// Rows and columns of a block of `gemm_int8`, and bytes of a row of one of its stages.
const TILE: usize = 128;
const PITCH: usize = 80;

/// Whether a device multiplies in 8 bits in a layer. Rows of bytes must start on 16 bytes.
pub fn supports(dtype: DType, math: MathMode, spec: &LinearSpec) -> bool {
    let fits = spec.d_in.is_multiple_of(16) && spec.d_in <= GROUP * GROUPS * WARPS && spec.d_out.is_multiple_of(8);
    spec.int8 && math.is_fast() && dtype != DType::F32 && fits && as_bytes(spec.quant)
}

/// Bytes of the rounded input of a layer and its scales.
pub fn workspace(spec: &LinearSpec, rows: usize) -> usize {
    rows * (spec.d_in + DType::F32.bytes())
}

pub fn pack(cuda: &CudaOps, spec: &LinearSpec, data: LinearData) -> Result<Packed> {
    let LinearData { weight, bias } = data;
    let Int8Rows { bytes, scales } = Int8Rows::matrix(weight, spec.d_in);
    assert_eq!((bytes.len(), bias.len()), (spec.d_in * spec.d_out, spec.d_out), "{spec:?}");
    let mut factors: Vec<[f32; 2]> = scales.into_iter().zip(bias).map(|(scale, bias)| [scale, bias]).collect();
    factors.resize(spec.d_out.next_multiple_of(COLUMNS), [0.0; 2]);
    Ok(Arc::new(Layer {
        weight: Arc::new(Matrix::Resident(cuda.upload_weights(&bytes)?)),
        bias: Arc::new(cuda.upload_weights(&factors)?),
        rounded: None,
    }))
}

/// Rows that an activation makes of `x`, if there is one, are rounded while they are computed.
pub fn run(
    cuda: &CudaOps,
    x: &Tensor,
    act: Option<MlpActivation>,
    linear: &Linear,
    residual: Option<Tensor>,
) -> Result<Tensor> {
    let LinearSpec { d_in, d_out, .. } = linear.spec;
    let width = act.map_or(1, MlpActivation::inputs) * d_in;
    assert_eq!((x.channels(), x.dtype()), (width, cuda.dtype), "linear: input {x:?}");
    let (add, rows) = (residual.is_some(), x.rows());
    let y = output(cuda, x, d_out, residual)?;
    let bytes = cuda.buffer(Stream::Compute, "linear", Shape::from([rows, d_in]), rows * d_in)?;
    let scales = cuda.scratch("linear", rows, DType::F32)?;
    // Three groups of a warp are faster than two; four only where a block would have too many warps.
    let warps = d_in.div_ceil(GROUP * (GROUPS - 1)).min(WARPS);
    let kernel = match act {
        None => "quantize_rows",
        Some(MlpActivation::SwiGlu) => "quantize_swiglu",
        Some(MlpActivation::Gelu) => "quantize_gelu",
    };
    let (name, grid) = (format!("{kernel}_{}", cuda.dtype), Grid::new([rows, 1, 1], 32 * warps));
    // SAFETY: arguments follow kernels/quantize_rows.cu in order and type; both buffers hold `rows` rows.
    unsafe { cuda.driver.launch(&name, grid, args![bytes.ptr(), scales.ptr(), ptr(x), int(d_in)]) }?;
    let layer: &Layer = cuda.unpack(&linear.packed);
    let product = Product {
        x: bytes.ptr(),
        w: layer.weight.ptr(),
        scales: scales.ptr(),
        factors: layer.bias.ptr(),
        y: ptr(&y),
        add,
        dims: [rows, d_out, d_in],
    };
    // SAFETY: `pack` has checked the sizes of the layer, `quantize_rows` writes the rows, and `y` holds the result.
    unsafe { product.launch(cuda) }?;
    Ok(y)
}

/// Operands of a product.
struct Product {
    x: Ptr,
    w: Ptr,
    scales: Ptr,
    factors: Ptr,
    y: Ptr,
    add: bool,
    /// Rows of x, rows of w, and bytes of both.
    dims: [usize; 3],
}

impl Product {
    /// # Safety
    /// The pointers hold the operands.
    unsafe fn launch(&self, cuda: &CudaOps) -> Result<()> {
        let Product { x, w, scales, factors, y, add, dims: [m, n, k] } = *self;
        let aligned = [x, w, y].iter().all(|at| at.0.is_multiple_of(16));
        let [rows, columns, depth] = [m, n, k].map(int);
        // The kernel for Hopper adds nothing to its result: no layer of a transformer's block has a residual.
        if cuda.driver.kernels.hopper && aligned && Tiles::fill(n) && !add {
            let tiles = Tiles { m, n, k, operands: MapType::Bytes, pitches: [k, k, n] };
            let [map_x, map_w, map_y] = tiles.maps(cuda, [x, w, y])?;
            let name = format!("linear_int8_{}", cuda.dtype);
            let args = args![map_x, map_w, map_y, scales, factors, rows, columns, depth];
            // SAFETY: arguments follow kernels/linear_int8.cu in order and type; the caller's promise.
            return unsafe { cuda.driver.launch(&name, tiles.grid(cuda, SHARED), args) };
        }
        let shared = cuda.driver.kernels.gemm_stages() * 2 * TILE * PITCH;
        let grid = Grid { blocks: [m.div_ceil(TILE), n.div_ceil(TILE), 1], threads: [256, 1], shared };
        let (name, add) = (format!("gemm_int8_{}", cuda.dtype), i32::from(add));
        let args = args![y, x, w, scales, factors, add, rows, columns, depth];
        // SAFETY: arguments follow kernels/gemm_int8.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args) }
    }
}

impl DeviceInfo {
    /// How a GPU computes the linear layers of a transformer's blocks in a mode.
    pub fn linear_layers(math: MathMode) -> &'static str {
        match math {
            MathMode::Fast | MathMode::Int8 => "8-bit products",
            MathMode::Exact | MathMode::Reference => "16-bit products",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_ops::Quant;

    #[test]
    fn layers_of_blocks_in_fast_mode_are_multiplied_in_8_bits() {
        let layer = LinearSpec { int8: true, ..LinearSpec::floats(2560, 7680) };
        let fast = |spec: LinearSpec| supports(DType::Bf16, MathMode::Fast, &spec);
        assert!(fast(layer) && supports(DType::F16, MathMode::Fast, &layer));
        assert!(!supports(DType::Bf16, MathMode::Exact, &layer) && !supports(DType::F32, MathMode::Fast, &layer));
        assert!(!fast(LinearSpec { int8: false, ..layer }) && !fast(LinearSpec { d_in: 132, ..layer }));
        assert!(!fast(LinearSpec { d_out: 132, ..layer }) && !fast(LinearSpec { d_in: 1 << 16, ..layer }));
        assert!(fast(LinearSpec { quant: Some(Quant::Q8_0), ..layer }));
        assert!(!fast(LinearSpec { quant: Some(Quant::Q4K), ..layer }));
        assert_eq!(workspace(&layer, 10), 10 * 2564);
    }
}
