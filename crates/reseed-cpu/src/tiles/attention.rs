//! Flash attention on tiles: scores exist for one block of queries and keys at a time.

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::shape::{DEPTH, PANEL, SIDE, STEP};
use super::tile::{Product, RowTile, Step, TileScope};
use crate::host::buffer::{Floats, Values};
use crate::host::element::Element;
use crate::host::level::Level;
use crate::simd::dispatch::{dispatch, exp};
use crate::simd::heads::{Head, LONG, heads};
use crate::simd::output::DisjointSlice;
use crate::simd::transpose::{Pixels, transpose_pixels};
use reseed_ops::DType;

/// Keys of a block.
const KEYS: usize = 256;
/// Most queries of a block.
const QUERIES: usize = 64;
/// Most steps of one product.
const STEPS: usize = 8;
/// Padding of a row of scores and of weights, so that rows do not share cache sets.
const GAP: usize = DEPTH;

/// Whether tiles can read heads of `d` channels in place.
pub fn supports(d: usize) -> bool {
    d.is_multiple_of(DEPTH)
}

/// The operands of all heads of all sequences.
pub struct Tokens<'a> {
    /// Level of the work on SIMD registers.
    pub level: Level,
    /// Queries, keys and values of every token.
    pub qkv: &'a [bf16],
    /// Output.
    pub out: DisjointSlice<'a, bf16>,
    /// Channels of all heads.
    pub width: usize,
    /// Channels of a head.
    pub d: usize,
}

impl Tokens<'_> {
    /// Short heads run in parallel. Long heads run one after the other, with their queries in parallel.
    pub fn run(&self, lengths: &[usize]) {
        let (long, short): (Vec<Head>, Vec<Head>) =
            heads(lengths, self.width, self.d).partition(|head| head.count >= LONG);
        short.into_par_iter().for_each_init(
            || (KeysValues::new(), Block::new()),
            |(keys, block), head| {
                keys.pack(self, head);
                (0..head.count).step_by(QUERIES).for_each(|first| block.run(self, keys, head, first));
            },
        );
        for head in long {
            let mut keys = KeysValues::new();
            keys.pack(self, head);
            let blocks = (0..head.count.div_ceil(QUERIES)).into_par_iter();
            blocks.for_each_init(Block::new, |block, i| block.run(self, &keys, head, i * QUERIES));
        }
    }
}

/// Keys and values of a head in the layout of tiles.
struct KeysValues {
    /// `[panel of keys][chunk of channels]` of steps.
    keys: Values,
    /// `[panel of channels][chunk of keys]` of steps.
    values: Values,
}

impl KeysValues {
    fn new() -> KeysValues {
        let none = || Values::zeros(0, DType::Bf16);
        KeysValues { keys: none(), values: none() }
    }

    fn pack(&mut self, tokens: &Tokens, head: Head) {
        let (width, d) = (tokens.width, tokens.d);
        let sequence = &tokens.qkv[head.first * 3 * width..(head.first + head.count) * 3 * width];
        let size = head.count.next_multiple_of(PANEL) * d;
        // A pair of channels is moved as one f32.
        let pairs: &[f32] = bytemuck::cast_slice(sequence);
        let keys: &mut [f32] = bytemuck::cast_slice_mut(self.keys.at_least::<bf16>(size));
        for (i, tile) in keys.chunks_exact_mut(SIDE * SIDE).enumerate() {
            let (half, chunk, panel) = (i % 2, i / 2 % (d / DEPTH), i / 2 / (d / DEPTH));
            let first = (width + head.channel) / 2 + chunk * SIDE;
            let (part, channels) = (first..first + SIDE, 3 * width / 2);
            let first = (panel * PANEL + half * SIDE) as isize;
            let pixels = Pixels { row: pairs, channels, part, first, step: 1, count: SIDE };
            transpose_pixels(tokens.level, pixels, tile, SIDE);
        }
        let chunks = head.count.div_ceil(DEPTH);
        for (i, step) in self.values.at_least::<bf16>(size).chunks_exact_mut(STEP).enumerate() {
            let (chunk, panel) = (i % chunks, i / chunks);
            let first = 2 * width + head.channel + panel * PANEL;
            let row = |key: usize| {
                sequence.get(key * 3 * width + first..).map_or(&ZEROS, |row| row.first_chunk().unwrap_or(&ZEROS))
            };
            for pair in 0..SIDE {
                let key = chunk * DEPTH + 2 * pair;
                interleave(row(key), row(key + 1), step, pair);
            }
        }
    }
}

