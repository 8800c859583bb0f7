//! Attention on tiles, streaming over the keys: scores exist for one block of queries and keys at a time.

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::tile::{Place, Product, STEP, Step, Tiles};
use super::{DEPTH, PANEL, SIDE};
use crate::attention::{Head, LONG, heads};
use crate::finish::Target;
use crate::level::Level;
use crate::leveled::{exp, leveled};
use crate::memory::{Element, Floats, Values};
use crate::transpose::{Pixels, transpose_some};
use reseed_ops::DType;

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

impl Keys {
    /// The keys of a panel.
    fn panel(&self, panel: usize, d: usize) -> &[bf16] {
        let size = d / DEPTH * STEP;
        &self.keys.elements()[panel * size..][..size]
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
    /// Rows of its tiles.
    rows: usize,
}

impl Block {
    fn new() -> Block {
        Block {
            scores: Floats::zeros(QUERIES * (KEYS + GAP)),
            weights: Values::zeros(QUERIES * (KEYS + GAP), DType::Bf16),
            sums: Floats::zeros(0),
            top: [0.0; QUERIES],
            total: [0.0; QUERIES],
            rows: 0,
        }
    }

    fn run(&mut self, tokens: &Tokens, keys: &Keys, head: Head, first: usize) {
        let (d, width) = (tokens.d, tokens.width);
        let count = QUERIES.min(head.count - first);
        let side = SIDE.min(count);
        (self.top, self.total) = ([f32::NEG_INFINITY; QUERIES], [0.0; QUERIES]);
        self.rows = count.next_multiple_of(SIDE);
        self.sums.at_least(self.rows * (d + GAP));
        let at = (head.first + first) * 3 * width + head.channel;
        let queries = Rows { values: &tokens.qkv[at..], row: 3 * width, count };
        let tiles = Tiles::shaped(side);
        for block in (0..head.count).step_by(KEYS) {
            let some = block..head.count.min(block + KEYS);
            for (slot, panel) in (block / PANEL..some.end.div_ceil(PANEL)).enumerate() {
                let scores = &mut self.scores[slot * PANEL..];
                queries.multiply(&tiles, keys.panel(panel, d), scores, KEYS + GAP, true);
            }
            self.soften(tokens, some.clone());
            self.add_values(&tiles, keys, d, (some, head.count));
        }
        drop(tiles);
        for i in 0..count {
            let tile = i / SIDE;
            let slot = tile * SIDE + i - (tile * SIDE).min(count - side);
            // SAFETY: heads differ in tokens or in channels, blocks of a head in tokens.
            let to = unsafe { tokens.out.piece((head.first + first + i) * width + head.channel, d) };
            scale(tokens.level, &self.sums[slot * (d + GAP)..][..d], to, 1.0 / self.total[slot]);
        }
    }

    /// Turns the scores of some keys into weights.
    fn soften(&mut self, tokens: &Tokens, keys: Range<usize>) {
        let (d, factor) = (tokens.d, 1.0 / (tokens.d as f32).sqrt());
        let weights = self.weights.elements_mut::<bf16>().chunks_exact_mut(KEYS + GAP);
        let pairs = self.scores.chunks_exact(KEYS + GAP).zip(weights).zip(self.sums.chunks_exact_mut(d + GAP));
        let running = self.top.iter_mut().zip(&mut self.total);
        for (((scores, weights), sums), running) in pairs.take(self.rows).zip(running) {
            let weights = &mut weights[..keys.len().next_multiple_of(DEPTH)];
            // What the first keys find in the sums is left over.
            let sums = if keys.start > 0 { &mut sums[..d] } else { &mut [] };
            soften(tokens.level, &scores[..keys.len()], weights, running.into(), sums, factor);
        }
    }

    /// Adds the values of some of `count` keys by their weights.
    fn add_values(&mut self, tiles: &Tiles, keys: &Keys, d: usize, (some, count): (Range<usize>, usize)) {
        let weights = Rows { values: self.weights.elements::<bf16>(), row: KEYS + GAP, count: self.rows };
        let (chunks, first) = (count.div_ceil(DEPTH), some.start / DEPTH);
        for panel in 0..d / PANEL {
            let steps = &keys.values.elements::<bf16>()[(panel * chunks + first) * STEP..];
            let steps = &steps[..some.len().div_ceil(DEPTH) * STEP];
            weights.multiply(tiles, steps, &mut self.sums[panel * PANEL..], d + GAP, some.start == 0);
        }
    }
}

/// Tiles of rows and where they stand.
struct Rows<'a> {
    values: &'a [bf16],
    row: usize,
    count: usize,
}

impl Rows<'_> {
    /// C (+)= rows · B, a few steps at a time.
    fn multiply(&self, tiles: &Tiles, b: &[bf16], c: &mut [f32], c_row: usize, fresh: bool) {
        let mut places = [Place { a: 0, row: 0 }; QUERIES / SIDE];
        places.iter_mut().zip(Place::in_a_row(self.count, self.row)).for_each(|(to, place)| *to = place);
        for (i, b) in b.as_chunks().0.chunks(STEPS).enumerate() {
            tiles.multiply(Product {
                a: &self.values[i * STEPS * DEPTH..],
                a_row: self.row,
                tiles: &places[..self.count.div_ceil(SIDE)],
                steps: &Step::in_a_row::<STEPS>(b)[..b.len()],
                next: 0,
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
