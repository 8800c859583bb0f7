//! Convolution sums of a rectangle of output pixels.
//!
//! The rows that the rectangle reads are copied once for each frame, with their zero padding, as `[chunk][line][phase][column]`
//! of 64 bytes each, so that sixteen neighbouring pixels are a tile and a tap is an offset.

use std::cell::RefCell;

use half::bf16;

use super::tile::{Product, Tiles};
use super::weights::Tiled;
use super::{DEPTH, PANEL, SIDE};
use crate::cpu::blocked::{Region, Sums, Window};
use crate::cpu::gemm::even_parts;
use crate::cpu::level::Level;
use crate::cpu::leveled::leveled;
use crate::cpu::memory::{Floats, Values};
use crate::cpu::transpose::Pixels;
use crate::shape::{DType, Hw};

/// Bytes that a rectangle's input and sums may take of a core's second-level cache.
const BYTES: usize = 5 << 18;
/// Most columns of a rectangle.
const COLUMNS: usize = 128;
/// Most rows of a rectangle.
const ROWS: usize = 32;
/// Most panels of a rectangle.
const PANELS: usize = 8;
/// Steps between two visits to memory of the sums; a panel's weights for them are read again for every two tiles.
const STEPS: usize = 72;
/// Floats between the sums of neighbouring pixels beside their channels: without them rows of a tile would share sets of
/// the cache.
const GAP: usize = SIDE;

/// Whether tiles are worth it.
pub fn fits(channels: usize) -> bool {
    channels >= SIDE
}

/// One temporal tap: a frame, and the part of the weights that multiplies it.
pub struct Tap<'a> {
    /// Pixels of the frame.
    pub frame: &'a [bf16],
    /// Weights.
    pub weights: &'a Tiled,
    /// Part of the weights.
    pub part: usize,
}

/// Cuts an output plane and its channels into regions, enough of them to keep `threads` busy.
pub fn regions(output: Hw, window: &Window, panels: usize, frames: usize, threads: usize) -> Vec<Region> {
    let area = window.stride.h * window.stride.w;
    let pixel =
        |panels: usize| 2 * window.channels.next_multiple_of(DEPTH) * area + size_of::<f32>() * (panels * PANEL + GAP);
    let groups: Vec<_> = even_parts(output.w.div_ceil(SIDE), COLUMNS / SIDE).collect();
    let columns = groups.iter().map(|(first, last)| SIDE * (last - first)).max().unwrap_or(SIDE).min(output.w);
    let rows = (BYTES / pixel(panels.min(PANELS)) / columns).clamp(1, ROWS);
    // Four regions a thread let the last ones finish together; small planes get there by splitting the channels, never
    // the pixels, whose statistics must not depend on threads.
    let planar = output.h.div_ceil(rows) * groups.len() * frames;
    let splits = (4 * threads).div_ceil(planar).clamp(1, panels);
    let mut all = Vec::new();
    for (y0, y1) in even_parts(output.h, rows) {
        for &(first, last) in &groups {
            let columns = SIDE * first..output.w.min(SIDE * last);
            for (p0, p1) in even_parts(panels, panels.div_ceil(splits).min(PANELS)) {
                all.push(Region { rows: y0..y1, columns: columns.clone(), panels: p0..p1 });
            }
        }
    }
    all
}

/// What a thread works in.
struct Scratch {
    input: Values,
    sums: Floats,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { input: Values::zeros(0, DType::Bf16), sums: Floats::zeros(0) });
}

/// Computes a region's sums over `taps` and hands them to `finish`.
pub fn sum_region<R>(window: &Window, taps: &[Tap], region: &Region, finish: impl FnOnce(Sums) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let layout = Layout::new(window, region);
        let pixel = pixel(region);
        let input = scratch.input.at_least(taps[0].weights.chunks * layout.chunk);
        let sums = scratch.sums.at_least(layout.starts.len() * SIDE * pixel);
        layout.sum(window, taps, region, input, sums);
        finish(Sums { values: sums, pixel, line: layout.slots, width: PANEL })
    })
}

/// Floats between the sums of neighbouring pixels.
fn pixel(region: &Region) -> usize {
    region.panels.len() * PANEL + GAP
}

/// Where the input of a region stands, counted in elements, and how tiles cover its outputs.
struct Layout {
    top: isize,
    left: isize,
    lines: usize,
    /// Pixels of a line and phase.
    pitch: usize,
    /// Elements of a line.
    line: usize,
    /// Elements of a chunk.
    chunk: usize,
    /// Outputs of a row with what lies between it and the next.
    slots: usize,
    /// Where each tile reads its first tap.
    starts: Vec<usize>,
}

