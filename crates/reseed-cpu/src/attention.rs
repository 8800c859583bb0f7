//! Flash attention: scores exist for one block of queries and keys at a time.
//!
//! Scores are transposed, `[key][query]`, so that the softmax processes the queries of a panel lane by lane, and its
//! result has the layout of the second product's operand.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::buffer::Floats;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::{dispatch, exp};
use crate::simd::gemm::{Product, Rows, multiply, panel_width, tile_rows};
use crate::simd::heads::{Head, LONG, heads};
use crate::simd::output::DisjointSlice;
use crate::tiles::attention as tiles;
use reseed_ops::reference;
use reseed_ops::{Result, Shape, Tensor};

/// Keys of a block.
const KEYS: usize = 512;

/// Runs the op.
pub fn run(cpu: &CpuOps, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
    let (tokens, width) = (qkv.rows(), qkv.channels() / 3);
    assert!(qkv.channels().is_multiple_of(3 * heads), "attention: {qkv:?} in {heads} heads");
    assert_eq!(lengths.iter().sum::<usize>(), tokens, "attention: lengths of {qkv:?}");
    let mut out = cpu.allocate("attention", Shape::from([tokens, width]), qkv.dtype())?;
    with_element!(qkv.dtype(), E => {
        let (from, to) = (elements::<E>(qkv), elements_mut::<E>(&mut out));
        if cpu.level() == Level::Reference {
            let doubles: Vec<f64> = from.iter().map(|v| f64::from(v.to_f32())).collect();
            let result = cpu.install(|| reference::attention(&doubles, width, heads, lengths));
            to.iter_mut().zip(result).for_each(|(to, v)| *to = E::from_f32(v as f32));
        } else if cpu.uses_tiles() && tiles::supports(width / heads) {
            let (qkv, out) = (bytemuck::cast_slice(from), DisjointSlice::new(bytemuck::cast_slice_mut(to)));
            let tokens = tiles::Tokens { level: cpu.simd(), qkv, out, width, d: width / heads };
            cpu.install(|| tokens.run(lengths));
        } else {
            let tokens = Tokens { level: cpu.simd(), qkv: from, out: DisjointSlice::new(to), width, d: width / heads };
            cpu.install(|| tokens.run(lengths));
        }
    });
    Ok(out)
}

/// The operands of all heads of all sequences.
struct Tokens<'a, E> {
    level: Level,
    qkv: &'a [E],
    out: DisjointSlice<'a, E>,
    width: usize,
    d: usize,
}

impl<E: Element> Tokens<'_, E> {
    /// Short heads run in parallel. Long heads run one after the other, with their queries in parallel.
    fn run(&self, lengths: &[usize]) {
        let (long, short): (Vec<Head>, Vec<Head>) =
            heads(lengths, self.width, self.d).partition(|head| head.count >= LONG);
        short.into_par_iter().for_each_init(Scratch::new, |scratch, head| {
            scratch.keys.pack(self, head);
            for queries in self.blocks(head, 2) {
                scratch.block.run(self, &scratch.keys, queries, head.channel);
            }
        });
        for head in long {
            let mut keys = KeysValues::new();
            keys.pack(self, head);
            let blocks: Vec<_> = self.blocks(head, 4).collect();
            blocks.into_par_iter().for_each_init(Block::new, |block, queries| {
                block.run(self, &keys, queries, head.channel);
            });
        }
    }

    /// The queries of a head in blocks of some panels: first token and count.
    fn blocks(&self, head: Head, panels: usize) -> impl Iterator<Item = (usize, usize)> {
        let most = panels * panel_width(self.level);
        (0..head.count).step_by(most).map(move |i| (head.first + i, most.min(head.count - i)))
    }

    /// A token's query (0), key (1) or value (2).
    fn row(&self, token: usize, which: usize, channel: usize) -> &[E] {
        &self.qkv[(token * 3 + which) * self.width + channel..][..self.d]
    }
}

