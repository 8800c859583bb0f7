//! The ops of a transformer: norms and modulation, gates, activations, rotary queries and keys, rows, windows.

use std::sync::Arc;

use reseed_ops::{Norm, Packed, Qkv, Result, Rotary, RotaryData, Rows, Shape, Tensor, Vector};

use super::CudaOps;
use super::group_norm;
use super::memory::{ptr, stride_grid};
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};
use crate::store::Memory;

/// Warps of a block, each of which has a row or a head to itself.
const WARPS: usize = 8;
/// Queries of a block of `window_attention`.
const QUERIES: usize = 24;
/// Widest head of `window_attention`.
const WIDEST: usize = 128;

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
    let (rows, channels) = (x.rows(), int(norm.channels));
    let grid = Grid::new([rows.div_ceil(WARPS), 1, 1], 32 * WARPS);
    let name = format!("rms_norm_modulate_{}", x.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; y has the shape of x.
    unsafe { cuda.driver.launch(&name, grid, args![ptr(&y), ptr(x), gain, shift, long(rows), channels, norm.eps]) }?;
    Ok(y)
}

pub fn gated_add(cuda: &CudaOps, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
    assert_eq!((x.shape(), x.dtype(), x.channels()), (h.shape(), h.dtype(), gate.len), "gated_add: {h:?} to {x:?}");
    let x = cuda.writable("gated_add", x)?;
    let (name, gates) = (format!("gated_add_{}", x.dtype()), kept(cuda, &gate.packed));
    let (count, channels) = (long(x.count()), int(gate.len));
    // SAFETY: arguments follow kernels/dit.cu in order and type; shapes were checked above.
    unsafe { cuda.driver.launch(&name, stride_grid(x.count()), args![ptr(&x), ptr(h), gates, count, channels]) }?;
    Ok(x)
}

pub fn swiglu(cuda: &CudaOps, x: &Tensor) -> Result<Tensor> {
    assert!(x.channels().is_multiple_of(2), "swiglu: {x:?} has no halves");
    let width = x.channels() / 2;
    let y = cuda.room("swiglu", Shape::from([x.rows(), width]), x.dtype())?;
    let name = format!("swiglu_{}", x.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; y has half the columns of x.
    unsafe { cuda.driver.launch(&name, stride_grid(y.count()), args![ptr(&y), ptr(x), long(y.count()), int(width)]) }?;
    Ok(y)
}

pub fn gelu(cuda: &CudaOps, x: Tensor) -> Result<Tensor> {
    let x = cuda.writable("gelu", x)?;
    let name = format!("gelu_{}", x.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type.
    unsafe { cuda.driver.launch(&name, stride_grid(x.count()), args![ptr(&x), long(x.count())]) }?;
    Ok(x)
}

pub fn axpby(cuda: &CudaOps, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
    assert_eq!((x.shape(), x.dtype()), (y.shape(), y.dtype()), "axpby");
    let y = cuda.writable("axpby", y)?;
    let name = format!("axpby_{}", y.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; shapes were checked above.
    unsafe { cuda.driver.launch(&name, stride_grid(y.count()), args![ptr(&y), ptr(x), a, b, long(y.count())]) }?;
    Ok(y)
}

pub fn gather_rows(cuda: &CudaOps, x: &Tensor, rows: &Rows) -> Result<Tensor> {
    assert!(rows.end <= x.rows(), "gather_rows: row {} of {x:?}", rows.end);
    let y = cuda.room("gather_rows", Shape::from([rows.count, x.channels()]), x.dtype())?;
    let (name, taken) = (format!("gather_rows_{}", x.dtype()), kept(cuda, &rows.packed));
    let (count, per, channels) = (long(y.count()), int(rows.per), int(x.channels()));
    // SAFETY: arguments follow kernels/dit.cu in order and type; no row lies beyond x.
    unsafe { cuda.driver.launch(&name, stride_grid(y.count()), args![ptr(&y), ptr(x), taken, count, per, channels]) }?;
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
    assert!(6 * rotary.frequencies <= d, "qk_norm_rope: {} pairs an axis in {d} channels", rotary.frequencies);
    let y = cuda.room("qk_norm_rope", Shape::from([rows.count, width]), a.qkv.dtype())?;
    let heads = width / 3 / d;
    let grid = Grid::new([(rows.count * 3 * heads).div_ceil(WARPS), 1, 1], 32 * WARPS);
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
            grid,
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

/// Whether heads of this width have a kernel that takes all sequences at once.
pub fn windowed(d: usize) -> bool {
    d.is_multiple_of(32) && d <= WIDEST
}

/// Attention of every head of every sequence in one launch.
pub fn window_attention(cuda: &CudaOps, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
    let (tokens, width) = (qkv.rows(), qkv.channels() / 3);
    let out = cuda.room("attention", Shape::from([tokens, width]), qkv.dtype())?;
    let ends = lengths.iter().scan(0, |end, &n| {
        *end += int(n);
        Some(*end)
    });
    let starts: Vec<i32> = [0].into_iter().chain(ends).collect();
    let scratch = cuda.scratch("attention", starts.len(), reseed_ops::DType::F32)?;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let grid = Grid::new([longest.div_ceil(QUERIES), heads, lengths.len()], 128);
    let (d, scale) = (width / heads, 1.0 / ((width / heads) as f32).sqrt());
    let name = format!("window_attention_{}", qkv.dtype());
    // SAFETY: arguments follow kernels/dit.cu in order and type; the scratch holds the starts, which end at the last token.
    unsafe {
        cuda.driver.copy_in(scratch.ptr(), bytemuck::cast_slice(&starts))?;
        cuda.driver.launch(&name, grid, args![ptr(&out), ptr(qkv), scratch.ptr(), int(heads), int(d), scale])?;
    }
    Ok(out)
}
