//! Winograd F(4,3) over columns: six products instead of twelve for four outputs of a 3-tap filter.
//!
//! `winograd_axis` describes the transforms. The sums over rows, frames and channels are direct.

use super::blocked::{COLUMNS, Scratch};
use super::blocks::{copy_blocks, floats};
use super::dispatch::dispatch;
use super::gemm::{BLOCK, Product, Rows, even_parts, multiply};
use super::input_cache::InputCache;
use super::panels::Weights;
use super::region::{MOST_TAPS, Region, Tap, Window};
use super::transpose::{Pixels, lanes};
use super::winograd_axis::{OUTPUTS, POINTS, transformed_input, transformed_output, transformed_taps};
use crate::host::buffer::Floats;
use crate::host::element::Element;
use crate::host::level::Level;
use reseed_ops::Hw;

/// Output columns of a transform.
pub const COLUMNS_AT_ONCE: usize = OUTPUTS;
/// Products of a transform.
const POSITIONS: usize = POINTS;

/// Most channels at a time, so that their part of a panel stays in the first-level cache.
const CHANNELS: usize = 64;
/// Most rows of a panel for which all temporal taps are summed at once.
const PANEL_ROWS: usize = 3 * 3 * 32;
/// Most panels of a region, so that its products stay in the second-level cache.
pub const PANELS: usize = 8;

/// Whether this algorithm computes a convolution: 3 x 3 taps, stride 1, and enough channels to fill a register.
pub fn supports(level: Level, window: &Window) -> bool {
    let Window { taps, stride, channels, .. } = *window;
    taps == Hw::new(3, 3) && stride == Hw::new(1, 1) && channels >= lanes(level)
}

/// Floats of one line of transformed input of some groups of columns.
pub fn input_line(groups: usize, channels: usize) -> usize {
    POSITIONS * floats(groups, channels.min(CHANNELS))
}

