//! Attention: one kernel where there is one for the head; elsewhere scores of a chunk of queries against all keys, their
//! softmax, and the mean of the values under it.

use reseed_ops::{DType, Result, Shape, Tensor};

use super::CudaOps;
use super::convolve::Convolution;
use super::memory::ptr;
use super::window_attention;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{ConvArgs, int};
use crate::store::ArenaBuffer;
use crate::tensor_map::Boxes;

/// Queries whose scores exist at a time.
const QUERIES: usize = 2048;

/// Values between rows of scores: kernels read 64 at a time.
fn pitch(keys: usize) -> usize {
    keys.next_multiple_of(64)
}

pub fn run(cuda: &CudaOps, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
    let (tokens, width) = (qkv.rows(), qkv.channels() / 3);
    assert!(qkv.channels().is_multiple_of(3 * heads), "attention: {qkv:?} in {heads} heads");
    assert_eq!(lengths.iter().sum::<usize>(), tokens, "attention: lengths of {qkv:?}");
    assert_eq!(qkv.dtype(), cuda.dtype, "attention: input {qkv:?}");
    if window_attention::takes(width / heads) {
        return window_attention::run(cuda, qkv, heads, lengths);
    }
    let out = cuda.room("attention", Shape::from([tokens, width]), qkv.dtype())?;
    let fused = Fused { cuda, qkv, out: &out };
    if fused.takes(width / heads, heads) {
        for run in lengths.chunk_by(|a, b| a == b).scan(0, |start, run| {
            let first = *start;
            *start += run[0] * run.len();
            Some((first, run[0], run.len()))
        }) {
            fused.run(run)?;
        }
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

/// Queries of a block of `attention_512`, keys and values that it copies at a time.
const FUSED_QUERIES: usize = 64;
const FUSED_KEYS: u32 = 64;
const FUSED_VALUES: u32 = 32;
/// Channels of its one head, and of a box of them.
const FUSED_WIDTH: usize = 512;
const FUSED_SPAN: u32 = 64;
const FUSED_SHARED: usize = 226 << 10;

/// Whether `attention_512` takes heads of this width.
pub fn fuses(dtype: DType, hopper: bool, width: usize) -> bool {
    hopper && dtype != DType::F32 && width == FUSED_WIDTH
}

/// The kernel that keeps scores in registers.
struct Fused<'a> {
    cuda: &'a CudaOps,
    qkv: &'a Tensor,
    out: &'a Tensor,
}

impl Fused<'_> {
    fn takes(&self, d: usize, heads: usize) -> bool {
        heads == 1 && fuses(self.qkv.dtype(), self.cuda.driver.kernels.halo, d)
    }

    /// `count` sequences of `tokens` tokens, the first of which is token `start`.
    fn run(&self, (start, tokens, count): (usize, usize, usize)) -> Result<()> {
        if tokens == 0 {
            return Ok(());
        }
        let (driver, dtype) = (&self.cuda.driver, self.qkv.dtype());
        let map = |part: usize, rows: u32| {
            let at = ptr(self.qkv).plus((start * 3 + part) * FUSED_WIDTH * dtype.bytes());
            let dims = [FUSED_WIDTH, tokens, count];
            driver.tensor_map(&Boxes::new(at, dtype, 3 * FUSED_WIDTH, dims, [FUSED_SPAN, rows, 1]))
        };
        let (q, k, v) = (map(0, FUSED_QUERIES as u32)?, map(1, FUSED_KEYS)?, map(2, FUSED_VALUES)?);
        let out = ptr(self.out).plus(start * FUSED_WIDTH * dtype.bytes());
        let blocks = [tokens.div_ceil(FUSED_QUERIES).next_multiple_of(2), count, 1];
        let grid = Grid { blocks, threads: [384, 1], shared: FUSED_SHARED };
        let (name, scale) = (format!("attention_512_{dtype}"), 1.0 / (FUSED_WIDTH as f32).sqrt());
        // SAFETY: arguments follow kernels/attention.cu in order and type; the maps and `out` hold `count` sequences.
        unsafe { driver.launch(&name, grid, args![q, k, v, out, int(tokens), scale]) }
    }
}

struct Scratch {
    /// `[queries][pitch]` of f32, or `[queries][d]` if that is more.
    scores: ArenaBuffer,
    /// `[queries][pitch]`: what the scores become, up to their sum.
    weights: ArenaBuffer,
    /// `[queries]` of f32: that sum.
    total: ArenaBuffer,
    /// `[d][pitch]`: the values, turned.
    values: ArenaBuffer,
    /// Zeros of f32, for kernels that would add a bias.
    bias: ArenaBuffer,
}

