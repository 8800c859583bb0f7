//! Attention on tiles, streaming over the keys: scores exist for one block of queries and keys at a time.

use half::bf16;
use rayon::prelude::*;

use super::tile::{Product, STEP, Tiles};
use super::{DEPTH, PANEL, SIDE};
use crate::cpu::attention::{Head, LONG, heads};
use crate::cpu::conv::Target;
use crate::cpu::level::Level;
use crate::cpu::leveled::{exp, leveled};
use crate::cpu::memory::{Element, Floats, Values};
use crate::cpu::transpose::{Pixels, transpose_some};
use crate::shape::DType;

/// Keys of a block.
const KEYS: usize = 256;
/// Most queries of a block.
const QUERIES: usize = 64;
/// Steps of a panel at a time.
const STEPS: usize = 8;
/// Elements between rows of scores and of weights beside their keys, against rows that share sets of the cache.
const GAP: usize = DEPTH;

/// Whether heads can be read where they stand.
pub fn fits(d: usize) -> bool {
    d.is_multiple_of(DEPTH)
}

/// Everything that every head of every sequence reads and writes.
pub struct Tokens<'a> {
    /// Level of what is not done in tiles.
    pub level: Level,
    /// Queries, keys and values of every token.
    pub qkv: &'a [bf16],
    /// Where results go.
    pub out: Target<bf16>,
    /// Channels of all heads.
    pub width: usize,
    /// Channels of a head.
    pub d: usize,
}

impl Tokens<'_> {
    /// Short heads side by side; long ones one after the other, their queries side by side.
    pub fn run(&self, lengths: &[usize]) {
        let (long, short): (Vec<Head>, Vec<Head>) =
            heads(lengths, self.width, self.d).partition(|head| head.count >= LONG);
        short.into_par_iter().for_each_init(
            || (Keys::new(), Block::new()),
            |(keys, block), head| {
                keys.pack(self, head);
                (0..head.count).step_by(QUERIES).for_each(|first| block.run(self, keys, head, first));
            },
        );
        for head in long {
            let mut keys = Keys::new();
            keys.pack(self, head);
            let blocks = (0..head.count.div_ceil(QUERIES)).into_par_iter();
            blocks.for_each_init(Block::new, |block, i| block.run(self, &keys, head, i * QUERIES));
        }
    }
}

/// Keys and values of a head as tiles read them.
struct Keys {
    /// `[panel of keys][chunk of channels]` of steps.
    keys: Values,
    /// `[panel of channels][chunk of keys]` of steps.
    values: Values,
}

impl Keys {
    fn new() -> Keys {
        let none = || Values::zeros(0, DType::Bf16);
        Keys { keys: none(), values: none() }
    }

    fn pack(&mut self, tokens: &Tokens, head: Head) {
        let (width, d) = (tokens.width, tokens.d);
        let sequence = &tokens.qkv[head.first * 3 * width..(head.first + head.count) * 3 * width];
        let size = head.count.next_multiple_of(PANEL) * d;
        // A pair of channels moves as one float.
        let pairs: &[f32] = bytemuck::cast_slice(sequence);
        let keys: &mut [f32] = bytemuck::cast_slice_mut(self.keys.at_least::<bf16>(size));
        for (i, tile) in keys.chunks_exact_mut(SIDE * SIDE).enumerate() {
            let (half, chunk, panel) = (i % 2, i / 2 % (d / DEPTH), i / 2 / (d / DEPTH));
            let first = (width + head.channel) / 2 + chunk * SIDE;
            let (part, channels) = (first..first + SIDE, 3 * width / 2);
            let first = (panel * PANEL + half * SIDE) as isize;
            let pixels = Pixels { row: pairs, channels, part, first, step: 1, count: SIDE };
            transpose_some(tokens.level, pixels, tile, SIDE);
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
                weave(row(key), row(key + 1), step, pair);
            }
        }
    }
}

static ZEROS: [bf16; PANEL] = [bf16::ZERO; PANEL];

/// Two keys' channels, one beside the other.
fn weave(even: &[bf16; PANEL], odd: &[bf16; PANEL], step: &mut [bf16], pair: usize) {
    for half in 0..2 {
        let to = &mut step[half * SIDE * DEPTH + pair * DEPTH..][..DEPTH];
        for (i, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *to = [even[half * SIDE + i], odd[half * SIDE + i]];
        }
    }
}

/// Some queries of a head: their scores, weights and sums, and the running maximum and total of each.
struct Block {
    scores: Floats,
    weights: Values,
    sums: Floats,
    top: [f32; QUERIES],
    total: [f32; QUERIES],
}

impl Block {
    fn new() -> Block {
        Block {
            scores: Floats::zeros(QUERIES * (KEYS + GAP)),
            weights: Values::zeros(QUERIES * (KEYS + GAP), DType::Bf16),
            sums: Floats::zeros(0),
            top: [0.0; QUERIES],
            total: [0.0; QUERIES],
        }
    }

