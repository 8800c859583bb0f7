//! The ops of a transformer: norms and modulation, gates, activations, rotary queries and keys, rows.

use std::sync::Arc;

use reseed_ops::{Norm, Packed, Qkv, Result, Rotary, RotaryData, Rows, Shape, Tensor, Vector};

use super::CudaOps;
use super::group_norm;
use super::memory::ptr;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::store::Memory;

/// Warps of a block, each of which has a row or a head to itself.
const WARPS: usize = 8;
/// Widest head of `qk_norm_rope`.
const WIDEST: usize = 128;

/// A warp for every row.
fn rows_grid(rows: usize) -> Grid {
    Grid::new([rows.div_ceil(WARPS), 1, 1], 32 * WARPS)
}

/// Turns, then places.
struct Turned {
    turns: Memory,
    places: Memory,
}

/// Memory for numbers of which there may be none.
fn keep<T: bytemuck::Pod>(cuda: &CudaOps, values: &[T]) -> Result<Memory> {
    if values.is_empty() { cuda.keep(&[T::zeroed()]) } else { cuda.keep(values) }
}

pub fn vector(cuda: &CudaOps, len: usize, values: &[f32]) -> Result<Vector> {
    assert_eq!(values.len(), len, "numbers of a vector");
    Ok(Vector { len, packed: Arc::new(keep(cuda, values)?) })
}

pub fn rows(cuda: &CudaOps, per: usize, rows: &[u32]) -> Result<Rows> {
    Ok(Rows::new(per, rows, Arc::new(keep(cuda, rows)?)))
}

pub fn rotary(cuda: &CudaOps, data: &RotaryData) -> Result<Rotary> {
    data.check();
    let turned = Turned { turns: keep(cuda, &data.turns)?, places: keep(cuda, &data.places)? };
    Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed: Arc::new(turned) })
}

fn kept(cuda: &CudaOps, packed: &Packed) -> Ptr {
    cuda.unpack::<Memory>(packed).ptr()
}

