//! Where a region's input stands, and how tiles read it.
//!
//! The rows that a region reads are copied once for each frame, with their zero padding, as `[chunk][line][phase][column]`
//! of 64 bytes each, so that sixteen neighbouring pixels are a tile and a tap is an offset. Where two rows are computed at a
//! time, lines are `[position][pair of rows]`.

use half::bf16;

use super::pairs::{self, Line};
use super::tile::Place;
use super::{DEPTH, SIDE};
use crate::blocked::{MOST_TAPS, Region, Tap, Window};
use crate::level::Level;
use crate::leveled::leveled;
use crate::memory::Element;
use crate::transpose::Pixels;
use reseed_ops::Hw;

/// Pixels by which input is prefetched ahead while it is copied.
const AHEAD: usize = 8;

/// Where the input of a region stands, counted in elements, and how tiles cover its outputs.
pub struct Layout {
    top: isize,
    left: isize,
    /// Positions of `pairs.rs`, or one.
    pub positions: usize,
    /// Lines of a position.
    lines: usize,
    /// Pixels of a line and phase.
    pitch: usize,
    /// Elements of a line.
    line: usize,
    /// Elements from what a row of outputs reads to what the next does.
    below: usize,
    /// Elements of a chunk.
    chunk: usize,
    /// Outputs of a row with what lies between it and the next.
    pub slots: usize,
    /// Outputs from the first to the last.
    outputs: usize,
}

impl Layout {
    pub fn new(window: &Window, region: &Region, positions: usize) -> Layout {
        let Window { taps, stride, before, .. } = *window;
        let (paired, columns) = (positions > 1, region.columns.len());
        let rows = if paired { region.rows.len().div_ceil(2) } else { region.rows.len() };
        let beyond = (taps.w - 1) / stride.w;
        // Tiles either end with their row or run on into the next across its padding, whichever are fewer.
        let (apart, joined) = (columns.next_multiple_of(SIDE), columns + beyond);
        let joins = stride == Hw::new(1, 1) && (rows * joined).div_ceil(SIDE) < rows * apart / SIDE;
        let slots = if joins { joined } else { apart };
        let pitch = if joins { joined } else { apart + beyond };
        let line = pitch * stride.w * DEPTH;
        let lines = if paired { rows } else { (rows - 1) * stride.h + taps.h };
        Layout {
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            positions,
            lines,
            pitch,
            line,
            below: stride.h * line,
            // The last tile may read a tile's length beyond the last line.
            chunk: positions * lines * line + SIDE * DEPTH,
            slots,
            outputs: (rows - 1) * slots + columns,
        }
    }

    /// Elements of a position.
    pub fn position(&self) -> usize {
        self.lines * self.line
    }

    /// The tiles, those of two rows side by side: they share lines of the input.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let (slots, below, tiles) = (self.slots, self.below, self.outputs.div_ceil(SIDE));
        // Tiles that run on into the next row have none above them.
        let across = if slots.is_multiple_of(SIDE) { slots / SIDE } else { tiles };
        (0..tiles).map(move |i| {
            let (pair, i) = (i / (2 * across), i % (2 * across));
            let tile = match (pair + 1) * 2 * across <= tiles {
                true => (2 * pair + i % 2) * across + i / 2,
                false => 2 * pair * across + i,
            };
            let slot = tile * SIDE;
            Place { a: slot / slots * below + slot % slots * DEPTH, row: slot }
        })
    }

    /// Where each step of a frame's first position reads: chunk by chunk, row by row.
    pub fn runs(&self, window: &Window) -> impl Iterator<Item = usize> {
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

    /// Row `i` of those that the region reads, empty where it lies outside the plane.
    fn row<'a>(&self, frame: &'a [bf16], window: &Window, i: usize) -> &'a [bf16] {
        let Window { plane, channels, .. } = *window;
        let y = usize::try_from(self.top + i as isize).ok().filter(|&y| y < plane.h);
        y.map_or(&[], |y| &frame[y * plane.w * channels..][..plane.w * channels])
    }

    /// Copies the lines of a frame.
    fn pack(&self, frame: &[bf16], window: &Window, to: &mut [bf16]) {
        let Window { channels, stride, .. } = *window;
        let (first, count) = (self.left, self.pitch);
        for (i, at) in (0..self.lines).map(|i| (i, i * self.line)) {
            if self.positions > 1 {
                let rows = std::array::from_fn(|k| self.row(frame, window, 2 * i + k));
                let (chunk, position) = (self.chunk, self.position());
                pairs::spread(&Line { rows, channels, first, count, chunk, position }, &mut to[at..]);
                continue;
            }
            let row = self.row(frame, window, i);
            for phase in 0..stride.w {
                let first = first + phase as isize;
                let pixels = Pixels { row, channels, part: 0..channels, first, step: stride.w, count };
                spread(Level::Avx512, &pixels, &mut to[at + phase * count * DEPTH..], self.chunk);
            }
        }
    }
}

/// Frames whose part of a region has been copied.
pub struct Held<'a, E> {
    window: &'a Window,
    layout: &'a Layout,
    /// Elements of a frame.
    pub frame: usize,
    slots: [Option<&'a [E]>; MOST_TAPS],
}

impl<'a, E: Element> Held<'a, E> {
    pub fn new(window: &'a Window, layout: &'a Layout) -> Self {
        let frame = window.channels.div_ceil(DEPTH) * layout.chunk;
        Held { window, layout, frame, slots: [None; MOST_TAPS] }
    }

    /// Copies what is not there yet of the frames of `taps`, and tells where each is.
    pub fn pack(&mut self, taps: &[Tap<'a, E>], input: &mut [bf16]) -> [usize; MOST_TAPS] {
        let mut places = [0; MOST_TAPS];
        for (place, tap) in places.iter_mut().zip(taps) {
            let there = self.slots.iter().position(|slot| slot.is_some_and(|frame| std::ptr::eq(frame, tap.frame)));
            let slot = there.unwrap_or_else(|| {
                let needed = |frame: &[E]| taps.iter().any(|tap| std::ptr::eq(frame, tap.frame));
                let free = self.slots[..taps.len()].iter().position(|slot| !slot.is_some_and(needed));
                let slot = free.expect("as many slots as taps");
                let to = &mut input[slot * self.frame..][..self.frame];
                self.layout.pack(bytemuck::cast_slice(tap.frame), self.window, to);
                self.slots[slot] = Some(tap.frame);
                slot
            });
            *place = slot * self.frame;
        }
        places
    }
}

/// Asks for the cache lines of a pixel.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(pixel: &[bf16]) {
    for line in pixel.chunks(DEPTH) {
        // SAFETY: a prefetch touches nothing.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: &[bf16]) {}

leveled! {
    /// Pixels chunk by chunk, `apart` elements from one to the next; zeros where there is none.
    fn spread(pixels: &Pixels<bf16>, to: &mut [bf16], apart: usize) {
        for i in 0..pixels.count {
            prefetch(pixels.get(i + AHEAD).unwrap_or_default());
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