    fn run(&mut self, tokens: &Tokens, keys: &Keys, head: Head, first: usize) {
        let (d, width) = (tokens.d, tokens.width);
        let count = QUERIES.min(head.count - first);
        let side = SIDE.min(count);
        (self.top, self.total) = ([f32::NEG_INFINITY; QUERIES], [0.0; QUERIES]);
        // The last tile of queries overlaps the one before it.
        let tops: Vec<usize> = (0..count).step_by(SIDE).map(|row| row.min(count - side)).collect();
        let at = (head.first + first) * 3 * width + head.channel;
        let queries = Rows {
            values: &tokens.qkv[at..],
            row: 3 * width,
            starts: tops.iter().map(|top| top * 3 * width).collect(),
        };
        let starts: Vec<usize> = (0..tops.len()).map(|tile| tile * SIDE * (KEYS + GAP)).collect();
        let rows = tops.len() * SIDE;
        let sums = self.sums.at_least(rows * (d + SIDE));
        let tiles = Tiles::shaped(side);
        for block in (0..head.count).step_by(KEYS) {
            let some = KEYS.min(head.count - block);
            for panel in 0..some.div_ceil(PANEL) {
                let b =
                    &keys.keys.elements::<bf16>()[(block / PANEL + panel) * (d / DEPTH) * STEP..][..d / DEPTH * STEP];
                queries.multiply(&tiles, b, &mut self.scores[panel * PANEL..], KEYS + GAP, true);
            }
            let weights = self.weights.elements_mut::<bf16>();
            let pairs = self.scores.chunks_exact(KEYS + GAP).zip(weights.chunks_exact_mut(KEYS + GAP)).take(rows);
            let running = self.top.iter_mut().zip(&mut self.total);
            for (i, ((scores, weights), (top, total))) in pairs.zip(running).enumerate() {
                let weights = &mut weights[..some.next_multiple_of(DEPTH)];
                let sums = &mut sums[i * (d + SIDE)..][..d];
                soften(
                    tokens.level,
                    &scores[..some],
                    weights,
                    [top, total],
                    if block > 0 { sums } else { &mut [] },
                    1.0 / (d as f32).sqrt(),
                );
            }
            let weights = Rows { values: weights, row: KEYS + GAP, starts: starts.clone() };
            let chunks = head.count.div_ceil(DEPTH);
            for panel in 0..d / PANEL {
                let b = &keys.values.elements::<bf16>()[(panel * chunks + block / DEPTH) * STEP..]
                    [..some.div_ceil(DEPTH) * STEP];
                weights.multiply(&tiles, b, &mut sums[panel * PANEL..], d + SIDE, block == 0);
            }
        }
        drop(tiles);
        for i in 0..count {
            let tile = i / SIDE;
            let slot = tile * SIDE + i - (tile * SIDE).min(count - side);
            // SAFETY: heads differ in tokens or in channels, blocks of a head in tokens.
            let to = unsafe { tokens.out.piece((head.first + first + i) * width + head.channel, d) };
            scale(tokens.level, &sums[slot * (d + SIDE)..][..d], to, 1.0 / self.total[slot]);
        }
    }
}

/// Tiles of rows and where they stand.
struct Rows<'a> {
    values: &'a [bf16],
    row: usize,
    starts: Vec<usize>,
}

impl Rows<'_> {
    /// C (+)= rows · B, a few steps at a time.
    fn multiply(&self, tiles: &Tiles, b: &[bf16], c: &mut [f32], c_row: usize, fresh: bool) {
        let runs: [usize; STEPS] = std::array::from_fn(|step| step * DEPTH);
        for (i, b) in b.chunks(STEPS * STEP).enumerate() {
            tiles.multiply(Product {
                a: &self.values[i * STEPS * DEPTH..],
                a_row: self.row,
                starts: &self.starts,
                runs: &runs[..b.len() / STEP],
                b,
                c,
                c_row,
                columns: PANEL,
                fresh: fresh && i == 0,
            });
        }
    }
}

leveled! {
    /// Turns a query's scores into weights against its running maximum, and lets its earlier sums shrink.
    pub fn soften(scores: &[f32], weights: &mut [bf16], running: [&mut f32; 2], sums: &mut [f32], scale: f32) {
        let [top, total] = running;
        let (whole, rest) = scores.as_chunks::<SIDE>();
        let mut highest = [f32::NEG_INFINITY; SIDE];
        for scores in whole {
            for (highest, score) in highest.iter_mut().zip(scores) {
                *highest = if score > highest { *score } else { *highest };
            }
        }
        let highest = highest.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        let highest = (scale * highest).max(*top);
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
        let shrink = exp(*top - highest);
        *total = *total * shrink + sum.iter().sum::<f32>();
        *top = highest;
        if shrink != 1.0 {
            sums.iter_mut().for_each(|sum| *sum *= shrink);
        }
    }
}

leveled! {
    /// to = from · factor
    pub fn scale(from: &[f32], to: &mut [bf16], factor: f32) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Element::from_f32(from * factor));
    }
}