impl Layout {
    fn new(window: &Window, region: &Region) -> Layout {
        let Window { taps, stride, before, .. } = *window;
        let (rows, columns) = (region.rows.len(), region.columns.len());
        let beyond = (taps.w - 1) / stride.w;
        // Tiles either end with their row or run on into the next across its padding, whichever are fewer.
        let (apart, joined) = (columns.next_multiple_of(SIDE), columns + beyond);
        let joins = stride == Hw::new(1, 1) && (rows * joined).div_ceil(SIDE) < rows * apart / SIDE;
        let slots = if joins { joined } else { apart };
        let pitch = if joins { joined } else { apart + beyond };
        let line = pitch * stride.w * DEPTH;
        let lines = (rows - 1) * stride.h + taps.h;
        let tiles = (0..((rows - 1) * slots + columns).div_ceil(SIDE)).map(|tile| tile * SIDE);
        Layout {
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            lines,
            pitch,
            line,
            // The last tile may read a tile's length beyond the last line.
            chunk: lines * line + SIDE * DEPTH,
            slots,
            starts: tiles.map(|slot| slot / slots * stride.h * line + slot % slots * DEPTH).collect(),
        }
    }

    fn sum(&self, window: &Window, taps: &[Tap], region: &Region, input: &mut [bf16], sums: &mut [f32]) {
        let tiles = Tiles::shaped(SIDE);
        let offsets = self.offsets(window);
        let chunks = taps[0].weights.chunks;
        let group = (STEPS / offsets.len()).max(1);
        let runs: Vec<usize> =
            (0..group).flat_map(|chunk| offsets.iter().map(move |offset| chunk * self.chunk + offset)).collect();
        let mut fresh = true;
        for tap in taps {
            self.pack(tap.frame, window, input);
            for first in (0..chunks).step_by(group) {
                let some = first..chunks.min(first + group);
                for (slot, panel) in region.panels.clone().enumerate() {
                    tiles.multiply(Product {
                        a: &input[first * self.chunk..],
                        a_row: DEPTH,
                        starts: &self.starts,
                        runs: &runs[..some.len() * offsets.len()],
                        b: tap.weights.steps(tap.part, panel, some.clone()),
                        c: &mut sums[slot * PANEL..],
                        c_row: pixel(region),
                        columns: tap.weights.columns(panel),
                        fresh,
                    });
                }
                fresh = false;
            }
        }
    }

    /// Where each tap reads, row by row.
    fn offsets(&self, window: &Window) -> Vec<usize> {
        let Window { taps, stride, .. } = *window;
        let offset = |tap: usize| {
            let (dy, dx) = (tap / taps.w, tap % taps.w);
            dy * self.line + (dx % stride.w * self.pitch + dx / stride.w) * DEPTH
        };
        (0..taps.h * taps.w).map(offset).collect()
    }

    /// Copies the lines of a frame.
    fn pack(&self, frame: &[bf16], window: &Window, to: &mut [bf16]) {
        let Window { plane, channels, stride, .. } = *window;
        for i in 0..self.lines {
            let y = usize::try_from(self.top + i as isize).ok().filter(|&y| y < plane.h);
            let row = y.map_or(&[][..], |y| &frame[y * plane.w * channels..][..plane.w * channels]);
            for phase in 0..stride.w {
                let first = self.left + phase as isize;
                let pixels = Pixels { row, channels, part: 0..channels, first, step: stride.w, count: self.pitch };
                let at = i * self.line + phase * self.pitch * DEPTH;
                spread(Level::Avx512, &pixels, &mut to[at..], self.chunk);
            }
        }
    }
}

leveled! {
    /// Pixels chunk by chunk, `apart` elements from one to the next; zeros where there is none.
    pub fn spread(pixels: &Pixels<bf16>, to: &mut [bf16], apart: usize) {
        for i in 0..pixels.count {
            let pixel = pixels.get(i).unwrap_or_default();
            let (whole, rest) = pixel.as_chunks::<DEPTH>();
            for (chunk, from) in whole.iter().enumerate() {
                to[chunk * apart + i * DEPTH..][..DEPTH].copy_from_slice(from);
            }
            for chunk in whole.len()..pixels.channels.div_ceil(DEPTH) {
                let to = &mut to[chunk * apart + i * DEPTH..][..DEPTH];
                let rest = if chunk == whole.len() { rest } else { &[] };
                to[..rest.len()].copy_from_slice(rest);
                to[rest.len()..].fill(bf16::ZERO);
            }
        }
    }
}