impl KeysValues {
    /// The keys of a panel.
    fn panel(&self, panel: usize, d: usize) -> &[bf16] {
        let size = d / DEPTH * STEP;
        &self.keys.elements()[panel * size..][..size]
    }
}

static ZEROS: [bf16; PANEL] = [bf16::ZERO; PANEL];

/// Interleaves the channels of two keys.
fn interleave(even: &[bf16; PANEL], odd: &[bf16; PANEL], step: &mut [bf16], pair: usize) {
    for half in 0..2 {
        let to = &mut step[half * SIDE * DEPTH + pair * DEPTH..][..DEPTH];
        for (i, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *to = [even[half * SIDE + i], odd[half * SIDE + i]];
        }
    }
}

/// A block of queries of a head: scores, weights and sums, and the running maximum and total of each query.
struct Block {
    scores: Floats,
    weights: Values,
    sums: Floats,
    max: [f32; QUERIES],
    total: [f32; QUERIES],
    /// Rows of all its tiles.
    rows: usize,
}

impl Block {
    fn new() -> Block {
        Block {
            scores: Floats::zeros(QUERIES * (KEYS + GAP)),
            weights: Values::zeros(QUERIES * (KEYS + GAP), DType::Bf16),
            sums: Floats::zeros(0),
            max: [0.0; QUERIES],
            total: [0.0; QUERIES],
            rows: 0,
        }
    }

    fn run(&mut self, tokens: &Tokens, keys: &KeysValues, head: Head, first: usize) {
        let (d, width) = (tokens.d, tokens.width);
        let count = QUERIES.min(head.count - first);
        let side = SIDE.min(count);
        (self.max, self.total) = ([f32::NEG_INFINITY; QUERIES], [0.0; QUERIES]);
        self.rows = count.next_multiple_of(SIDE);
        self.sums.at_least(self.rows * (d + GAP));
        let at = (head.first + first) * 3 * width + head.channel;
        let queries = TiledRows { values: &tokens.qkv[at..], row: 3 * width, count };
        let scope = TileScope::new(side);
        for block in (0..head.count).step_by(KEYS) {
            let some = block..head.count.min(block + KEYS);
            for (slot, panel) in (block / PANEL..some.end.div_ceil(PANEL)).enumerate() {
                let scores = &mut self.scores[slot * PANEL..];
                queries.multiply(&scope, keys.panel(panel, d), scores, KEYS + GAP, false);
            }
            self.softmax(tokens, some.clone());
            self.add_values(&scope, keys, d, (some, head.count));
        }
        drop(scope);
        for i in 0..count {
            let tile = i / SIDE;
            let slot = tile * SIDE + i - (tile * SIDE).min(count - side);
            // SAFETY: heads differ in tokens or in channels, and blocks of a head differ in tokens.
            let to = unsafe { tokens.out.slice_mut((head.first + first + i) * width + head.channel, d) };
            scale(tokens.level, &self.sums[slot * (d + GAP)..][..d], to, 1.0 / self.total[slot]);
        }
    }

    /// Converts the scores of some keys to weights.
    fn softmax(&mut self, tokens: &Tokens, keys: Range<usize>) {
        let (d, factor) = (tokens.d, 1.0 / (tokens.d as f32).sqrt());
        let weights = self.weights.elements_mut::<bf16>().chunks_exact_mut(KEYS + GAP);
        let pairs = self.scores.chunks_exact(KEYS + GAP).zip(weights).zip(self.sums.chunks_exact_mut(d + GAP));
        let running = self.max.iter_mut().zip(&mut self.total);
        for (((scores, weights), sums), running) in pairs.take(self.rows).zip(running) {
            let weights = &mut weights[..keys.len().next_multiple_of(DEPTH)];
            // Before the first keys the sums hold values of an earlier block.
            let sums = if keys.start > 0 { &mut sums[..d] } else { &mut [] };
            softmax_step(tokens.level, &scores[..keys.len()], weights, running.into(), sums, factor);
        }
    }

