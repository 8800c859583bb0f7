//! Convolution sums, a rectangle of output pixels at a time.
//!
//! The rows that a rectangle reads are copied once, transposed and with their zero padding, so that the inner loop
//! knows neither borders nor element types; the sums of the rectangle stay in cache until they are finished.

use std::cell::RefCell;
use std::ops::Range;

use super::amx::pairs::{POSITIONS, combine};
use super::amx::sums as tiles;
use super::gemm::{Product, Tiles, even_parts, multiply, tile_rows};
use super::kernel::Kernel;
use super::level::Level;
use super::memory::{Element, Floats};
use super::pairs;
use super::transpose::{Pixels, lanes, transpose_some};
use reseed_ops::Hw;

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
#[derive(Clone, Copy)]
pub struct Tap<'a, E> {
    /// Pixels of the frame.
    pub frame: &'a [E],
    /// Weights, ordered (row, column, channel) within a tap.
    pub kernel: &'a Kernel,
    /// Which part of them.
    pub part: usize,
}

/// Most temporal taps of a convolution.
pub const MOST_TAPS: usize = 3;

/// The temporal taps of an output frame.
pub struct Taps<'a, E> {
    taps: [Tap<'a, E>; MOST_TAPS],
    count: usize,
}

impl<'a, E: Element> Taps<'a, E> {
    pub fn new(taps: impl IntoIterator<Item = Tap<'a, E>>) -> Self {
        let mut taps = taps.into_iter();
        let mut all = [taps.next().expect("a frame has taps"); MOST_TAPS];
        let mut count = 1;
        for tap in taps {
            all[count] = tap;
            count += 1;
        }
        Taps { taps: all, count }
    }
}

