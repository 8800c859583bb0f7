//! Convolution sums, a rectangle of output pixels at a time.
//!
//! The rows that a rectangle reads are copied once, transposed and with their zero padding, so that the inner loop
//! knows neither borders nor element types; the sums of the rectangle stay in cache until they are finished.

use std::cell::RefCell;
use std::ops::Range;

use super::gemm::{Product, even_parts, multiply, tile_rows};
use super::level::Level;
use super::memory::{Element, Floats};
use super::panels::Weights;
use super::transpose::transpose_every;
use crate::shape::Hw;

/// Most columns of a rectangle.
const COLUMNS: usize = 56;
/// Most rows of a rectangle.
const ROWS: usize = 8;
/// Bytes that a rectangle's input may take of a core's second-level cache.
const INPUT_BYTES: usize = 768 << 10;

/// The spatial side of a convolution.
#[derive(Clone, Copy)]
pub struct Window {
    /// Size of an input frame.
    pub plane: Hw,
    /// Channels of an input pixel.
    pub channels: usize,
    /// Rows and columns of the kernel.
    pub taps: Hw,
    /// Step between outputs.
    pub stride: Hw,
    /// Zero rows above and columns to the left of the plane.
    pub before: Hw,
}

/// One temporal tap: a frame, and the rows of the panels that multiply it.
pub struct Tap<'a, E> {
    /// Pixels of the frame.
    pub frame: &'a [E],
    /// Weights, ordered (column, row, channel) within a tap.
    pub panels: &'a Weights,
    /// First row of this tap in the panels.
    pub k: usize,
}

/// A rectangle of outputs and the panels of output channels to compute for it.
#[derive(Clone, Debug)]
pub struct Region {
    /// Rows.
    pub rows: Range<usize>,
    /// Columns.
    pub columns: Range<usize>,
    /// Panels.
    pub panels: Range<usize>,
}

/// Cuts an output plane and its channels into regions, enough of them to keep `threads` busy.
pub fn regions(level: Level, output: Hw, window: &Window, panels: usize, frames: usize, threads: usize) -> Vec<Region> {
    let columns = output.w.min(COLUMNS);
    let line = window.channels * (columns * window.stride.w + window.taps.w) * size_of::<f32>();
    let lines = (INPUT_BYTES / line.max(1)).saturating_sub(window.taps.h - 1) / window.stride.h;
    // Columns are dealt out by whole register tiles of even width, so that none is nearly empty.
    let tiles: Vec<(usize, usize)> = even_parts(output.w, tile_rows(level)).collect();
    let groups: Vec<_> = even_parts(tiles.len(), COLUMNS / tile_rows(level)).collect();
    let planar = |rows: usize| output.h.div_ceil(rows) * groups.len() * frames;
    let rows = lines.clamp(1, ROWS);
    // Four regions a thread let the last ones finish together; small planes get there by splitting the channels.
    let wanted = 4 * threads;
    let splits = wanted.div_ceil(planar(rows)).clamp(1, panels);
    let mut all = Vec::new();
    for (y0, y1) in even_parts(output.h, rows) {
        for &(first, last) in &groups {
            let columns = tiles[first].0..tiles[last - 1].1;
            for (p0, p1) in even_parts(panels, panels.div_ceil(splits)) {
                all.push(Region { rows: y0..y1, columns: columns.clone(), panels: p0..p1 });
            }
        }
    }
    all
}

/// Sums of a region: `[row][column][channel]`, channels of the region's panels, padded to whole panels.
pub struct Sums<'a> {
    /// The values.
    pub values: &'a mut [f32],
    /// Distance between pixels.
    pub pixel: usize,
}

struct Scratch {
    input: Floats,
    sums: Floats,
    panel: Floats,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch { input: Floats::zeros(0), sums: Floats::zeros(0), panel: Floats::zeros(0) });
}

/// Computes a region's sums over `taps` and hands them to `finish`.
pub fn sum_region<E: Element, R>(
    level: Level,
    window: &Window,
    taps: &[Tap<E>],
    region: &Region,
    finish: impl FnOnce(Sums) -> R,
) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let layout = Layout::new(window, region);
        let width = taps[0].panels.width;
        let pixel = region.panels.len() * width;
        let input = scratch.input.at_least(layout.lines * layout.line);
        let sums = scratch.sums.at_least(region.rows.len() * region.columns.len() * pixel);
        let runs: Vec<usize> = (0..window.taps.w).map(|dx| layout.column(dx)).collect();
        let steps = window.taps.h * window.channels;
        let rows = runs.len() * steps;
        for (i, tap) in taps.iter().enumerate() {
            layout.pack(level, tap.frame, window, input);
            for (slot, panel) in region.panels.clone().enumerate() {
                multiply(
                    level,
                    Product {
                        a: input,
                        a_line: window.stride.h * layout.line,
                        a_step: layout.pitch,
                        runs: &runs,
                        steps,
                        b: tap.panels.rows(level, panel, tap.k..tap.k + rows, &mut scratch.panel),
                        lines: region.rows.len(),
                        columns: region.columns.len(),
                        c: &mut sums[slot * width..],
                        c_row: pixel,
                        fresh: i == 0,
                    },
                );
            }
        }
        finish(Sums { values: sums, pixel })
    })
}

/// Where the input of a region stands in scratch: `[line][channel][column]`, columns of equal stride phase together.
struct Layout {
    top: isize,
    left: isize,
    lines: usize,
    columns: usize,
    phase: usize,
    pitch: usize,
    line: usize,
    stride: usize,
}

impl Layout {
    fn new(window: &Window, region: &Region) -> Layout {
        let Window { taps, stride, before, channels, .. } = *window;
        let columns = (region.columns.len() - 1) * stride.w + taps.w;
        let phase = columns.div_ceil(stride.w);
        // Whole cache lines, so that a tile's rows straddle as few as possible.
        let pitch = (phase * stride.w).next_multiple_of(16);
        Layout {
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            lines: (region.rows.len() - 1) * stride.h + taps.h,
            columns,
            phase,
            pitch,
            line: pitch * channels,
            stride: stride.w,
        }
    }

    fn column(&self, x: usize) -> usize {
        x % self.stride * self.phase + x / self.stride
    }

    fn pack<E: Element>(&self, level: Level, frame: &[E], window: &Window, to: &mut [f32]) {
        let Window { plane, channels, .. } = *window;
        let inside = |start: isize, count: usize, size: usize| {
            let first = (-start).clamp(0, count as isize) as usize;
            let last = (size as isize - start).clamp(first as isize, count as isize) as usize;
            first..last
        };
        let columns = inside(self.left, self.columns, plane.w);
        let lines = inside(self.top, self.lines, plane.h);
        for (i, line) in to.chunks_exact_mut(self.line).enumerate().take(self.lines) {
            if !lines.contains(&i) || columns.is_empty() {
                line.fill(0.0);
                continue;
            }
            let y = (self.top + i as isize) as usize;
            let x = (self.left + columns.start as isize) as usize;
            let pixels = &frame[(y * plane.w + x) * channels..][..columns.len() * channels];
            if columns.len() < self.columns {
                line.fill(0.0);
            }
            for phase in 0..self.stride.min(columns.len()) {
                let pixels = &pixels[phase * channels..];
                let to = &mut line[self.column(columns.start + phase)..];
                transpose_every(self.stride, level, pixels, channels, to, self.pitch);
            }
        }
    }
}
