//! Attention: a fused kernel where one fits the head; otherwise the scores of a chunk of queries, their softmax, and
//! its product with the values.

use reseed_ops::{DType, Result, Shape, Tensor};

use super::CudaOps;
use super::attention_512;
use super::convolution::Convolution;
use super::memory::ptr;
use super::window_attention;
use crate::device_memory::ArenaBuffer;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{ConvArgs, int};
use crate::stream::Stream;

/// Queries whose scores are in memory at a time.
const QUERIES: usize = 2048;

/// Values between rows of scores; kernels read 64 at a time.
fn pitch(keys: usize) -> usize {
    keys.next_multiple_of(64)
}

pub fn run(cuda: &CudaOps, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
    let (tokens, width) = (qkv.rows(), qkv.channels() / 3);
    assert!(qkv.channels().is_multiple_of(3 * heads), "attention: {qkv:?} in {heads} heads");
    assert_eq!(lengths.iter().sum::<usize>(), tokens, "attention: lengths of {qkv:?}");
    assert_eq!(qkv.dtype(), cuda.dtype, "attention: input {qkv:?}");
    if window_attention::fits(width / heads) {
        return window_attention::run(cuda, qkv, heads, lengths);
    }
    let out = cuda.empty("attention", Shape::from([tokens, width]), qkv.dtype())?;
    if heads == 1 && attention_512::fits(qkv.dtype(), cuda.driver.kernels.hopper, width) {
        attention_512::run(cuda, qkv, &out, lengths)?;
        return Ok(out);
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let scratch = Scratch::new(cuda, qkv.dtype(), longest, width / heads)?;
    let value = qkv.dtype().bytes();
    let mut start = 0;
    for &keys in lengths {
        for head in 0..heads {
            let d = width / heads;
            let part = |which: usize| ptr(qkv).plus(((start * 3 + which) * width + head * d) * value);
            let out = ptr(&out).plus((start * width + head * d) * value);
            Head { cuda, dtype: qkv.dtype(), keys, d, width, q: part(0), k: part(1), v: part(2), out }.run(&scratch)?;
        }
        start += keys;
    }
    Ok(out)
}

struct Scratch {
    /// `[queries][pitch]` of f32, or `[queries][d]` if that is more.
    scores: ArenaBuffer,
    /// `[queries][pitch]`: exponentials of the scores.
    weights: ArenaBuffer,
    /// `[queries]` of f32: their sums.
    total: ArenaBuffer,
    /// `[d][pitch]`: the transposed values.
    values: ArenaBuffer,
    /// Zeros of f32, the bias of the products.
    bias: ArenaBuffer,
}

/// Numbers of values in the scratch.
struct Sizes {
    rows: usize,
    pitch: usize,
    scores: usize,
    bias: usize,
}

impl Sizes {
    fn new(longest: usize, d: usize) -> Sizes {
        let (rows, pitch) = (longest.min(QUERIES), pitch(longest));
        Sizes { rows, pitch, scores: rows * pitch.max(d), bias: longest.max(d) }
    }
}

/// Bytes of scratch that a head needs.
pub fn workspace(dtype: DType, longest: usize, d: usize) -> usize {
    if window_attention::fits(d) {
        return 0;
    }
    let Sizes { rows, pitch, scores, bias } = Sizes::new(longest, d);
    let half = dtype.bytes();
    scores * 4 + rows * pitch * half + rows * 4 + d * pitch * half + bias * 4
}

impl Scratch {
    fn new(cuda: &CudaOps, dtype: DType, longest: usize, d: usize) -> Result<Scratch> {
        let Sizes { rows, pitch, scores, bias } = Sizes::new(longest, d);
        let buffer = |count, dtype| cuda.scratch("attention", count, dtype);
        let scratch = Scratch {
            scores: buffer(scores, DType::F32)?,
            weights: buffer(rows * pitch, dtype)?,
            total: buffer(rows, DType::F32)?,
            values: buffer(d * pitch, dtype)?,
            bias: buffer(bias, DType::F32)?,
        };
        // SAFETY: the buffer was allocated with this size.
        unsafe { cuda.driver.clear(Stream::Compute, scratch.bias.ptr(), bias * size_of::<f32>()) }?;
        Ok(scratch)
    }
}

/// One head of one sequence. Rows of q, k and v are 3 · width apart, rows of out width.
struct Head<'a> {
    cuda: &'a CudaOps,
    dtype: DType,
    keys: usize,
    d: usize,
    width: usize,
    q: Ptr,
    k: Ptr,
    v: Ptr,
    out: Ptr,
}