/// Temporal taps whose products are summed before the sums leave the registers. The rows of a panel that are then read
/// stay in the first-level cache, and the frames in the second-level cache.
fn taps_at_once(window: &Window, taps: usize) -> usize {
    if 3 * taps * window.channels <= PANEL_ROWS { taps } else { 1 }
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
    let to =
        OutputShape { groups: columns.div_ceil(COLUMNS_AT_ONCE), columns, pixel: region.panels.len() * width, width };
    let Scratch { input, sums, panel: kernels, products, wide, .. } = scratch;
    let plane = rows * to.groups * width;
    let products = products.at_least(region.panels.len() * POSITIONS * plane);
    let mut accumulate = false;
    for taps in taps.chunks(taps_at_once(window, taps.len())) {
        for (first, last) in even_parts(window.channels, CHANNELS) {
            let packer = Input { level, window, region, part: first..last };
            let input = packer.packed(taps, input);
            let block = taps.len() * 3 * (last - first) * width;
            for (panel, products) in region.panels.clone().zip(products.chunks_exact_mut(POSITIONS * plane)) {
                let kernels = kernels.at_least(POSITIONS * block);
                for (i, tap) in taps.iter().enumerate() {
                    let k = tap.part * 9 * window.channels;
                    let part = KernelPart { weights: tap.weights, k, channels: window.channels, part: first..last };
                    part.transform(level, panel, wide, (kernels, i, taps.len()));
                }
                let operands = products.chunks_exact_mut(plane).zip(kernels.chunks_exact(block));
                for (position, (c, b)) in operands.enumerate() {
                    let product = Product {
                        a: &input.values[position * input.position..],
                        rows: Rows::Blocks,
                        a_line: input.line,
                        a_step: to.groups * BLOCK,
                        runs: &input.runs[..3 * taps.len()],
                        steps: last - first,
                        b,
                        width,
                        lines: rows,
                        columns: to.groups,
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

/// Transformed input: `[line][position][block of channels][group of columns][BLOCK]`, and its strides.
struct Packed<'a> {
    values: &'a [f32],
    /// Offset of each row of taps, for all temporal taps.
    runs: [usize; 3 * MOST_TAPS],
    position: usize,
    line: usize,
}

impl Input<'_> {
    /// The transformed input of some temporal taps, kept for other output frames where it has all channels. All
    /// channels of more than one tap fit into the cache.
    fn packed<'b, E: Element>(&self, taps: &[Tap<E, Weights>], cache: &'b mut InputCache) -> Packed<'b> {
        let position = floats(self.groups(), self.part.len());
        let line = POSITIONS * position;
        let count = (self.region.rows.len() + 2) * line;
        let pack = |frame: &[E], to: &mut [f32]| self.pack(frame, line, to);
        let (values, frames) = match (taps, self.part.len() == self.window.channels) {
            ([tap], true) => (cache.packed(tap.frame, count, pack), [0; MOST_TAPS]),
            ([tap], false) => (cache.unkept(tap.frame, count, pack), [0; MOST_TAPS]),
            _ => cache.packed_together(MOST_TAPS, taps.iter().map(|tap| tap.frame), count, pack),
        };
        let runs = std::array::from_fn(|i| frames[i / 3] + i % 3 * line);
        Packed { values, runs, position, line }
    }

    /// Groups of columns of the region.
    fn groups(&self) -> usize {
        self.region.columns.len().div_ceil(COLUMNS_AT_ONCE)
    }

    /// Copies and transforms the input.
    fn pack<E: Element>(&self, frame: &[E], line: usize, to: &mut [f32]) {
        let (Window { plane, channels, before, .. }, region) = (*self.window, self.region);
        let count = COLUMNS_AT_ONCE * self.groups() + 2;
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
            copy_blocks(self.level, Pixels { row, channels, part, first, step: 1, count }, plane.w * channels, pixels);
            let mut positions = to.chunks_exact_mut(line / POSITIONS);
            let v = std::array::from_fn(|_| positions.next().expect("a block for every product"));
            transform_input(self.level, pixels, self.groups(), v);
        }
    }
}

dispatch! {
    /// V of a line: from `[block][pixel][BLOCK]` to `[block][group][BLOCK]`.
    pub fn transform_input(pixels: &[f32], groups: usize, v: [&mut [f32]; POSITIONS]) {
        let blocks = pixels.as_chunks::<BLOCK>().0.chunks_exact(COLUMNS_AT_ONCE * groups + 2);
        let windows = blocks.flat_map(|d| d.windows(POSITIONS).step_by(COLUMNS_AT_ONCE));
        let [v0, v1, v2, v3, v4, v5] = v.map(|v| v.as_chunks_mut::<BLOCK>().0.iter_mut());
        let v = v0.zip(v1).zip(v2.zip(v3)).zip(v4.zip(v5));
        for (d, (((v0, v1), (v2, v3)), (v4, v5))) in windows.zip(v) {
            let d: &[[f32; BLOCK]; POSITIONS] = d.first_chunk().expect("a window of six pixels");
            [*v0, *v1, *v2, *v3, *v4, *v5] = transformed_input(d.each_ref());
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
    /// U of a panel, for temporal tap `i` of `taps`: `[position][temporal tap][row][channel]`.
    fn transform(&self, level: Level, panel: usize, wide: &mut [Floats; 4], (to, i, taps): (&mut [f32], usize, usize)) {
        let rows = |tap: usize| {
            let first = self.k + tap * self.channels;
            first + self.part.start..first + self.part.end
        };
        let size = to.len() / POSITIONS / taps / 3;
        let [wide0, wide1, wide2, _] = wide;
        for dy in 0..3 {
            let g = [
                self.weights.rows(level, panel, rows(3 * dy), wide0),
                self.weights.rows(level, panel, rows(3 * dy + 1), wide1),
                self.weights.rows(level, panel, rows(3 * dy + 2), wide2),
            ];
            let mut blocks = to.chunks_exact_mut(size).skip(3 * i + dy).step_by(3 * taps);
            let u = std::array::from_fn(|_| blocks.next().expect("a block for every product"));
            transform_kernel(level, g, u);
        }
    }
}

dispatch! {
    /// U of some rows of a panel.
    pub fn transform_kernel(g: [&[f32]; 3], u: [&mut [f32]; POSITIONS]) {
        let [g0, g1, g2] = g;
        let [u0, u1, u2, u3, u4, u5] = u;
        let u = u0.iter_mut().zip(u1).zip(u2.iter_mut().zip(u3)).zip(u4.iter_mut().zip(u5));
        for ((((u0, u1), (u2, u3)), (u4, u5)), ((g0, g1), g2)) in u.zip(g0.iter().zip(g1).zip(g2)) {
            [*u0, *u1, *u2, *u3, *u4, *u5] = transformed_taps([*g0, *g1, *g2]);
        }
    }
}

/// The shape of the output transform.
#[derive(Clone, Copy)]
pub struct OutputShape {
    groups: usize,
    columns: usize,
    pixel: usize,
    width: usize,
}

dispatch! {
    /// y from the products of a panel: `[position][row][group][channel]` to `[row][column][channel]`.
    pub fn transform_output(products: &[f32], sums: &mut [f32], shape: OutputShape) {
        let OutputShape { groups, columns, pixel, width } = shape;
        let plane = products.len() / POSITIONS;
        for (i, first) in (0..plane).step_by(width).enumerate() {
            let (row, column) = (i / groups, COLUMNS_AT_ONCE * (i % groups));
            let at = (row * columns + column) * pixel;
            for j in (0..width).step_by(BLOCK) {
                let m = |position: usize| products[position * plane + first + j..].first_chunk().expect("a product");
                let y = transformed_output([m(0), m(1), m(2), m(3), m(4), m(5)]);
                for (k, y) in y.iter().enumerate().take(columns - column) {
                    sums[at + k * pixel + j..][..BLOCK].copy_from_slice(y);
                }
            }
        }
    }
}
