//! Attention within many short sequences, every head of every sequence in one launch.

use reseed_ops::{DType, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::ptr;
use crate::launch::{Grid, args};
use crate::params::int;

/// Most channels of a head; heads of this width run on tensor cores.
const WIDEST: usize = 128;
/// Threads per block.
const THREADS: usize = 128;
/// Queries per block, on tensor cores and elsewhere.
const QUERIES: (usize, usize) = (128, 24);
/// Shared memory of a block on tensor cores: queries, 64 keys and 64 values.
const SHARED: usize = (128 + 64 + 64) * 256;

/// Whether the kernel supports heads of this width.
pub fn fits(d: usize) -> bool {
    d.is_multiple_of(32) && d <= WIDEST
}

/// First token and length of a sequence, and the first query of the block within it.
type Block = [i32; 3];

/// Blocks of `queries` queries. Blocks of long sequences come first, so that no long block runs alone at the end.
fn blocks(lengths: &[usize], queries: usize) -> Vec<Block> {
    let mut first = 0;
    let mut blocks = Vec::new();
    for &length in lengths {
        blocks.extend((0..length).step_by(queries).map(|start| [int(first), int(length), int(start)]));
        first += length;
    }
    blocks.sort_by_key(|&[_, length, _]| std::cmp::Reverse(length));
    blocks
}

pub fn run(cuda: &CudaOps, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
    let (tokens, width, dtype) = (qkv.rows(), qkv.channels() / 3, qkv.dtype());
    let out = cuda.empty("attention", Shape::from([tokens, width]), dtype)?;
    let d = width / heads;
    let wide = d == WIDEST && dtype != DType::F32;
    let blocks = blocks(lengths, if wide { QUERIES.0 } else { QUERIES.1 });
    let table = cuda.scratch("attention", blocks.len() * 3, DType::F32)?;
    let grid = Grid { blocks: [blocks.len(), heads, 1], threads: [THREADS, 1], shared: if wide { SHARED } else { 0 } };
    let (scale, heads) = (std::f32::consts::LOG2_E / (d as f32).sqrt(), int(heads));
    // SAFETY: arguments follow kernels/window_attention.cu in order and type; the table holds the blocks, and no
    // sequence exceeds the tokens.
    unsafe {
        cuda.driver.copy_in(table.ptr(), bytemuck::cast_slice(&blocks))?;
        match wide {
            true => {
                let name = format!("window_attention_128_{dtype}");
                cuda.driver.launch(&name, grid, args![ptr(&out), ptr(qkv), table.ptr(), heads, scale])?;
            }
            false => {
                let name = format!("window_attention_{dtype}");
                cuda.driver.launch(&name, grid, args![ptr(&out), ptr(qkv), table.ptr(), heads, int(d), scale])?;
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_query_once_with_the_longest_first() {
        assert_eq!(blocks(&[5, 0, 12, 3], 5), [[5, 12, 0], [5, 12, 5], [5, 12, 10], [0, 5, 0], [17, 3, 0]]);
    }
}