pub fn rms_norm_modulate(cuda: &CudaOps, x: &Tensor, norm: &Norm) -> Result<Tensor> {
    assert_eq!(x.channels(), norm.channels, "rms_norm_modulate: input {x:?}");
    let y = cuda.room("rms_norm_modulate", x.shape(), x.dtype())?;
    let (gain, shift) = group_norm::gain_and_shift(cuda, norm);
    let (rows, channels, grid) = (long(x.rows()), int(norm.channels), rows_grid(x.rows()));
    let name = format!("rms_norm_modulate_{}", x.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; y has the shape of x.
    unsafe { cuda.driver.launch(&name, grid, args![ptr(&y), ptr(x), gain, shift, rows, channels, norm.eps]) }?;
    Ok(y)
}

pub fn gated_add(cuda: &CudaOps, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
    assert_eq!((x.shape(), x.dtype(), x.channels()), (h.shape(), h.dtype(), gate.len), "gated_add: {h:?} to {x:?}");
    let x = cuda.writable("gated_add", x)?;
    let (name, gates) = (format!("gated_add_{}", x.dtype()), kept(cuda, &gate.packed));
    let (rows, channels) = (long(x.rows()), int(gate.len));
    // SAFETY: arguments follow kernels/dit.cu in order and type; shapes were checked above.
    unsafe { cuda.driver.launch(&name, rows_grid(x.rows()), args![ptr(&x), ptr(h), gates, rows, channels]) }?;
    Ok(x)
}

pub fn swiglu(cuda: &CudaOps, x: &Tensor) -> Result<Tensor> {
    assert!(x.channels().is_multiple_of(2), "swiglu: {x:?} has no halves");
    let width = x.channels() / 2;
    let y = cuda.room("swiglu", Shape::from([x.rows(), width]), x.dtype())?;
    let name = format!("swiglu_{}", x.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; y has half the columns of x.
    unsafe { cuda.driver.launch(&name, rows_grid(y.rows()), args![ptr(&y), ptr(x), long(y.rows()), int(width)]) }?;
    Ok(y)
}

pub fn gelu(cuda: &CudaOps, x: Tensor) -> Result<Tensor> {
    let x = cuda.writable("gelu", x)?;
    let (name, rows, channels) = (format!("gelu_{}", x.dtype()), long(x.rows()), int(x.channels()));
    // SAFETY: arguments follow kernels/dit.cu in order and type.
    unsafe { cuda.driver.launch(&name, rows_grid(x.rows()), args![ptr(&x), rows, channels]) }?;
    Ok(x)
}

pub fn axpby(cuda: &CudaOps, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
    assert_eq!((x.shape(), x.dtype()), (y.shape(), y.dtype()), "axpby");
    let y = cuda.writable("axpby", y)?;
    let (name, rows, channels) = (format!("axpby_{}", y.dtype()), long(y.rows()), int(y.channels()));
    // SAFETY: arguments follow kernels/dit.cu in order and type; shapes were checked above.
    unsafe { cuda.driver.launch(&name, rows_grid(y.rows()), args![ptr(&y), ptr(x), a, b, rows, channels]) }?;
    Ok(y)
}

pub fn gather_rows(cuda: &CudaOps, x: &Tensor, rows: &Rows) -> Result<Tensor> {
    assert!(rows.end <= x.rows(), "gather_rows: row {} of {x:?}", rows.end);
    let y = cuda.room("gather_rows", Shape::from([rows.count, x.channels()]), x.dtype())?;
    let (name, taken) = (format!("gather_rows_{}", x.dtype()), kept(cuda, &rows.packed));
    let (count, per, channels) = (long(rows.count), int(rows.per), int(x.channels()));
    // SAFETY: arguments follow kernels/dit.cu in order and type; no row lies beyond x.
    unsafe { cuda.driver.launch(&name, rows_grid(rows.count), args![ptr(&y), ptr(x), taken, count, per, channels]) }?;
    Ok(y)
}

pub fn qk_norm_rope(cuda: &CudaOps, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
    streams.iter().for_each(Qkv::check);
    let [a, b] = streams;
    let (width, d) = (a.qkv.channels(), a.q_gain.len);
    assert_eq!((width, d), (b.qkv.channels(), b.q_gain.len), "qk_norm_rope: the two streams");
    assert_eq!(a.qkv.dtype(), b.qkv.dtype(), "qk_norm_rope: the two streams");
    assert!(rows.end <= a.qkv.rows() + b.qkv.rows(), "qk_norm_rope: row {} of the streams", rows.end);
    assert_eq!((rows.count, rows.per), (rotary.count, 1), "qk_norm_rope: rows and places");
    assert!(d <= WIDEST, "qk_norm_rope: heads of {d} channels, of which {WIDEST} fit");
    assert!(6 * rotary.frequencies <= d, "qk_norm_rope: {} pairs an axis in {d} channels", rotary.frequencies);
    let y = cuda.room("qk_norm_rope", Shape::from([rows.count, width]), a.qkv.dtype())?;
    let heads = width / 3 / d;
    let [aq, ak, bq, bk] = [a.q_gain, a.k_gain, b.q_gain, b.k_gain].map(|gain| kept(cuda, &gain.packed));
    let Turned { turns, places } = cuda.unpack(&rotary.packed);
    let (order, count, first_rows) = (kept(cuda, &rows.packed), long(rows.count), long(a.qkv.rows()));
    let (first, second, turns, places) = (ptr(a.qkv), ptr(b.qkv), turns.ptr(), places.ptr());
    let (heads, d, frequencies) = (int(heads), int(d), int(rotary.frequencies));
    let name = format!("qk_norm_rope_{}", y.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; rows and places were checked when they were made.
    unsafe {
        cuda.driver.launch(
            &name,
            rows_grid(rows.count),
            args![
                ptr(&y),
                first,
                second,
                first_rows,
                aq,
                ak,
                bq,
                bk,
                order,
                turns,
                places,
                count,
                heads,
                d,
                frequencies,
                eps
            ],
        )
    }?;
    Ok(y)
}