impl Head<'_> {
    fn run(&self, scratch: &Scratch) -> Result<()> {
        self.transpose_values(scratch)?;
        for first in (0..self.keys).step_by(QUERIES) {
            let rows = QUERIES.min(self.keys - first);
            self.score(scratch, first, rows)?;
            self.softmax(scratch, rows)?;
            self.weigh_values(scratch, first, rows)?;
        }
        Ok(())
    }

    fn transpose_values(&self, scratch: &Scratch) -> Result<()> {
        let (Head { keys, d, width, v, .. }, pitch) = (self, pitch(self.keys));
        let grid = Grid { blocks: [d.div_ceil(32), pitch.div_ceil(32), 1], threads: [32, 8], shared: 0 };
        let name = format!("transpose_{}", self.dtype);
        // SAFETY: arguments follow kernels/attention.cu in order and type; `values` holds d rows of `pitch` values.
        unsafe {
            self.cuda.driver.launch(
                &name,
                grid,
                args![scratch.values.ptr(), *v, int(*keys), int(*d), int(3 * width), int(pitch)],
            )
        }
    }

    /// scores = q kᵀ without rounding to tf32, since the softmax turns an error of a score into a factor.
    fn score(&self, scratch: &Scratch, first: usize, rows: usize) -> Result<()> {
        let pitch_qkv = int(3 * self.width);
        let args = ConvArgs {
            x_pitch: pitch_qkv,
            w_pitch: pitch_qkv,
            y_pitch: int(pitch(self.keys)),
            ..ConvArgs::matrix(rows, self.d, self.keys)
        };
        let q = self.q.plus(first * 3 * self.width * self.dtype.bytes());
        let product = Convolution::product(self.dtype, q, self.k, scratch.bias.ptr(), scratch.scores.ptr(), args);
        // SAFETY: queries and keys are rows of qkv; `scores` holds a chunk of rows of `pitch` values.
        unsafe { product.launch_exact(self.cuda) }
    }

    fn softmax(&self, scratch: &Scratch, rows: usize) -> Result<()> {
        let (name, scale) = (format!("softmax_{}", self.dtype), 1.0 / (self.d as f32).sqrt());
        let Scratch { scores, weights, total, .. } = scratch;
        let (keys, pitch) = (int(self.keys), int(pitch(self.keys)));
        // SAFETY: arguments follow kernels/attention.cu in order and type; all three hold the rows of a chunk.
        unsafe {
            self.cuda.driver.launch(
                &name,
                Grid::new([rows, 1, 1], 256),
                args![weights.ptr(), total.ptr(), scores.ptr(), int(rows), keys, pitch, scale],
            )
        }
    }

    /// out = weights v / total. The sums before the division may exceed the range of f16; they are written to the
    /// memory of the scores in f32.
    fn weigh_values(&self, scratch: &Scratch, first: usize, rows: usize) -> Result<()> {
        let pitch = pitch(self.keys);
        let y = self.out.plus(first * self.width * self.dtype.bytes());
        let args = ConvArgs::matrix(rows, pitch, self.d);
        let Scratch { scores, weights, values, bias, .. } = scratch;
        let product = Convolution::product(self.dtype, weights.ptr(), values.ptr(), bias.ptr(), scores.ptr(), args);
        let name = format!("divide_rows_{}", self.dtype);
        // SAFETY: both factors hold rows of `pitch` values, zero after the keys; `y` is rows of the result. The
        // arguments of the division follow kernels/attention.cu in order and type.
        unsafe {
            product.launch(self.cuda)?;
            self.cuda.driver.launch(
                &name,
                Grid::new([rows, 1, 1], 128),
                args![y, scratch.scores.ptr(), scratch.total.ptr(), int(rows), int(self.d), int(self.width)],
            )
        }
    }
}