    /// Adds the weighted values of some of `count` keys.
    fn add_values(&mut self, scope: &TileScope, keys: &KeysValues, d: usize, (some, count): (Range<usize>, usize)) {
        let weights = TiledRows { values: self.weights.elements::<bf16>(), row: KEYS + GAP, count: self.rows };
        let (chunks, first) = (count.div_ceil(DEPTH), some.start / DEPTH);
        for panel in 0..d / PANEL {
            let steps = &keys.values.elements::<bf16>()[(panel * chunks + first) * STEP..];
            let steps = &steps[..some.len().div_ceil(DEPTH) * STEP];
            weights.multiply(scope, steps, &mut self.sums[panel * PANEL..], d + GAP, some.start > 0);
        }
    }
}

/// Rows of A that are read as tiles.
struct TiledRows<'a> {
    values: &'a [bf16],
    row: usize,
    count: usize,
}

impl TiledRows<'_> {
    /// C = rows · B, or C += rows · B.
    fn multiply(&self, scope: &TileScope, b: &[bf16], c: &mut [f32], c_row: usize, accumulate: bool) {
        let mut tiles = [RowTile { a: 0, row: 0 }; QUERIES / SIDE];
        tiles.iter_mut().zip(RowTile::consecutive(self.count, self.row)).for_each(|(to, tile)| *to = tile);
        for (i, b) in b.as_chunks().0.chunks(STEPS).enumerate() {
            scope.multiply(Product {
                a: &self.values[i * STEPS * DEPTH..],
                a_row: self.row,
                tiles: &tiles[..self.count.div_ceil(SIDE)],
                steps: &Step::consecutive::<STEPS>(b)[..b.len()],
                next: 0,
                c,
                c_row,
                columns: PANEL,
                accumulate: accumulate || i > 0,
            });
        }
    }
}

dispatch! {
    /// One step of the online softmax of a query: weights e^(s - max) with the new running maximum, and the earlier
    /// sums and total rescaled by e^(old max - max).
    pub fn softmax_step(scores: &[f32], weights: &mut [bf16], running: [&mut f32; 2], sums: &mut [f32], scale: f32) {
        let [max, total] = running;
        let (whole, rest) = scores.as_chunks::<SIDE>();
        let mut highest = [f32::NEG_INFINITY; SIDE];
        for scores in whole {
            for (highest, score) in highest.iter_mut().zip(scores) {
                *highest = if score > highest { *score } else { *highest };
            }
        }
        let highest = highest.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        let highest = (scale * highest).max(*max);
        let mut sum = [0.0; SIDE];
        let (weights, last) = weights.split_at_mut(whole.len() * SIDE);
        for (weights, scores) in weights.as_chunks_mut::<SIDE>().0.iter_mut().zip(whole) {
            for i in 0..SIDE {
                weights[i] = Element::from_f32(exp(scale * scores[i] - highest));
                sum[i] += Element::to_f32(weights[i]);
            }
        }
        last.fill(bf16::ZERO);
        for ((weight, score), sum) in last.iter_mut().zip(rest).zip(&mut sum) {
            *weight = Element::from_f32(exp(scale * score - highest));
            *sum += Element::to_f32(*weight);
        }
        let rescale = exp(*max - highest);
        *total = *total * rescale + sum.iter().sum::<f32>();
        *max = highest;
        if rescale != 1.0 {
            sums.iter_mut().for_each(|sum| *sum *= rescale);
        }
    }
}

dispatch! {
    /// to = from · factor
    pub fn scale(from: &[f32], to: &mut [bf16], factor: f32) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Element::from_f32(from * factor));
    }
}
