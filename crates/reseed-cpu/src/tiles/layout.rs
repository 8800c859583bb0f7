//! The layout of a region's input for tiles.
//!
//! The rows that a region reads are copied once for each frame, with their zero padding, as
//! `[chunk][line][phase][column]` of 64 bytes each, so that 16 neighbouring pixels are a tile and a tap is an offset.
//! With Winograd F(2,3) the lines are `[position][pair of output rows]`.

use half::bf16;

use super::shape::{DEPTH, SIDE};
use super::tile::RowTile;
use super::weights::TileWeights;
use super::winograd::{self, Line};
use crate::host::element::Element;
use crate::host::level::Level;
use crate::simd::dispatch::dispatch;
use crate::simd::region::{MOST_TAPS, Region, Tap, Window};
use crate::simd::transpose::Pixels;
use reseed_ops::Hw;

/// Pixels by which the input is prefetched while it is copied.
const AHEAD: usize = 8;

/// Layout of the input of a region, in elements, and of the tiles that cover its outputs.
pub struct Layout {
    top: isize,
    left: isize,
    /// Products of Winograd F(2,3), or 1.
    pub positions: usize,
    /// Lines of a position.
    lines: usize,
    /// Pixels of one phase of a line.
    pitch: usize,
    /// Elements of a line.
    line: usize,
    /// Stride between the input of an output row and that of the next.
    row_stride: usize,
    /// Elements of a chunk.
    chunk: usize,
    /// Output pixels of a row with its padding.
    pub slots: usize,
    /// Output pixels from the first to the last, with the padding between rows.
    outputs: usize,
}

impl Layout {
    pub fn new(window: &Window, region: &Region, positions: usize) -> Layout {
        let Window { taps, stride, before, .. } = *window;
        let (winograd, columns) = (positions > 1, region.columns.len());
        let rows = if winograd { region.rows.len().div_ceil(2) } else { region.rows.len() };
        let extra = (taps.w - 1) / stride.w;
        // Tiles either end with their row or continue across the padding into the next row, whichever needs fewer
        // tiles.
        let (separate, joined) = (columns.next_multiple_of(SIDE), columns + extra);
        let joins = stride == Hw::new(1, 1) && (rows * joined).div_ceil(SIDE) < rows * separate / SIDE;
        let slots = if joins { joined } else { separate };
        let pitch = if joins { joined } else { separate + extra };
        let line = pitch * stride.w * DEPTH;
        let lines = if winograd { rows } else { (rows - 1) * stride.h + taps.h };
        Layout {
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            positions,
            lines,
            pitch,
            line,
            row_stride: stride.h * line,
            // The last tile may read up to a tile after the last line.
            chunk: positions * lines * line + SIDE * DEPTH,
            slots,
            outputs: (rows - 1) * slots + columns,
        }
    }

    /// Elements of a position.
    pub fn position(&self) -> usize {
        self.lines * self.line
    }

    /// The tiles. The tiles of two neighbouring rows alternate, because they share input lines.
    pub fn row_tiles(&self) -> impl Iterator<Item = RowTile> {
        let (slots, row_stride, tiles) = (self.slots, self.row_stride, self.outputs.div_ceil(SIDE));
        // A tile that continues into the next row has no tile exactly above it.
        let across = if slots.is_multiple_of(SIDE) { slots / SIDE } else { tiles };
        (0..tiles).map(move |i| {
            let (pair, i) = (i / (2 * across), i % (2 * across));
            let tile = match (pair + 1) * 2 * across <= tiles {
                true => (2 * pair + i % 2) * across + i / 2,
                false => 2 * pair * across + i,
            };
            let slot = tile * SIDE;
            RowTile { a: slot / slots * row_stride + slot % slots * DEPTH, row: slot }
        })
    }

    /// Offset of each step of the first position of a frame: chunk by chunk, tap by tap.
    pub fn offsets(&self, window: &Window) -> impl Iterator<Item = usize> {
        let (Window { taps, stride, .. }, line, pitch) = (*window, self.line, self.pitch);
        let chunk = self.chunk;
        let rows = if self.positions > 1 { 1 } else { taps.h };
        let offset = move |tap: usize| {
            let (dy, dx) = (tap / taps.w, tap % taps.w);
            dy * line + (dx % stride.w * pitch + dx / stride.w) * DEPTH
        };
        (0..window.channels.div_ceil(DEPTH))
            .flat_map(move |i| (0..rows * taps.w).map(move |tap| i * chunk + offset(tap)))
    }

