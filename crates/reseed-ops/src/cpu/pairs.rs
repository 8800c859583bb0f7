//! Convolutions of three columns, two output columns at a time: four products instead of six (Winograd's F(2, 3)).
//!
//! ```text
//! d  inputs at columns 2j-1 .. 2j+2        g  the kernel's columns
//! V = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
//! U = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
//! y(2j) = V0 U0 + V1 U1 + V2 U2            y(2j+1) = V1 U1 - V2 U2 - V3 U3
//! ```
//! Every factor is 1 or a half, so that rounding hardly grows. Rows and frames stay as they are.

use super::blocked::{Region, Scratch, Tap, Window};
use super::gemm::{Product, Tiles, even_parts, multiply, tile_rows};
use super::lay::{Lines, groups, register};
use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, Floats};
use super::panels::Weights;
use super::simd::{MOST_LANES, Portable, Simd};
use super::transpose::{Pixels, lanes};
use crate::shape::Hw;

/// Products of a pair.
const POSITIONS: usize = 4;
/// Most channels at a time: their part of a panel stays in the first-level cache.
const CHANNELS: usize = 64;
/// Most panels of a region: its products stay in the second-level cache.
pub const PANELS: usize = 8;

/// Whether a convolution is one of these, and worth it.
pub fn fits(level: Level, window: &Window) -> bool {
    let Window { taps, stride, channels, .. } = *window;
    taps == Hw::new(3, 3) && stride == Hw::new(1, 1) && channels >= lanes(level)
}

/// Floats of one line of one register tile.
pub fn line(level: Level, channels: usize) -> usize {
    POSITIONS * groups(level, channels.min(CHANNELS)) * tile_rows(level) * lanes(level)
}

/// Sums of a region over `taps`, into `scratch.sums`.
pub fn sum<E: Element>(level: Level, window: &Window, taps: &[Tap<E>], region: &Region, scratch: &mut Scratch) {
    let (rows, columns, width) = (region.rows.len(), region.columns.len(), taps[0].kernel.panels().width);
    let to = Pairs { pairs: columns.div_ceil(2), columns, pixel: region.panels.len() * width, width };
    let Scratch { inputs, sums, panel: kernels, products, wide, .. } = scratch;
    let plane = rows * to.pairs * width;
    let products = products.at_least(region.panels.len() * POSITIONS * plane);
    let mut fresh = true;
    for tap in taps {
        for (first, last) in even_parts(window.channels, CHANNELS) {
            if last - first < window.channels {
                inputs.forget();
            }
            let input = Input::new(level, window, region, first..last);
            let values = inputs.of(tap.frame, input.count(), |to| input.pack(tap.frame, to));
            let k = tap.part * 9 * window.channels;
            let weights = Kernels { weights: tap.kernel.panels(), k, channels: window.channels, part: first..last };
            for (panel, products) in region.panels.clone().zip(products.chunks_exact_mut(POSITIONS * plane)) {
                let block = 3 * (last - first) * width;
                let kernels = kernels.at_least(POSITIONS * block);
                weights.spread(level, panel, wide, kernels);
                let operands = products.chunks_exact_mut(plane).zip(kernels.chunks_exact(block));
                for (position, (c, b)) in operands.enumerate() {
                    let product = Product {
                        a: &values[position * input.position..],
                        deep: lanes(level),
                        tiles: Tiles::Apart(input.tile),
                        a_line: input.line,
                        a_step: tile_rows(level) * lanes(level),
                        runs: &[0, input.line, 2 * input.line],
                        steps: last - first,
                        b,
                        width,
                        lines: rows,
                        columns: to.pairs,
                        c,
                        c_row: width,
                        fresh,
                    };
                    multiply(level, product);
                }
            }
            fresh = false;
        }
    }
    let sums = sums.at_least(rows * columns * to.pixel);
    for (slot, products) in products.chunks_exact(POSITIONS * plane).enumerate() {
        gather(level, products, &mut sums[slot * width..], to);
    }
}

/// Some channels of the input of a region: `[tile][line][position][group of lanes][pair][lane]`.
struct Input<'a> {
    level: Level,
    window: &'a Window,
    region: &'a Region,
    part: std::ops::Range<usize>,
    position: usize,
    line: usize,
    tile: usize,
}

impl<'a> Input<'a> {
    fn new(level: Level, window: &'a Window, region: &'a Region, part: std::ops::Range<usize>) -> Input<'a> {
        let line = line(level, part.len());
        Input { level, window, region, part, position: line / POSITIONS, line, tile: (region.rows.len() + 2) * line }
    }

    /// First pair of each tile, from the region's.
    fn tiles(&self) -> impl Iterator<Item = usize> {
        even_parts(self.region.columns.len().div_ceil(2), tile_rows(self.level)).map(|(first, _)| first)
    }

    /// Floats of all of it.
    fn count(&self) -> usize {
        self.tiles().count() * self.tile
    }

    fn pack<E: Element>(&self, frame: &[E], to: &mut [f32]) {
        let (Window { plane, channels, before, .. }, region) = (*self.window, self.region);
        let rows = Lines { frame, plane, channels };
        let top = region.rows.start as isize - before.h as isize;
        let left = region.columns.start as isize - before.w as isize;
        for (pair, to) in self.tiles().zip(to.chunks_exact_mut(self.tile)) {
            for (i, to) in to.chunks_exact_mut(self.line).enumerate() {
                let Some(row) = rows.at(top + i as isize) else {
                    to.fill(0.0);
                    continue;
                };
                let (first, count) = (left + 2 * pair as isize, 2 * tile_rows(self.level) + 2);
                let pixels = Pixels { row, channels, part: self.part.clone(), first, step: 1, count };
                let mut positions = to.chunks_exact_mut(self.position);
                let v = std::array::from_fn(|_| positions.next().expect("a block for every position"));
                spread(self.level, lanes(self.level), pixels, v);
            }
        }
    }
}

