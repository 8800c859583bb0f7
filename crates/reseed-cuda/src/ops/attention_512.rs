//! Launch of `kernels/attention_512.cu`: fused attention for one head of 512 channels on Hopper.

use reseed_ops::{DType, Result, Tensor};

use super::CudaOps;
use super::memory::ptr;
use crate::launch::{Grid, args};
use crate::params::int;
use crate::tensor_map::Boxes;

/// Channels of the head, and of a box.
const WIDTH: usize = 512;
const SPAN: u32 = 64;
/// Queries of a block, and keys and values that it copies at a time.
const QUERIES: usize = 64;
const KEYS: u32 = 64;
const VALUES: u32 = 32;
const SHARED: usize = 226 << 10;

/// Whether the kernel computes heads of this width.
pub fn fits(dtype: DType, hopper: bool, width: usize) -> bool {
    hopper && dtype != DType::F32 && width == WIDTH
}

/// Sequences of equal length run in one launch.
pub fn run(cuda: &CudaOps, qkv: &Tensor, out: &Tensor, lengths: &[usize]) -> Result<()> {
    let mut start = 0;
    for equal in lengths.chunk_by(|a, b| a == b) {
        launch(cuda, qkv, out, (start, equal[0], equal.len()))?;
        start += equal[0] * equal.len();
    }
    Ok(())
}

/// Queues `count` sequences of `tokens` tokens, the first of which starts at token `start`.
fn launch(cuda: &CudaOps, qkv: &Tensor, out: &Tensor, sequences: (usize, usize, usize)) -> Result<()> {
    let (start, tokens, count) = sequences;
    if tokens == 0 {
        return Ok(());
    }
    let dtype = qkv.dtype();
    let map = |part: usize, rows: u32| {
        let at = ptr(qkv).plus((start * 3 + part) * WIDTH * dtype.bytes());
        cuda.driver.tensor_map(&Boxes::new(at, dtype, 3 * WIDTH, [WIDTH, tokens, count], [SPAN, rows, 1]))
    };
    let (q, k, v) = (map(0, QUERIES as u32)?, map(1, KEYS)?, map(2, VALUES)?);
    let out = ptr(out).plus(start * WIDTH * dtype.bytes());
    let blocks = [tokens.div_ceil(QUERIES).next_multiple_of(2), count, 1];
    let grid = Grid { blocks, threads: [384, 1], shared: SHARED };
    let (name, scale) = (format!("attention_512_{dtype}"), 1.0 / (WIDTH as f32).sqrt());
    // SAFETY: arguments follow kernels/attention_512.cu in order and type; the maps and `out` hold `count` sequences.
    unsafe { cuda.driver.launch(&name, grid, args![q, k, v, out, int(tokens), scale]) }
}