/// The buffers of one thread.
struct Scratch {
    keys: KeysValues,
    block: Block,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { keys: KeysValues::new(), block: Block::new() }
    }
}

/// Keys as register tiles, `[tile][channel][key]`, and values as panels, `[panel][key][channel]`.
struct KeysValues {
    count: usize,
    keys: Floats,
    values: Floats,
}

impl KeysValues {
    fn new() -> KeysValues {
        KeysValues { count: 0, keys: Floats::zeros(0), values: Floats::zeros(0) }
    }

    fn pack<E: Element>(&mut self, tokens: &Tokens<E>, head: Head) {
        let (d, side, width) = (tokens.d, tile_rows(tokens.level), panel_width(tokens.level));
        self.count = head.count;
        for (i, tile) in self.keys.at_least(head.count * d).chunks_mut(side * d).enumerate() {
            let height = tile.len() / d;
            for r in 0..height {
                let from = tokens.row(head.first + i * side + r, 1, head.channel);
                tile[r..].iter_mut().step_by(height).zip(from).for_each(|(to, v)| *to = v.to_f32());
            }
        }
        let panels = self.values.at_least(d.div_ceil(width) * head.count * width);
        for (panel, to) in panels.chunks_exact_mut(head.count * width).enumerate() {
            let (first, last) = (panel * width, d.min((panel + 1) * width));
            for (j, to) in to.chunks_exact_mut(width).enumerate() {
                let from = &tokens.row(head.first + j, 2, head.channel)[first..last];
                to.iter_mut().zip(from).for_each(|(to, v)| *to = v.to_f32());
                to[last - first..].fill(0.0);
            }
        }
    }

    /// Scores `[key][query]` of some keys and one panel of queries. The first key is the first of a tile.
    fn score(&self, level: Level, keys: (usize, usize), queries: &[f32], scores: &mut [f32]) {
        let (side, width) = (tile_rows(level), panel_width(level));
        let d = queries.len() / width;
        let (first, last) = keys;
        let whole = (last - first) / side;
        for (lines, columns, at) in [(whole, side, first), (1, (last - first) % side, first + whole * side)] {
            if lines * columns > 0 {
                let product = Product {
                    a: &self.keys[at * d..],
                    rows: Rows::Transposed,
                    a_line: columns * d,
                    a_step: columns,
                    runs: &[0],
                    steps: d,
                    b: queries,
                    width,
                    lines,
                    columns,
                    c: &mut scores[(at - first) * width..],
                    c_row: width,
                    accumulate: false,
                };
                multiply(level, product);
            }
        }
    }
}

/// Some panels of queries, `[panel][channel][query]`, and the running maximum, total and rescale factor of each query.
struct Block {
    queries: Floats,
    scores: Floats,
    sums: Floats,
    running: Vec<[Vec<f32>; 3]>,
}

impl Block {
    fn new() -> Block {
        Block { queries: Floats::zeros(0), scores: Floats::zeros(0), sums: Floats::zeros(0), running: Vec::new() }
    }

    /// Copies the queries, scaled by 1 / √d.
    fn load<E: Element>(&mut self, tokens: &Tokens<E>, (first, count): (usize, usize), channel: usize) {
        let (d, width) = (tokens.d, panel_width(tokens.level));
        let scale = 1.0 / (d as f32).sqrt();
        let panels = count.div_ceil(width);
        for (panel, to) in self.queries.at_least(panels * d * width).chunks_exact_mut(d * width).enumerate() {
            to.fill(0.0);
            for i in panel * width..count.min((panel + 1) * width) {
                let from = tokens.row(first + i, 0, channel);
                let to = to[i % width..].iter_mut().step_by(width);
                to.zip(from).for_each(|(to, v)| *to = v.to_f32() * scale);
            }
        }
        self.running.clear();
        let start = || [vec![f32::NEG_INFINITY; width], vec![0.0; width], vec![0.0; width]];
        self.running.resize_with(panels, start);
    }

