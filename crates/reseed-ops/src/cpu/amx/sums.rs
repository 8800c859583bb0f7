//! Convolution sums of a rectangle of output pixels.
//!
//! The rows that the rectangle reads are copied once for each frame, with their zero padding, as `[chunk][line][phase][column]`
//! of 64 bytes each, so that sixteen neighbouring pixels are a tile and a tap is an offset.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;

use super::tile::{Place, Product, Step, Tiles};
use super::weights::Tiled;
use super::{DEPTH, PANEL, SIDE};
use crate::cpu::blocked::{ENOUGH, MOST_TAPS, Region, Sums, Tap, Taps, Window};
use crate::cpu::gemm::even_parts;
use crate::cpu::level::Level;
use crate::cpu::leveled::leveled;
use crate::cpu::memory::{Element, Floats, Values};
use crate::cpu::transpose::Pixels;
use crate::shape::{DType, Hw};

/// Bytes that a rectangle's input and sums may take of a core's second-level cache.
const BYTES: usize = 5 << 18;
/// The same where all frames of its input are held at once: weights that are few enough for that stay in the cache too.
const HELD_BYTES: usize = 9 << 16;
/// Pixels of a rectangle that are worth holding all frames of its input at once.
const PIXELS: usize = 512;
/// Most columns of a rectangle.
const COLUMNS: usize = 64;
/// Most rows of a rectangle.
const ROWS: usize = 32;
/// Most panels of a rectangle.
const PANELS: usize = 8;
/// Most steps between two visits to memory of the sums; a panel's weights for them are read again for every two tiles.
const STEPS: usize = 108;
/// Floats between the sums of neighbouring pixels beside their channels: without them rows of a tile would share sets of
/// the cache.
const GAP: usize = SIDE;

/// Pixels by which input is fetched ahead while it is copied.
const AHEAD: usize = 8;

/// Whether tiles are worth it.
pub fn fits(channels: usize) -> bool {
    channels >= SIDE
}

/// Frames of a rectangle's input that are held at once, of those that `taps` read: all where that leaves the rectangle
/// large enough. Its sums are then finished panel by panel.
fn held(window: &Window, taps: usize) -> usize {
    match HELD_BYTES / pixel_bytes(window, taps, 1) >= PIXELS {
        true => taps,
        false => 1,
    }
}

fn pixel_bytes(window: &Window, frames: usize, panels: usize) -> usize {
    let inputs = frames * window.stride.h * window.stride.w;
    2 * window.channels.next_multiple_of(DEPTH) * inputs + size_of::<f32>() * (panels * PANEL + GAP)
}