leveled! {
    /// V of the pairs of a line.
    pub fn spread<E: Element>(lanes: usize, d: Pixels<E>, v: [&mut [f32]; POSITIONS]) {
        match lanes {
            MOST_LANES => spread_in::<E, MOST_LANES>(&d, v),
            _ => spread_in::<E, { Portable::LANES }>(&d, v),
        }
    }
}

#[inline(always)]
fn spread_in<E: Element, const L: usize>(d: &Pixels<E>, [v0, v1, v2, v3]: [&mut [f32]; POSITIONS]) {
    let pairs = d.count / 2 - 1;
    for group in 0..d.part.len().div_ceil(L) {
        let first = group * L;
        let (mut d0, mut d1) = (register::<E, L>(d.get(0), first), register::<E, L>(d.get(1), first));
        for pair in 0..pairs {
            let d2 = register::<E, L>(d.get(2 * pair + 2), first);
            let d3 = register::<E, L>(d.get(2 * pair + 3), first);
            let at = (group * pairs + pair) * L;
            sum_of(&d0, -1.0, &d2, &mut v0[at..]);
            sum_of(&d1, 1.0, &d2, &mut v1[at..]);
            sum_of(&d2, -1.0, &d1, &mut v2[at..]);
            sum_of(&d1, -1.0, &d3, &mut v3[at..]);
            (d0, d1) = (d2, d3);
        }
    }
}

/// a ± b of a register.
#[inline(always)]
fn sum_of<const L: usize>(a: &[f32; L], sign: f32, b: &[f32; L], to: &mut [f32]) {
    let mut sums = [0.0; L];
    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
        *sum = a + sign * b;
    }
    to[..L].copy_from_slice(&sums);
}

/// Some channels of one temporal tap of the weights.
struct Kernels<'a> {
    weights: &'a Weights,
    k: usize,
    channels: usize,
    part: std::ops::Range<usize>,
}

impl Kernels<'_> {
    /// U of a panel: `[position][row][channel]`.
    fn spread(&self, level: Level, panel: usize, wide: &mut [Floats; 3], to: &mut [f32]) {
        let rows = |tap: usize| {
            let first = self.k + tap * self.channels;
            first + self.part.start..first + self.part.end
        };
        let size = to.len() / POSITIONS / 3;
        let [wide0, wide1, wide2] = wide;
        for dy in 0..3 {
            let g = [
                self.weights.rows(level, panel, rows(3 * dy), wide0),
                self.weights.rows(level, panel, rows(3 * dy + 1), wide1),
                self.weights.rows(level, panel, rows(3 * dy + 2), wide2),
            ];
            let mut blocks = to.chunks_exact_mut(size).skip(dy).step_by(3);
            let u = std::array::from_fn(|_| blocks.next().expect("a block for every position"));
            spread_kernel(level, g, u);
        }
    }
}

leveled! {
    /// U of some rows.
    pub fn spread_kernel(g: [&[f32]; 3], u: [&mut [f32]; POSITIONS]) {
        let [g0, g1, g2] = g;
        let [u0, u1, u2, u3] = u;
        let u = u0.iter_mut().zip(u1).zip(u2).zip(u3);
        for ((((u0, u1), u2), u3), ((g0, g1), g2)) in u.zip(g0.iter().zip(g1).zip(g2)) {
            let (outer, inner) = (0.5 * (g0 + g2), 0.5 * g1);
            (*u0, *u1, *u2, *u3) = (*g0, outer + inner, outer - inner, *g2);
        }
    }
}

/// How pairs become pixels.
#[derive(Clone, Copy)]
pub struct Pairs {
    pairs: usize,
    columns: usize,
    pixel: usize,
    width: usize,
}

leveled! {
    /// Sums the products of a panel, `[position][row][pair][channel]`, to `[row][column][channel]`.
    pub fn gather(products: &[f32], sums: &mut [f32], how: Pairs) {
        let Pairs { pairs, columns, pixel, width } = how;
        let plane = products.len() / POSITIONS;
        for i in 0..plane / width {
            let m = |position: usize| &products[position * plane + i * width..][..width];
            let (m0, m1, m2, m3) = (m(0), m(1), m(2), m(3));
            let (row, column) = (i / pairs, 2 * (i % pairs));
            let at = (row * columns + column) * pixel;
            let even = &mut sums[at..][..width];
            even.iter_mut().enumerate().for_each(|(j, y)| *y = m0[j] + m1[j] + m2[j]);
            if column + 1 < columns {
                let odd = &mut sums[at + pixel..][..width];
                odd.iter_mut().enumerate().for_each(|(j, y)| *y = m1[j] - m2[j] - m3[j]);
            }
        }
    }
}