    fn run<E: Element>(&mut self, tokens: &Tokens<E>, keys: &KeysValues, queries: (usize, usize), channel: usize) {
        self.load(tokens, queries, channel);
        let (level, d) = (tokens.level, tokens.d);
        let (width, side) = (panel_width(level), tile_rows(level));
        let padded = d.next_multiple_of(width);
        let most = KEYS / side * side;
        let scores = self.scores.at_least(most * width);
        let sums = self.sums.at_least(self.running.len() * width * padded);
        for first in (0..keys.count).step_by(most) {
            let last = keys.count.min(first + most);
            for (panel, [max, total, rescale]) in self.running.iter_mut().enumerate() {
                let scores = &mut scores[..(last - first) * width];
                keys.score(level, (first, last), &self.queries[panel * d * width..][..d * width], scores);
                softmax_step(level, scores, max, total, rescale);
                let sums = &mut sums[panel * width * padded..][..width * padded];
                if first > 0 {
                    let rows = sums.chunks_exact_mut(padded).zip(rescale.iter());
                    rows.filter(|(_, s)| **s != 1.0).for_each(|(row, s)| row.iter_mut().for_each(|v| *v *= s));
                }
                for (i, values) in keys.values.chunks_exact(keys.count * width).take(padded / width).enumerate() {
                    let b = &values[first * width..last * width];
                    let c = &mut sums[i * width..];
                    let product = Product::plain((scores, width), (b, width), last - first, (c, padded));
                    multiply(level, Product { accumulate: first > 0, ..product });
                }
            }
        }
        self.store(tokens, queries, channel);
    }

    /// Divides by the totals and writes.
    fn store<E: Element>(&self, tokens: &Tokens<E>, (first, count): (usize, usize), channel: usize) {
        let padded = tokens.d.next_multiple_of(panel_width(tokens.level));
        let totals = self.running.iter().flat_map(|[_, total, _]| total);
        for (i, (row, total)) in self.sums.chunks_exact(padded).zip(totals).take(count).enumerate() {
            // SAFETY: heads differ in tokens or in channels, and blocks of a head differ in tokens.
            let to = unsafe { tokens.out.slice_mut((first + i) * tokens.width + channel, tokens.d) };
            let share = 1.0 / total;
            to.iter_mut().zip(row).for_each(|(to, v)| *to = E::from_f32(v * share));
        }
    }
}

dispatch! {
    /// One step of the online softmax: scores `[key][query]` become weights e^(s - max) with the new running maximum,
    /// and `rescale` becomes e^(old max - max), the factor of the earlier sums.
    pub fn softmax_step(scores: &mut [f32], max: &mut [f32], total: &mut [f32], rescale: &mut [f32]) {
        match max.len() {
            32 => lanes::<32>(scores, max, total, rescale),
            16 => lanes::<16>(scores, max, total, rescale),
            other => panic!("panels of {other} queries"),
        }
    }
}

#[inline(always)]
fn lanes<const N: usize>(scores: &mut [f32], max: &mut [f32], total: &mut [f32], rescale: &mut [f32]) {
    let rows = scores.as_chunks_mut::<N>().0;
    let mut highest: [f32; N] = std::array::from_fn(|i| max[i]);
    for row in rows.iter() {
        for i in 0..N {
            highest[i] = if row[i] > highest[i] { row[i] } else { highest[i] };
        }
    }
    let mut sum = [0.0; N];
    for row in rows {
        for i in 0..N {
            row[i] = exp(row[i] - highest[i]);
            sum[i] += row[i];
        }
    }
    for i in 0..N {
        rescale[i] = exp(max[i] - highest[i]);
        total[i] = total[i] * rescale[i] + sum[i];
        max[i] = highest[i];
    }
}
