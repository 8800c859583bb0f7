//! Attention that streams over the keys: scores exist for one block of queries and keys at a time.

use rayon::prelude::*;

use super::CpuOps;
use super::gemm::{Product, multiply};
use super::level::Level;
use super::leveled::{exp, leveled};
use super::memory::{Element, Floats, elements, elements_mut, with_element};
use super::panels::Panels;
use super::transpose::transpose;
use crate::error::Result;
use crate::reference;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Queries of a block: full register tiles of the widest level. Long sequences, whose keys stream from afar, are worth
/// more of them.
fn queries(tokens: usize) -> usize {
    if tokens < 2048 { 56 } else { 112 }
}

/// Sums and maxima that a row of scores keeps, so that none waits for the one before it.
const SIDE_BY_SIDE: usize = 32;

/// Keys of a block.
const KEYS: usize = 512;

pub fn run(cpu: &CpuOps, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
    let (tokens, width) = (qkv.rows(), qkv.channels() / 3);
    assert!(qkv.channels().is_multiple_of(3 * heads), "attention: {qkv:?} in {heads} heads");
    assert_eq!(lengths.iter().sum::<usize>(), tokens, "attention: lengths of {qkv:?}");
    let mut out = cpu.room("attention", Shape::from([tokens, width]), qkv.dtype())?;
    with_element!(qkv.dtype(), E => {
        let (from, to) = (elements::<E>(qkv), elements_mut::<E>(&mut out));
        if cpu.level() == Level::Reference {
            let doubles: Vec<f64> = from.iter().map(|v| f64::from(v.to_f32())).collect();
            let result = cpu.install(|| reference::attention(&doubles, width, heads, lengths));
            to.iter_mut().zip(result).for_each(|(to, v)| *to = E::from_f32(v as f32));
        } else {
            let mut start = 0;
            for &n in lengths {
                let to = &mut to[start * width..][..n * width];
                cpu.install(|| sequence(cpu.level(), &from[start * 3 * width..][..n * 3 * width], to, width, heads));
                start += n;
            }
        }
    });
    Ok(out)
}

/// One sequence of tokens, head after head, blocks of queries side by side.
fn sequence<E: Element>(level: Level, qkv: &[E], out: &mut [E], width: usize, heads: usize) {
    let (n, d) = (out.len() / width, width / heads);
    for head in 0..heads {
        let row = |token: usize, which: usize| &qkv[(token * 3 + which) * width + head * d..][..d];
        let mut keys = Panels::zeros(level, d, n);
        keys.fill(|first, count, panel| {
            let lanes = panel.len() / d;
            for j in 0..count {
                row(first + j, 1).iter().enumerate().for_each(|(k, v)| panel[k * lanes + j] = v.to_f32());
            }
        });
        let mut values = Panels::zeros(level, n, d);
        values.fill(|first, count, panel| {
            let lanes = panel.len() / n;
            for (j, line) in panel.chunks_exact_mut(lanes).enumerate() {
                let from = &row(j, 2)[first..][..count];
                line.iter_mut().zip(from).for_each(|(to, v)| *to = v.to_f32());
            }
        });
        let block_rows = queries(n);
        out.par_chunks_mut(block_rows * width).enumerate().for_each(|(block, out)| {
            let queries: Vec<E> =
                (0..out.len() / width).flat_map(|i| row(block * block_rows + i, 0)).copied().collect();
            let result = Block::new(level, &queries, d).run(&keys, &values);
            for (to, from) in out.chunks_exact_mut(width).zip(result.chunks_exact(values.padded())) {
                to[head * d..][..d].iter_mut().zip(from).for_each(|(to, &v)| *to = E::from_f32(v));
            }
        });
    }
}

/// A block of queries with its running maximum and sum per query.
struct Block {
    level: Level,
    d: usize,
    count: usize,
    queries: Floats,
    top: Vec<f32>,
    total: Vec<f32>,
}

impl Block {
    fn new<E: Element>(level: Level, rows: &[E], d: usize) -> Block {
        let count = rows.len() / d;
        let mut queries = Floats::zeros(d * count);
        transpose(level, rows, d, &mut queries, count);
        // There are fewer queries than scores.
        let scale = 1.0 / (d as f32).sqrt();
        queries.iter_mut().for_each(|q| *q *= scale);
        Block { level, d, count, queries, top: vec![f32::NEG_INFINITY; count], total: vec![0.0; count] }
    }

    fn run(mut self, keys: &Panels, values: &Panels) -> Floats {
        let row = KEYS.next_multiple_of(keys.width);
        let mut scores = Floats::zeros(self.count * row);
        let mut turned = Floats::zeros(row * self.count);
        let mut out = Floats::zeros(self.count * values.padded());
        for first in (0..keys.n).step_by(KEYS) {
            let count = KEYS.min(keys.n - first);
            for (slot, panel) in (first / keys.width..(first + count).div_ceil(keys.width)).enumerate() {
                let c = &mut scores[slot * keys.width..];
                let keys = keys.panel(panel, 0);
                multiply(self.level, Product::plain(&self.queries, self.count, keys, self.d, c, row));
            }
            for i in 0..self.count {
                let shrink = &mut [0.0];
                let scores = &mut scores[i * row..][..count];
                soften(self.level, scores, &mut self.top[i], &mut self.total[i], shrink);
                if first > 0 && shrink[0] != 1.0 {
                    out[i * values.padded()..][..values.padded()].iter_mut().for_each(|v| *v *= shrink[0]);
                }
            }
            transpose(self.level, &scores, row, &mut turned, self.count);
            for panel in 0..values.count() {
                let c = &mut out[panel * values.width..];
                let product =
                    Product::plain(&turned, self.count, values.panel(panel, first), count, c, values.padded());
                multiply(self.level, Product { fresh: first == 0, ..product });
            }
        }
        for (row, total) in out.chunks_exact_mut(values.padded()).zip(&self.total) {
            row.iter_mut().for_each(|v| *v /= total);
        }
        out
    }
}

leveled! {
    /// Turns a query's scores into weights against its running maximum; `shrink` is what its earlier sums lose.
    pub fn soften(scores: &mut [f32], top: &mut f32, total: &mut f32, shrink: &mut [f32; 1]) {
        let mut tops = [*top; SIDE_BY_SIDE];
        for scores in scores.chunks(SIDE_BY_SIDE) {
            tops.iter_mut().zip(scores).for_each(|(top, &score)| *top = if score > *top { score } else { *top });
        }
        let highest = tops.into_iter().fold(*top, f32::max);
        let mut sums = [0.0; SIDE_BY_SIDE];
        for scores in scores.chunks_mut(SIDE_BY_SIDE) {
            for (sum, score) in sums.iter_mut().zip(scores) {
                *score = exp(*score - highest);
                *sum += *score;
            }
        }
        let sum: f32 = sums.iter().sum();
        shrink[0] = exp(*top - highest);
        *total = *total * shrink[0] + sum;
        *top = highest;
    }
}
