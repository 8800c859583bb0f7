//! Convolution sums of a rectangle of output pixels.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;

use super::layout::{Held, Layout};
use super::tile::{Place, Product, Step, Tiles};
use super::weights::Tiled;
use super::{DEPTH, PANEL, SIDE};
use crate::blocked::{ENOUGH, MOST_TAPS, Region, Sums, Tap, Taps, Window};
use crate::gemm::even_parts;
use crate::memory::{Element, Floats, Values};
use reseed_ops::{DType, Hw};

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

/// Whether tiles are worth it.
pub fn fits(channels: usize) -> bool {
    channels >= SIDE
}

/// Frames of a rectangle's input that are held at once, of those that `taps` read: all where that leaves the rectangle
/// large enough, and always for pairs of rows. Its sums are then finished panel by panel.
fn held(window: &Window, weights: &Tiled, taps: usize) -> usize {
    match weights.positions > 1 || HELD_BYTES / pixel_bytes(window, weights, taps, 1) >= PIXELS {
        true => taps,
        false => 1,
    }
}

fn pixel_bytes(window: &Window, weights: &Tiled, frames: usize, panels: usize) -> usize {
    let copies = if weights.positions > 1 { 2 } else { 1 };
    let inputs = frames * window.stride.h * window.stride.w;
    copies * (2 * window.channels.next_multiple_of(DEPTH) * inputs + size_of::<f32>() * (panels * PANEL + GAP))
}

/// Cuts an output plane and its channels into regions, enough of them to keep `threads` busy.
pub fn regions(output: Hw, window: &Window, weights: &Tiled, frames: usize, threads: usize) -> Vec<Region> {
    let (parts, panels) = (weights.parts(), weights.count());
    let held = held(window, weights, parts);
    let most = if held < parts { PANELS.min(panels) } else { panels };
    let rectangle = match held < parts {
        true => BYTES / pixel_bytes(window, weights, held, most),
        false => HELD_BYTES / pixel_bytes(window, weights, held, 1),
    };
    let groups: Vec<_> = even_parts(output.w.div_ceil(SIDE), COLUMNS / SIDE).collect();
    let columns = groups.iter().map(|(first, last)| SIDE * (last - first)).max().unwrap_or(SIDE).min(output.w);
    // Rows that belong together.
    let unit = if weights.positions > 1 { 2 } else { 1 };
    let rows = (rectangle / columns / unit).clamp(1, ROWS);
    // Small planes get enough regions by splitting the channels, never the pixels, whose statistics must not depend on
    // threads.
    let planar = output.h.div_ceil(unit * rows) * groups.len() * frames;
    let splits = (ENOUGH * threads).div_ceil(planar).clamp(1, panels);
    let mut all = Vec::new();
    for (y0, y1) in even_parts(output.h.div_ceil(unit), rows) {
        for &(first, last) in &groups {
            let columns = SIDE * first..output.w.min(SIDE * last);
            for (p0, p1) in even_parts(panels, panels.div_ceil(splits).min(most)) {
                let rows = unit * y0..output.h.min(unit * y1);
                all.push(Region { rows, columns: columns.clone(), panels: p0..p1 });
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
    finish: impl Fn(usize, Range<usize>, &mut Sums),
) {
    SCRATCH.with_borrow_mut(|Scratch { input, sums, places, runs }| {
        let weights = taps(frames.start)[0].kernel.tiles();
        let layout = Layout::new(window, region, weights.positions);
        places.clear();
        places.extend(layout.places());
        runs.clear();
        runs.extend(layout.runs(window));
        let tiles = Tiles::shaped(SIDE);
        let mut held = Held::new(window, &layout);
        for t in frames {
            let taps = taps(t);
            let sets = taps.chunks(self::held(window, weights, taps.len()));
            let last = sets.len() - 1;
            let slots = if last > 0 { region.panels.len() } else { 1 };
            let (pixel, size) = (slots * PANEL + GAP, places.len() * SIDE);
            let sums = sums.at_least(layout.positions * size * pixel);
            let input = input.at_least(sets.clone().map(<[_]>::len).max().unwrap_or(1) * held.frame);
            for (i, set) in sets.enumerate() {
                let frames = held.pack(set, input);
                for (slot, panel) in region.panels.clone().enumerate() {
                    let to = &mut sums[slot % slots * PANEL..];
                    let next = if panel + 1 < region.panels.end { panel + 1 } else { region.panels.start };
                    let input = Panel { input, layout: &layout, places, runs, frames, panel, next };
                    input.sum(&tiles, set, to, pixel, i == 0);
                    if i == last {
                        let position = (layout.positions > 1).then_some(size);
                        let mut sums = Sums { values: to, pixel, line: layout.slots, width: PANEL, position };
                        finish(t, panel..panel + 1, &mut sums);
                    }
                }
            }
        }
    });
}

/// One panel of a region, and the input that is held.
struct Panel<'a> {
    input: &'a [bf16],
    layout: &'a Layout,
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
        let weights = taps[0].kernel.tiles();
        let total = taps.len() * self.runs.len();
        let most = total.div_ceil(total.div_ceil(STEPS));
        let size = self.places.len() * SIDE * pixel;
        for position in 0..weights.positions {
            let sums = &mut sums[position * size..];
            let (from, mut fresh, mut count) = (position * self.layout.position(), fresh, 0);
            let mut steps = [Step { run: 0, b: &weights.steps([0; 3], 0..1)[0] }; STEPS];
            for (tap, frame) in taps.iter().zip(&self.frames) {
                let b = tap.kernel.tiles().steps([tap.part, self.panel, position], 0..weights.chunks);
                for (run, b) in self.runs.iter().zip(b) {
                    steps[count] = Step { run: frame + from + run, b };
                    count += 1;
                    if count == most {
                        self.multiply(tiles, weights, (position, &steps[..most]), (sums, pixel, fresh));
                        (fresh, count) = (false, 0);
                    }
                }
            }
            if count > 0 {
                self.multiply(tiles, weights, (position, &steps[..count]), (sums, pixel, fresh));
            }
        }
    }

    fn multiply(
        &self,
        tiles: &Tiles,
        weights: &Tiled,
        (position, steps): (usize, &[Step]),
        (c, c_row, fresh): (&mut [f32], usize, bool),
    ) {
        // The next product is that of the next position, and behind the last that of the next panel's first.
        let (here, last) = (self.panel * weights.positions + position, position + 1 == weights.positions);
        let next = if last { self.next * weights.positions } else { here + 1 };
        tiles.multiply(Product {
            a: self.input,
            a_row: DEPTH,
            tiles: self.places,
            steps,
            next: (next as isize - here as isize) * weights.position() as isize,
            c,
            c_row,
            columns: weights.columns(self.panel),
            fresh,
        });
    }
}