impl<'a, E> std::ops::Deref for Taps<'a, E> {
    type Target = [Tap<'a, E>];
    fn deref(&self) -> &[Tap<'a, E>] {
        &self.taps[..self.count]
    }
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

/// Regions for each thread that let the last ones finish together.
pub const ENOUGH: usize = 4;

/// Cuts an output plane and its channels into regions, enough of them to keep `threads` busy.
pub fn regions(level: Level, output: Hw, window: &Window, panels: usize, frames: usize, threads: usize) -> Vec<Region> {
    // Columns of a tile's row.
    let unit = if pairs::fits(level, window) { 2 } else { 1 };
    let most = (COLUMNS / tile_rows(level) / unit).max(1);
    let across = output.w.div_ceil(unit * tile_rows(level)).min(most);
    let line = match unit {
        1 => window.channels * pitch(level, window) * window.stride.w,
        _ => pairs::line(level, window.channels),
    };
    let line = across * line * size_of::<f32>();
    let lines = (INPUT_BYTES / line.max(1)).saturating_sub(window.taps.h - 1) / window.stride.h;
    // Columns are dealt out by whole register tiles of even width, so that none is nearly empty.
    let tiles: Vec<(usize, usize)> = even_parts(output.w.div_ceil(unit), tile_rows(level)).collect();
    let groups: Vec<_> = even_parts(tiles.len(), most).collect();
    let planar = |rows: usize| output.h.div_ceil(rows) * groups.len() * frames;
    let rows = lines.clamp(1, ROWS);
    // Small planes get there by splitting the channels.
    let wanted = ENOUGH * threads;
    let splits = wanted.div_ceil(planar(rows)).clamp(1, panels);
    let most_panels = if unit == 1 { panels } else { pairs::PANELS };
    let mut all = Vec::new();
    for (y0, y1) in even_parts(output.h, rows) {
        for &(first, last) in &groups {
            let columns = unit * tiles[first].0..output.w.min(unit * tiles[last - 1].1);
            for (p0, p1) in even_parts(panels, panels.div_ceil(splits).min(most_panels)) {
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
    /// Pixels between rows.
    pub line: usize,
    /// Channels of a panel.
    pub width: usize,
    /// Pixels from a product of `amx/pairs.rs` to the next, where rows are not summed from theirs yet.
    pub position: Option<usize>,
}

impl Sums<'_> {
    /// The sums of a row. Rows of a pair are summed when the first is wanted.
    pub fn row(&mut self, level: Level, row: usize) -> &[f32] {
        let size = self.line * self.pixel;
        let at = match self.position.map(|pixels| pixels * self.pixel) {
            None => row * size,
            Some(position) => {
                let at = row / 2 * size;
                if row.is_multiple_of(2) {
                    let mut planes = self.values.chunks_mut(position);
                    let products =
                        std::array::from_fn(|_| &mut planes.next().expect("a plane for every position")[at..]);
                    combine(level, products, self.line, self.pixel);
                }
                at + row % 2 * (POSITIONS - 1) * position
            }
        };
        &self.values[at..self.values.len().min(at + size)]
    }
}

/// What a thread works in.
pub struct Scratch {
    /// Input of a region.
    pub input: Floats,
    /// Its sums.
    pub sums: Floats,
    /// A panel of weights as it is multiplied.
    pub panel: Floats,
    /// Products before they are summed.
    pub products: Floats,
    /// Pieces of a panel, widened.
    pub wide: [Floats; 3],
    /// Where each tap of a tile starts.
    runs: Vec<usize>,
}

impl Scratch {
    fn empty() -> Scratch {
        let [input, sums, panel, products] = std::array::from_fn(|_| Floats::zeros(0));
        Scratch { input, sums, panel, products, wide: std::array::from_fn(|_| Floats::zeros(0)), runs: Vec::new() }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::empty());
}

/// Computes a region's sums over the taps of some frames and hands them to `finish`, frame by frame and some panels at a
/// time.
pub fn sum_region<'a, E: Element>(
    level: Level,
    window: &Window,
    frames: Range<usize>,
    taps: &impl Fn(usize) -> Taps<'a, E>,
    region: &Region,
    finish: impl Fn(usize, Range<usize>, &mut Sums),
) {
    if let Kernel::Tiles(_) = taps(frames.start)[0].kernel {
        return tiles::sum_region(window, frames, taps, region, finish);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        for t in frames {
            let taps = taps(t);
            match pairs::fits(level, window) {
                true => pairs::sum(level, window, &taps, region, scratch),
                false => sum_directly(level, window, &taps, region, scratch),
            }
            let (line, width) = (region.columns.len(), taps[0].kernel.panels().width);
            let pixel = region.panels.len() * width;
            let values = scratch.sums.at_least(region.rows.len() * line * pixel);
            finish(t, region.panels.clone(), &mut Sums { values, pixel, line, width, position: None });
        }
    });
}

/// Sums of a region over `taps`, into `scratch.sums`.
fn sum_directly<E: Element>(level: Level, window: &Window, taps: &[Tap<E>], region: &Region, scratch: &mut Scratch) {
    let layout = Layout::new(level, window, region);
    let width = taps[0].kernel.panels().width;
    let pixel = region.panels.len() * width;
    let input = scratch.input.at_least(layout.tiles().count() * layout.tile);
    let sums = scratch.sums.at_least(region.rows.len() * region.columns.len() * pixel);
    let runs = &mut scratch.runs;
    runs.clear();
    runs.extend(layout.runs(window));
    let rows = runs.len() * window.channels;
    for (i, tap) in taps.iter().enumerate() {
        let k = tap.part * rows;
        layout.pack(tap.frame, window, input);
        for (slot, panel) in region.panels.clone().enumerate() {
            let product = Product {
                a: input,
                tiles: Tiles::Apart(layout.tile),
                a_line: window.stride.h * layout.line,
                a_step: layout.step,
                runs,
                steps: window.channels,
                b: tap.kernel.panels().rows(level, panel, k..k + rows, &mut scratch.panel),
                width,
                lines: region.rows.len(),
                columns: region.columns.len(),
                c: &mut sums[slot * width..],
                c_row: pixel,
                fresh: i == 0,
            };
            multiply(level, product);
        }
    }
}

/// Columns of equal stride phase that a register tile reads, in whole registers.
fn pitch(level: Level, window: &Window) -> usize {
    (tile_rows(level) + (window.taps.w - 1) / window.stride.w).next_multiple_of(lanes(level))
}

/// Where the input of a region stands in scratch: `[tile][line][channel][phase][column]`. Neighbouring tiles hold the
/// columns that both read, so that a channel of a tile is one cache line and a line of it stays near for all its taps.
struct Layout {
    level: Level,
    top: isize,
    left: isize,
    /// Output columns.
    columns: usize,
    pitch: usize,
    step: usize,
    line: usize,
    tile: usize,
}

impl Layout {
    fn new(level: Level, window: &Window, region: &Region) -> Layout {
        let Window { taps, stride, before, channels, .. } = *window;
        let lines = (region.rows.len() - 1) * stride.h + taps.h;
        let pitch = pitch(level, window);
        let step = pitch * stride.w;
        Layout {
            level,
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            columns: region.columns.len(),
            pitch,
            step,
            line: step * channels,
            tile: lines * step * channels,
        }
    }

    /// First output column of each tile, from the region's.
    fn tiles(&self) -> impl Iterator<Item = usize> {
        even_parts(self.columns, tile_rows(self.level)).map(|(first, _)| first)
    }

    /// Where each tap of a tile starts, row by row.
    fn runs(&self, window: &Window) -> impl Iterator<Item = usize> {
        let (Window { taps, stride, .. }, line, pitch) = (*window, self.line, self.pitch);
        (0..taps.h * taps.w).map(move |tap| {
            let (dy, dx) = (tap / taps.w, tap % taps.w);
            dy * line + dx % stride.w * pitch + dx / stride.w
        })
    }

    fn pack<E: Element>(&self, frame: &[E], window: &Window, to: &mut [f32]) {
        let Window { plane, channels, stride, .. } = *window;
        for (tile, to) in self.tiles().zip(to.chunks_exact_mut(self.tile)) {
            for (i, to) in to.chunks_exact_mut(self.line).enumerate() {
                let y = usize::try_from(self.top + i as isize).ok().filter(|&y| y < plane.h);
                let Some(y) = y else {
                    to.fill(0.0);
                    continue;
                };
                let row = &frame[y * plane.w * channels..][..plane.w * channels];
                for phase in 0..stride.w {
                    let first = self.left + (tile * stride.w + phase) as isize;
                    let pixels = Pixels { row, channels, part: 0..channels, first, step: stride.w, count: self.pitch };
                    transpose_some(self.level, pixels, &mut to[phase * self.pitch..], self.step);
                }
            }
        }
    }
}
