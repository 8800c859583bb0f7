//! Winograd F(2,3) over columns: four products instead of six for two outputs of a 3-tap filter.
//!
//! ```text
//! d  input columns 2j-1 .. 2j+2            g  kernel columns
//! V = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
//! U = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2)
//! y(2j) = V0 U0 + V1 U1 + V2 U2            y(2j+1) = V1 U1 - V2 U2 - V3 U3
//! ```
//! Every factor is 1 or 1/2, so that the rounding error hardly grows. The sums over rows, frames and channels are
//! direct.

use super::blocked::{COLUMNS, Scratch};
use super::blocks::{copy_blocks, floats};
use super::dispatch::dispatch;
use super::gemm::{BLOCK, Product, Rows, even_parts, multiply};
use super::input_cache::InputCache;
use super::panels::Weights;
use super::region::{Region, Tap, Window};
use super::transpose::{Pixels, lanes};
use crate::host::buffer::Floats;
use crate::host::element::Element;
use crate::host::level::Level;
use reseed_ops::Hw;

/// Products for two outputs.
pub const POSITIONS: usize = 4;
/// Most channels at a time, so that their part of a panel stays in the first-level cache.
const CHANNELS: usize = 64;
/// Most panels of a region, so that its products stay in the second-level cache.
pub const PANELS: usize = 8;

/// Whether this algorithm computes a convolution: 3 x 3 taps, stride 1, and enough channels to fill a register.
pub fn supports(level: Level, window: &Window) -> bool {
    let Window { taps, stride, channels, .. } = *window;
    taps == Hw::new(3, 3) && stride == Hw::new(1, 1) && channels >= lanes(level)
}

/// Floats of one line of transformed input of some pairs of columns.
pub fn input_line(pairs: usize, channels: usize) -> usize {
    POSITIONS * floats(pairs, channels.min(CHANNELS))
}

/// Computes the sums of a region over `taps` into `scratch.sums`.
pub fn sum<E: Element>(
    level: Level,
    window: &Window,
    taps: &[Tap<E, Weights>],
    region: &Region,
    scratch: &mut Scratch,
) {
    let (rows, columns, width) = (region.rows.len(), region.columns.len(), taps[0].weights.width);
    let to = OutputShape { pairs: columns.div_ceil(2), columns, pixel: region.panels.len() * width, width };
    let Scratch { input, sums, panel: kernels, products, wide, .. } = scratch;
    let plane = rows * to.pairs * width;
    let products = products.at_least(region.panels.len() * POSITIONS * plane);
    let mut accumulate = false;
    for tap in taps {
        for (first, last) in even_parts(window.channels, CHANNELS) {
            let packer = Input { level, window, region, part: first..last };
            let input = packer.packed(tap.frame, input);
            let k = tap.part * 9 * window.channels;
            let weights = KernelPart { weights: tap.weights, k, channels: window.channels, part: first..last };
            for (panel, products) in region.panels.clone().zip(products.chunks_exact_mut(POSITIONS * plane)) {
                let block = 3 * (last - first) * width;
                let kernels = kernels.at_least(POSITIONS * block);
                weights.transform(level, panel, wide, kernels);
                let operands = products.chunks_exact_mut(plane).zip(kernels.chunks_exact(block));
                for (position, (c, b)) in operands.enumerate() {
                    let product = Product {
                        a: &input.values[position * input.position..],
                        rows: Rows::Blocks,
                        a_line: input.line,
                        a_step: to.pairs * BLOCK,
                        runs: &[0, input.line, 2 * input.line],
                        steps: last - first,
                        b,
                        width,
                        lines: rows,
                        columns: to.pairs,
                        c,
                        c_row: width,
                        accumulate,
                    };
                    multiply(level, product);
                }
            }
            accumulate = true;
        }
    }
    let sums = sums.at_least(rows * columns * to.pixel);
    for (slot, products) in products.chunks_exact(POSITIONS * plane).enumerate() {
        transform_output(level, products, &mut sums[slot * width..], to);
    }
}

/// Some channels of the input of a region.
struct Input<'a> {
    level: Level,
    window: &'a Window,
    region: &'a Region,
    part: std::ops::Range<usize>,
}

/// Transformed input: `[line][position][block of channels][pair of columns][BLOCK]`, and its strides.
struct Packed<'a> {
    values: &'a [f32],
    position: usize,
    line: usize,
}