/// Cuts an output plane and its channels into regions, enough of them to keep `threads` busy.
pub fn regions(output: Hw, window: &Window, weights: &Tiled, frames: usize, threads: usize) -> Vec<Region> {
    let (parts, panels) = (weights.parts(), weights.count());
    let held = held(window, parts);
    let most = if held < parts { PANELS.min(panels) } else { panels };
    let rectangle = match held < parts {
        true => BYTES / pixel_bytes(window, held, most),
        false => HELD_BYTES / pixel_bytes(window, held, 1),
    };
    let groups: Vec<_> = even_parts(output.w.div_ceil(SIDE), COLUMNS / SIDE).collect();
    let columns = groups.iter().map(|(first, last)| SIDE * (last - first)).max().unwrap_or(SIDE).min(output.w);
    let rows = (rectangle / columns).clamp(1, ROWS);
    // Small planes get enough regions by splitting the channels, never the pixels, whose statistics must not depend on
    // threads.
    let planar = output.h.div_ceil(rows) * groups.len() * frames;
    let splits = (ENOUGH * threads).div_ceil(planar).clamp(1, panels);
    let mut all = Vec::new();
    for (y0, y1) in even_parts(output.h, rows) {
        for &(first, last) in &groups {
            let columns = SIDE * first..output.w.min(SIDE * last);
            for (p0, p1) in even_parts(panels, panels.div_ceil(splits).min(most)) {
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
    /// The tiles of the output.
    places: Vec<Place>,
    /// Where each step of a frame reads, from a tile's start.
    runs: Vec<usize>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: Values::zeros(0, DType::Bf16),
        sums: Floats::zeros(0),
        places: Vec::new(),
        runs: Vec::new(),
    });
}

/// Computes a region's sums over the taps of some frames and hands them to `finish`, frame by frame and some panels at a
/// time. Neighbouring frames share their input.
pub fn sum_region<'a, E: Element>(
    window: &Window,
    frames: Range<usize>,
    taps: &impl Fn(usize) -> Taps<'a, E>,
    region: &Region,
    finish: impl Fn(usize, Range<usize>, &Sums),
) {
    SCRATCH.with_borrow_mut(|Scratch { input, sums, places, runs }| {
        let layout = Layout::new(window, region);
        let chunks = window.channels.div_ceil(DEPTH);
        places.clear();
        places.extend(layout.places(window, region));
        runs.clear();
        runs.extend((0..chunks).flat_map(|chunk| layout.offsets(window).map(move |at| chunk * layout.chunk + at)));
        let tiles = Tiles::shaped(SIDE);
        let mut held = Held { window, layout: &layout, frame: chunks * layout.chunk, slots: [None; MOST_TAPS] };
        for t in frames {
            let taps = taps(t);
            let sets = taps.chunks(self::held(window, taps.len()));
            let last = sets.len() - 1;
            let slots = if last > 0 { region.panels.len() } else { 1 };
            let pixel = slots * PANEL + GAP;
            let sums = sums.at_least(places.len() * SIDE * pixel);
            let input = input.at_least(sets.clone().map(<[_]>::len).max().unwrap_or(1) * held.frame);
            for (i, set) in sets.enumerate() {
                let frames = held.pack(set, input);
                for (slot, panel) in region.panels.clone().enumerate() {
                    let to = &mut sums[slot % slots * PANEL..];
                    let next = if panel + 1 < region.panels.end { panel + 1 } else { region.panels.start };
                    Panel { input, places, runs, frames, panel, next }.sum(&tiles, set, to, pixel, i == 0);
                    if i == last {
                        let sums = Sums { values: to, pixel, line: layout.slots, width: PANEL };
                        finish(t, panel..panel + 1, &sums);
                    }
                }
            }
        }
    });
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
        Layout {
            top: (region.rows.start * stride.h) as isize - before.h as isize,
            left: (region.columns.start * stride.w) as isize - before.w as isize,
            lines,
            pitch,
            line,
            // The last tile may read a tile's length beyond the last line.
            chunk: lines * line + SIDE * DEPTH,
            slots,
        }
    }

    /// The tiles, those of two rows side by side: they share lines of the input.
    fn places(&self, window: &Window, region: &Region) -> impl Iterator<Item = Place> {
        let (slots, row) = (self.slots, window.stride.h * self.line);
        let count = (region.rows.len() - 1) * slots + region.columns.len();
        let tiles = count.div_ceil(SIDE);
        // Tiles that run on into the next row have none above them.
        let across = if slots.is_multiple_of(SIDE) { slots / SIDE } else { tiles };
        (0..tiles).map(move |i| {
            let (pair, i) = (i / (2 * across), i % (2 * across));
            let tile = match (pair + 1) * 2 * across <= tiles {
                true => (2 * pair + i % 2) * across + i / 2,
                false => 2 * pair * across + i,
            };
            let slot = tile * SIDE;
            Place { a: slot / slots * row + slot % slots * DEPTH, row: slot }
        })
    }

    /// Where each tap reads, row by row.
    fn offsets(&self, window: &Window) -> impl Iterator<Item = usize> {
        let (Window { taps, stride, .. }, line, pitch) = (*window, self.line, self.pitch);
        (0..taps.h * taps.w).map(move |tap| {
            let (dy, dx) = (tap / taps.w, tap % taps.w);
            dy * line + (dx % stride.w * pitch + dx / stride.w) * DEPTH
        })
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

/// Frames whose part of a region has been copied.
struct Held<'a, E> {
    window: &'a Window,
    layout: &'a Layout,
    /// Elements of a frame.
    frame: usize,
    slots: [Option<&'a [E]>; MOST_TAPS],
}

impl<'a, E: Element> Held<'a, E> {
    /// Copies what is not there yet of the frames of `taps`, and tells where each is.
    fn pack(&mut self, taps: &[Tap<'a, E>], input: &mut [bf16]) -> [usize; MOST_TAPS] {
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

/// One panel of a region, and the input that is held.
struct Panel<'a> {
    input: &'a [bf16],
    places: &'a [Place],
    runs: &'a [usize],
    /// Where each tap's frame stands.
    frames: [usize; MOST_TAPS],
    panel: usize,
    /// The panel behind it.
    next: usize,
}

impl<'a> Panel<'a> {
    /// Adds the products of some taps.
    fn sum<E>(&self, tiles: &Tiles, taps: &[Tap<'a, E>], sums: &mut [f32], pixel: usize, fresh: bool) {
        let steps_of = |(tap, &frame): (&Tap<'a, E>, &usize)| {
            let b = tap.kernel.tiles().steps(tap.part, self.panel, 0..tap.kernel.tiles().chunks);
            self.runs.iter().zip(b).map(move |(run, b)| Step { run: frame + run, b })
        };
        let total = taps.len() * self.runs.len();
        let most = total.div_ceil(total.div_ceil(STEPS));
        let mut steps = taps.iter().zip(&self.frames).flat_map(steps_of);
        let mut fresh = fresh;
        while let Some(first) = steps.next() {
            let (mut some, mut count) = ([first; STEPS], 1);
            for (to, step) in some[1..most].iter_mut().zip(&mut steps) {
                *to = step;
                count += 1;
            }
            tiles.multiply(Product {
                a: self.input,
                a_row: DEPTH,
                tiles: self.places,
                steps: &some[..count],
                next: (self.next as isize - self.panel as isize) * taps[0].kernel.tiles().panel() as isize,
                c: sums,
                c_row: pixel,
                columns: taps[0].kernel.tiles().columns(self.panel),
                fresh,
            });
            fresh = false;
        }
    }
}

/// Asks for the cache lines of a pixel.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch(pixel: &[bf16]) {
    for line in pixel.chunks(DEPTH) {
        // SAFETY: a prefetch touches nothing.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fetch(_: &[bf16]) {}

leveled! {
    /// Pixels chunk by chunk, `apart` elements from one to the next; zeros where there is none.
    pub fn spread(pixels: &Pixels<bf16>, to: &mut [bf16], apart: usize) {
        for i in 0..pixels.count {
            fetch(pixels.get(i + AHEAD).unwrap_or_default());
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
