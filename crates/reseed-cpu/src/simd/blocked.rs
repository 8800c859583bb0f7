//! Convolution sums, one region of output pixels at a time.
//!
//! The input of a region is copied once, in f32 and with its zero padding, so that the inner loop handles neither
//! borders nor element types. The sums of the region stay in cache until the epilogue has stored them.

use std::cell::RefCell;
use std::ops::Range;

use super::blocks::{copy_blocks, copy_pixels, floats};
use super::gemm::{BLOCK, Product, Rows, STEM, even_parts, multiply, tile_rows};
use super::input_cache::InputCache;
use super::panels::Weights;
use super::region::{REGIONS_PER_THREAD, Region, Tap, Taps, Window};
use super::region_sums::RegionSums;
use super::transpose::Pixels;
use super::winograd;
use crate::host::buffer::Floats;
use crate::host::element::Element;
use crate::host::level::Level;
use reseed_ops::Hw;

/// Most columns of a region.
pub const COLUMNS: usize = 56;
/// Most rows of a region.
const ROWS: usize = 8;
/// Bytes of a core's second-level cache that the input of a region may occupy.
const INPUT_BYTES: usize = 768 << 10;

/// Splits an output plane and its channels into enough regions to keep `threads` busy.
pub fn regions(level: Level, output: Hw, window: &Window, panels: usize, frames: usize, threads: usize) -> Vec<Region> {
    // Output columns per row of a register tile.
    let unit = if winograd::supports(level, window) { winograd::COLUMNS_AT_ONCE } else { 1 };
    let most = (COLUMNS / tile_rows(level) / unit).max(1);
    let across = output.w.div_ceil(unit * tile_rows(level)).min(most);
    let columns = across * tile_rows(level);
    let line = match unit {
        1 => floats(window.stride.w * phase_columns(window, columns), window.channels),
        _ => winograd::input_line(columns, window.channels),
    };
    let line = line * size_of::<f32>();
    let lines = (INPUT_BYTES / line.max(1)).saturating_sub(window.taps.h - 1) / window.stride.h;
    // Columns are split into register tiles of nearly equal width, so that none is almost empty.
    let tiles: Vec<(usize, usize)> = even_parts(output.w.div_ceil(unit), tile_rows(level)).collect();
    let groups: Vec<_> = even_parts(tiles.len(), most).collect();
    let planar = |rows: usize| output.h.div_ceil(rows) * groups.len() * frames;
    let rows = lines.clamp(1, ROWS);
    // A small plane gets enough regions by a split of its channels.
    let wanted = REGIONS_PER_THREAD * threads;
    let splits = wanted.div_ceil(planar(rows)).clamp(1, panels);
    let most_panels = if unit == 1 { panels } else { winograd::PANELS };
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

/// The buffers of one thread.
pub struct Scratch {
    /// Input of a region.
    pub input: InputCache,
    /// Sums of a region.
    pub sums: Floats,
    /// A panel of weights in f32.
    pub panel: Floats,
    /// Winograd products before the output transform.
    pub products: Floats,
    /// Rows of a panel in f32.
    pub wide: [Floats; 4],
    /// Offset of each tap in a tile.
    runs: Vec<usize>,
}

impl Scratch {
    fn empty() -> Scratch {
        let [sums, panel, products] = std::array::from_fn(|_| Floats::zeros(0));
        let input = InputCache::empty();
        Scratch { input, sums, panel, products, wide: std::array::from_fn(|_| Floats::zeros(0)), runs: Vec::new() }
    }
}

/// Runs `work` with the buffers of this thread and no kept input.
pub fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.input.clear();
        work(scratch)
    })
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::empty());
}

/// Computes the sums of a region over the taps of each frame, and passes them to `finish` frame by frame.
pub fn sum_region<'a, E: Element>(
    level: Level,
    window: &Window,
    frames: Range<usize>,
    taps: &impl Fn(usize) -> Taps<'a, E, Weights>,
    region: &Region,
    finish: impl Fn(usize, Range<usize>, &mut RegionSums),
) {
    with_scratch(|scratch| {
        for t in frames {
            let taps = taps(t);
            match winograd::supports(level, window) {
                true => winograd::sum(level, window, &taps, region, scratch),
                false => sum_direct(level, window, &taps, region, scratch),
            }
            let (line, width) = (region.columns.len(), taps[0].weights.width);
            let pixel = region.panels.len() * width;
            let values = scratch.sums.at_least(region.rows.len() * line * pixel);
            finish(t, region.panels.clone(), &mut RegionSums { values, pixel, line, width, position: None });
        }
    });
}