/// Values of each part of the scratch.
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

/// Bytes that a head takes beside its operands.
pub fn workspace(dtype: DType, longest: usize, d: usize) -> usize {
    if window_attention::takes(d) {
        return 0;
    }
    let Sizes { rows, pitch, scores, bias } = Sizes::new(longest, d);
    let half = dtype.bytes();
    scores * 4 + rows * pitch * half + rows * 4 + d * pitch * half + bias * 4
}

impl Scratch {
    fn new(cuda: &CudaOps, dtype: DType, longest: usize, d: usize) -> Result<Scratch> {
        let Sizes { rows, pitch, scores, bias } = Sizes::new(longest, d);
        let take = |count, dtype| cuda.scratch("attention", count, dtype);
        let scratch = Scratch {
            scores: take(scores, DType::F32)?,
            weights: take(rows * pitch, dtype)?,
            total: take(rows, DType::F32)?,
            values: take(d * pitch, dtype)?,
            bias: take(bias, DType::F32)?,
        };
        // SAFETY: that many bytes were just taken.
        unsafe { cuda.driver.clear(scratch.bias.ptr(), bias * size_of::<f32>()) }?;
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
        self.turn_values(scratch)?;
        for first in (0..self.keys).step_by(QUERIES) {
            let rows = QUERIES.min(self.keys - first);
            self.score(scratch, first, rows)?;
            self.soften(scratch, rows)?;
            self.mix(scratch, first, rows)?;
        }
        Ok(())
    }

    fn turn_values(&self, scratch: &Scratch) -> Result<()> {
        let (Head { keys, d, width, v, .. }, pitch) = (self, pitch(self.keys));
        let grid = Grid { blocks: [d.div_ceil(32), pitch.div_ceil(32), 1], threads: [32, 8], shared: 0 };
        let name = format!("transpose_{}", self.dtype);
        // SAFETY: arguments follow kernels/small.cu in order and type; `values` holds d rows of the pitch.
        unsafe {
            self.cuda.driver.launch(
                &name,
                grid,
                args![scratch.values.ptr(), *v, int(*keys), int(*d), int(3 * width), int(pitch)],
            )
        }
    }

    /// scores = q kᵀ, as exact as may be: the softmax turns what is added to a score into a factor.
    fn score(&self, scratch: &Scratch, first: usize, rows: usize) -> Result<()> {
        let between = int(3 * self.width);
        let args = ConvArgs {
            x_pitch: between,
            w_pitch: between,
            y_pitch: int(pitch(self.keys)),
            ..ConvArgs::matrix(rows, self.d, self.keys)
        };
        let q = self.q.plus(first * 3 * self.width * self.dtype.bytes());
        let product = Convolution::product(self.dtype, q, self.k, scratch.bias.ptr(), scratch.scores.ptr(), args);
        // SAFETY: queries and keys are rows of the operand; `scores` holds a chunk of rows of the pitch.
        unsafe { product.launch_exact(self.cuda) }
    }

    fn soften(&self, scratch: &Scratch, rows: usize) -> Result<()> {
        let (name, scale) = (format!("softmax_{}", self.dtype), 1.0 / (self.d as f32).sqrt());
        let Scratch { scores, weights, total, .. } = scratch;
        let (keys, pitch) = (int(self.keys), int(pitch(self.keys)));
        // SAFETY: arguments follow kernels/small.cu in order and type; all three hold a chunk of rows.
        unsafe {
            self.cuda.driver.launch(
                &name,
                Grid::new([rows, 1, 1], 256),
                args![weights.ptr(), total.ptr(), scores.ptr(), int(rows), keys, pitch, scale],
            )
        }
    }

    /// out = weights v / total. The undivided sums may leave the range of f16; the scores are done with, and their
    /// memory takes them.
    fn mix(&self, scratch: &Scratch, first: usize, rows: usize) -> Result<()> {
        let pitch = pitch(self.keys);
        let y = self.out.plus(first * self.width * self.dtype.bytes());
        let args = ConvArgs::matrix(rows, pitch, self.d);
        let Scratch { scores, weights, values, bias, .. } = scratch;
        let product = Convolution::product(self.dtype, weights.ptr(), values.ptr(), bias.ptr(), scores.ptr(), args);
        let name = format!("divide_rows_{}", self.dtype);
        // SAFETY: both factors hold rows of the pitch, zero behind the keys; `y` is rows of the result. The arguments of
        // the division follow kernels/small.cu in order and type.
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