    /// Row `i` of the input of the region. A row outside the plane is empty.
    fn row<'a>(&self, frame: &'a [bf16], window: &Window, i: usize) -> &'a [bf16] {
        let Window { plane, channels, .. } = *window;
        let y = usize::try_from(self.top + i as isize).ok().filter(|&y| y < plane.h);
        y.map_or(&[], |y| &frame[y * plane.w * channels..][..plane.w * channels])
    }

    /// Copies, and for Winograd transforms, the lines of a frame.
    fn pack(&self, frame: &[bf16], window: &Window, to: &mut [bf16]) {
        let Window { channels, stride, .. } = *window;
        let (first, count) = (self.left, self.pitch);
        for (i, at) in (0..self.lines).map(|i| (i, i * self.line)) {
            if self.positions > 1 {
                let rows = std::array::from_fn(|k| self.row(frame, window, 2 * i + k));
                let (chunk, position) = (self.chunk, self.position());
                winograd::transform_input(&Line { rows, channels, first, count, chunk, position }, &mut to[at..]);
                continue;
            }
            let row = self.row(frame, window, i);
            for phase in 0..stride.w {
                let first = first + phase as isize;
                let pixels = Pixels { row, channels, part: 0..channels, first, step: stride.w, count };
                copy_chunks(Level::TILES.simd(), &pixels, &mut to[at + phase * count * DEPTH..], self.chunk);
            }
        }
    }
}

/// The frames whose part of a region is in scratch.
pub struct PackedFrames<'a, E> {
    window: &'a Window,
    layout: &'a Layout,
    /// Elements of a frame.
    pub frame: usize,
    slots: [Option<&'a [E]>; MOST_TAPS],
}

impl<'a, E: Element> PackedFrames<'a, E> {
    pub fn new(window: &'a Window, layout: &'a Layout) -> Self {
        let frame = window.channels.div_ceil(DEPTH) * layout.chunk;
        PackedFrames { window, layout, frame, slots: [None; MOST_TAPS] }
    }

    /// Copies the frames of `taps` that are not in scratch yet. Returns the offset of each frame.
    pub fn pack(&mut self, taps: &[Tap<'a, E, TileWeights>], input: &mut [bf16]) -> [usize; MOST_TAPS] {
        let mut offsets = [0; MOST_TAPS];
        for (offset, tap) in offsets.iter_mut().zip(taps) {
            let packed = self.slots.iter().position(|slot| slot.is_some_and(|frame| std::ptr::eq(frame, tap.frame)));
            let slot = packed.unwrap_or_else(|| {
                let needed = |frame: &[E]| taps.iter().any(|tap| std::ptr::eq(frame, tap.frame));
                let free = self.slots[..taps.len()].iter().position(|slot| !slot.is_some_and(needed));
                let slot = free.expect("there are as many slots as taps");
                let to = &mut input[slot * self.frame..][..self.frame];
                self.layout.pack(bytemuck::cast_slice(tap.frame), self.window, to);
                self.slots[slot] = Some(tap.frame);
                slot
            });
            *offset = slot * self.frame;
        }
        offsets
    }
}

/// Prefetches the cache lines of a pixel.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(pixel: &[bf16]) {
    for line in pixel.chunks(DEPTH) {
        // SAFETY: a prefetch may name any address, and every x86-64 CPU has it.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: &[bf16]) {}

dispatch! {
    /// Copies pixels to `[chunk][pixel]` with the stride `chunk_stride` between chunks. Pixels outside the row are
    /// zero.
    fn copy_chunks(pixels: &Pixels<bf16>, to: &mut [bf16], chunk_stride: usize) {
        for i in 0..pixels.count {
            prefetch(pixels.get(i + AHEAD).unwrap_or_default());
            let pixel = pixels.get(i).unwrap_or_default();
            let (whole, rest) = pixel.as_chunks::<DEPTH>();
            for (chunk, from) in whole.iter().enumerate() {
                to[chunk * chunk_stride + i * DEPTH..][..DEPTH].copy_from_slice(from);
            }
            for chunk in whole.len()..pixels.channels.div_ceil(DEPTH) {
                let to = &mut to[chunk * chunk_stride + i * DEPTH..][..DEPTH];
                let rest = if chunk == whole.len() { rest } else { &[] };
                to[..rest.len()].copy_from_slice(rest);
                to[rest.len()..].fill(bf16::ZERO);
            }
        }
    }
}