impl Input<'_> {
    /// The transformed input, kept for other output frames where it has all channels.
    fn packed<'b, E: Element>(&self, frame: &[E], cache: &'b mut InputCache) -> Packed<'b> {
        let position = floats(self.pairs(), self.part.len());
        let line = POSITIONS * position;
        let (count, pack) = ((self.region.rows.len() + 2) * line, |to: &mut [f32]| self.pack(frame, line, to));
        let values = match self.part.len() == self.window.channels {
            true => cache.packed(frame, count, pack),
            false => cache.unkept(count, pack),
        };
        Packed { values, position, line }
    }

    /// Pairs of columns of the region.
    fn pairs(&self) -> usize {
        self.region.columns.len().div_ceil(2)
    }

    /// Copies and transforms the input.
    fn pack<E: Element>(&self, frame: &[E], line: usize, to: &mut [f32]) {
        let (Window { plane, channels, before, .. }, region) = (*self.window, self.region);
        let count = 2 * self.pairs() + 2;
        let mut pixels = [0.0; (COLUMNS + 2) * CHANNELS];
        let pixels = &mut pixels[..floats(count, self.part.len())];
        let top = region.rows.start as isize - before.h as isize;
        let first = region.columns.start as isize - before.w as isize;
        for (i, to) in to.chunks_exact_mut(line).enumerate() {
            let y = usize::try_from(top + i as isize).ok().filter(|&y| y < plane.h);
            let Some(y) = y else {
                to.fill(0.0);
                continue;
            };
            let row = &frame[y * plane.w * channels..][..plane.w * channels];
            let part = self.part.clone();
            copy_blocks(self.level, Pixels { row, channels, part, first, step: 1, count }, pixels);
            let mut positions = to.chunks_exact_mut(line / POSITIONS);
            let v = std::array::from_fn(|_| positions.next().expect("a block for every product"));
            transform_input(self.level, pixels, self.pairs(), v);
        }
    }
}

dispatch! {
    /// V of a line: from `[block][pixel][BLOCK]` to `[block][pair][BLOCK]`.
    pub fn transform_input(pixels: &[f32], pairs: usize, v: [&mut [f32]; POSITIONS]) {
        let [v0, v1, v2, v3] = v.map(|v| v.as_chunks_mut::<BLOCK>().0.chunks_exact_mut(pairs));
        let blocks = pixels.as_chunks::<BLOCK>().0.chunks_exact(2 * pairs + 2);
        for (d, ((v0, v1), (v2, v3))) in blocks.zip(v0.zip(v1).zip(v2.zip(v3))) {
            let v = v0.iter_mut().zip(v1).zip(v2.iter_mut().zip(v3));
            for (d, ((v0, v1), (v2, v3))) in d.windows(4).step_by(2).zip(v) {
                let [d0, d1, d2, d3] = *d.first_chunk().expect("a window of four pixels");
                *v0 = std::array::from_fn(|i| d0[i] - d2[i]);
                *v1 = std::array::from_fn(|i| d1[i] + d2[i]);
                *v2 = std::array::from_fn(|i| d2[i] - d1[i]);
                *v3 = std::array::from_fn(|i| d1[i] - d3[i]);
            }
        }
    }
}

/// Some channels of one temporal tap of the weights.
struct KernelPart<'a> {
    weights: &'a Weights,
    k: usize,
    channels: usize,
    part: std::ops::Range<usize>,
}

impl KernelPart<'_> {
    /// U of a panel: `[position][row][channel]`.
    fn transform(&self, level: Level, panel: usize, wide: &mut [Floats; 3], to: &mut [f32]) {
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
            let u = std::array::from_fn(|_| blocks.next().expect("a block for every product"));
            transform_kernel(level, g, u);
        }
    }
}

dispatch! {
    /// U of some rows of a panel.
    pub fn transform_kernel(g: [&[f32]; 3], u: [&mut [f32]; POSITIONS]) {
        let [g0, g1, g2] = g;
        let [u0, u1, u2, u3] = u;
        let u = u0.iter_mut().zip(u1).zip(u2).zip(u3);
        for ((((u0, u1), u2), u3), ((g0, g1), g2)) in u.zip(g0.iter().zip(g1).zip(g2)) {
            let (outer, inner) = (0.5 * (g0 + g2), 0.5 * g1);
            (*u0, *u1, *u2, *u3) = (*g0, outer + inner, outer - inner, *g2);
        }
    }
}

/// The shape of the output transform.
#[derive(Clone, Copy)]
pub struct OutputShape {
    pairs: usize,
    columns: usize,
    pixel: usize,
    width: usize,
}

dispatch! {
    /// y from the products of a panel: `[position][row][pair][channel]` to `[row][column][channel]`.
    pub fn transform_output(products: &[f32], sums: &mut [f32], shape: OutputShape) {
        let OutputShape { pairs, columns, pixel, width } = shape;
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

/// Channels of a panel of [`combine_rows`].
pub const ROW_PANEL: usize = 32;

dispatch! {
    /// The output transform over rows, in place: m0 becomes the even row m0 + (m1 + m2), m3 the odd row m3 + (m1 - m2).
    /// The kernel transform has negated m3. Rows have `columns` pixels with stride `pixel`.
    pub fn combine_rows(m: [&mut [f32]; POSITIONS], columns: usize, pixel: usize) {
        let [m0, m1, m2, m3] = m.map(|m| m.chunks_mut(pixel).take(columns));
        for ((m0, m1), (m2, m3)) in m0.zip(m1).zip(m2.zip(m3)) {
            let (m0, m1) = (&mut m0[..ROW_PANEL], &m1[..ROW_PANEL]);
            let (m2, m3) = (&m2[..ROW_PANEL], &mut m3[..ROW_PANEL]);
            for i in 0..ROW_PANEL {
                m0[i] += m1[i] + m2[i];
                m3[i] += m1[i] - m2[i];
            }
        }
    }
}