/// Computes the sums of a region over `taps` into `scratch.sums`, without Winograd.
fn sum_direct<E: Element>(
    level: Level,
    window: &Window,
    taps: &[Tap<E, Weights>],
    region: &Region,
    scratch: &mut Scratch,
) {
    let layout = Layout::new(level, window, region);
    let width = taps[0].weights.width;
    let pixel = region.panels.len() * width;
    let count = ((region.rows.len() - 1) * window.stride.h + window.taps.h) * layout.line;
    let sums = scratch.sums.at_least(region.rows.len() * region.columns.len() * pixel);
    let runs = &mut scratch.runs;
    runs.clear();
    runs.extend(layout.runs(window));
    let rows = window.taps.h * window.taps.w * window.channels;
    for (i, tap) in taps.iter().enumerate() {
        let k = tap.part * rows;
        let input = scratch.input.packed(tap.frame, count, |frame, to| layout.pack(frame, window, to));
        for (slot, panel) in region.panels.clone().enumerate() {
            let product = Product {
                a: input,
                rows: if layout.pixels { Rows::Pixels } else { Rows::Blocks },
                a_line: window.stride.h * layout.line,
                a_step: layout.columns * BLOCK,
                runs,
                steps: rows / runs.len(),
                b: tap.weights.rows(level, panel, k..k + rows, &mut scratch.panel),
                width,
                lines: region.rows.len(),
                columns: region.columns.len(),
                c: &mut sums[slot * width..],
                c_row: pixel,
                accumulate: i > 0,
            };
            multiply(level, product);
        }
    }
}

/// Input columns of one stride phase that some output columns read.
fn phase_columns(window: &Window, columns: usize) -> usize {
    columns + (window.taps.w - 1) / window.stride.w
}

/// Layout of a region's input in scratch: `[line][phase][block of channels][column][BLOCK]`, or, where the input is an
/// image, `[line][column][channel]`, so that all taps of a row are one run.
struct Layout {
    level: Level,
    /// Whether the input is an image.
    pixels: bool,
    top: isize,
    left: isize,
    /// Input columns of a phase.
    columns: usize,
    phase: usize,
    line: usize,
}

impl Layout {
    fn new(level: Level, window: &Window, region: &Region) -> Layout {
        let Window { stride, before, channels, .. } = *window;
        let columns = phase_columns(window, region.columns.len());
        let pixels = channels == STEM && stride.w == 1;
        let phase = if pixels { columns * channels } else { floats(columns, channels) };
        Layout {
            level,
            pixels,
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            columns,
            phase,
            line: stride.w * phase,
        }
    }

    /// Offset of each tap, or of each row of taps, row by row.
    fn runs(&self, window: &Window) -> impl Iterator<Item = usize> {
        let (Window { taps, stride, .. }, line, phase) = (*window, self.line, self.phase);
        let columns = if self.pixels { 1 } else { taps.w };
        (0..taps.h * columns).map(move |tap| {
            let (dy, dx) = (tap / columns, tap % columns);
            dy * line + dx % stride.w * phase + dx / stride.w * BLOCK
        })
    }

    fn pack<E: Element>(&self, frame: &[E], window: &Window, to: &mut [f32]) {
        let Window { plane, channels, stride, .. } = *window;
        for (i, to) in to.chunks_exact_mut(self.line).enumerate() {
            let y = usize::try_from(self.top + i as isize).ok().filter(|&y| y < plane.h);
            let Some(y) = y else {
                to.fill(0.0);
                continue;
            };
            let row = &frame[y * plane.w * channels..][..plane.w * channels];
            for (phase, to) in to.chunks_exact_mut(self.phase).enumerate() {
                let first = self.left + phase as isize;
                let (part, step, count) = (0..channels, stride.w, self.columns);
                if self.pixels {
                    copy_pixels(&Pixels { row, channels, part, first, step, count }, to);
                    continue;
                }
                copy_blocks(self.level, Pixels { row, channels, part, first, step, count }, plane.w * channels, to);
            }
        }
    }
}
