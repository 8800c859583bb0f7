//! Convolution sums on tiles, one region of output pixels at a time.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;

use super::layout::{Layout, PackedFrames};
use super::shape::{DEPTH, PANEL, SIDE};
use super::tile::{Product, RowTile, Step, TileScope};
use super::weights::TileWeights;
use crate::host::buffer::{Floats, Values};
use crate::host::element::Element;
use crate::simd::gemm::even_parts;
use crate::simd::region::{MOST_TAPS, REGIONS_PER_THREAD, Region, Tap, Taps, Window};
use crate::simd::region_sums::RegionSums;
use reseed_ops::{DType, Hw};

/// Bytes of a core's second-level cache that the input and the sums of a region may occupy.
const BYTES: usize = 5 << 18;
/// The same where all frames of the input are in cache at once. The weights of such a convolution fit into the cache
/// too.
const ALL_FRAMES_BYTES: usize = 9 << 16;
/// Fewest pixels of a region for which all frames of its input are in cache at once.
const PIXELS: usize = 512;
/// Most columns of a region.
const COLUMNS: usize = 64;
/// Most rows of a region.
const ROWS: usize = 32;
/// Most panels of a region.
const PANELS: usize = 8;
/// Most steps of one product. Between products the sums are in memory. The weights of all steps are read again for
/// every two tiles.
const STEPS: usize = 108;
/// Padding of the sums of a pixel, so that the rows of a tile do not share cache sets.
const GAP: usize = SIDE;

/// Whether tiles are faster than SIMD registers for `channels` input channels.
pub fn supports(channels: usize) -> bool {
    channels >= SIDE
}

/// How many of the frames that `taps` taps read are in scratch at once: all with Winograd, and all where the region
/// stays large enough, otherwise one. With all frames the sums are finished panel by panel.
fn frames_at_once(window: &Window, weights: &TileWeights, taps: usize) -> usize {
    match weights.positions > 1 || ALL_FRAMES_BYTES / pixel_bytes(window, weights, taps, 1) >= PIXELS {
        true => taps,
        false => 1,
    }
}

/// Bytes of scratch for an output pixel.
fn pixel_bytes(window: &Window, weights: &TileWeights, frames: usize, panels: usize) -> usize {
    let copies = if weights.positions > 1 { 2 } else { 1 };
    let inputs = frames * window.stride.h * window.stride.w;
    copies * (2 * window.channels.next_multiple_of(DEPTH) * inputs + size_of::<f32>() * (panels * PANEL + GAP))
}

/// Splits an output plane and its channels into enough regions to keep `threads` busy.
pub fn regions(output: Hw, window: &Window, weights: &TileWeights, frames: usize, threads: usize) -> Vec<Region> {
    let (parts, panels) = (weights.parts(), weights.count());
    let at_once = frames_at_once(window, weights, parts);
    let most = if at_once < parts { PANELS.min(panels) } else { panels };
    let pixels = match at_once < parts {
        true => BYTES / pixel_bytes(window, weights, at_once, most),
        false => ALL_FRAMES_BYTES / pixel_bytes(window, weights, at_once, 1),
    };
    let groups: Vec<_> = even_parts(output.w.div_ceil(SIDE), COLUMNS / SIDE).collect();
    let columns = groups.iter().map(|(first, last)| SIDE * (last - first)).max().unwrap_or(SIDE).min(output.w);
    // Output rows that are computed together.
    let unit = if weights.positions > 1 { 2 } else { 1 };
    let rows = (pixels / columns / unit).clamp(1, ROWS);
    // A small plane gets enough regions by a split of its channels, never of its pixels: the blocks of the statistics
    // must not depend on the number of threads.
    let planar = output.h.div_ceil(unit * rows) * groups.len() * frames;
    let splits = (REGIONS_PER_THREAD * threads).div_ceil(planar).clamp(1, panels);
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

/// The buffers of one thread.
struct Scratch {
    input: Values,
    sums: Floats,
    /// The tiles of the output.
    row_tiles: Vec<RowTile>,
    /// Offset of each step of a frame from the start of a tile.
    offsets: Vec<usize>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: Values::zeros(0, DType::Bf16),
        sums: Floats::zeros(0),
        row_tiles: Vec::new(),
        offsets: Vec::new(),
    });
}

/// Computes the sums of a region over the taps of each frame, and passes them to `finish` frame by frame and panel by
/// panel. Neighbouring frames share their input.
pub fn sum_region<'a, E: Element>(
    window: &Window,
    frames: Range<usize>,
    taps: &impl Fn(usize) -> Taps<'a, E, TileWeights>,
    region: &Region,
    finish: impl Fn(usize, Range<usize>, &mut RegionSums),
) {
    SCRATCH.with_borrow_mut(|Scratch { input, sums, row_tiles, offsets }| {
        let weights = taps(frames.start)[0].weights;
        let layout = Layout::new(window, region, weights.positions);
        row_tiles.clear();
        row_tiles.extend(layout.row_tiles());
        offsets.clear();
        offsets.extend(layout.offsets(window));
        let scope = TileScope::new(SIDE);
        let mut packed = PackedFrames::new(window, &layout);
        // A buffer that grows loses its values, and neighbouring frames share them.
        let at_once = |t: usize| taps(t).len().min(frames_at_once(window, weights, taps(t).len()));
        let input = input.at_least(frames.clone().map(at_once).max().unwrap_or(1) * packed.frame);
        for t in frames {
            let taps = taps(t);
            let sets = taps.chunks(frames_at_once(window, weights, taps.len()));
            let last = sets.len() - 1;
            let slots = if last > 0 { region.panels.len() } else { 1 };
            let (pixel, size) = (slots * PANEL + GAP, row_tiles.len() * SIDE);
            let sums = sums.at_least(layout.positions * size * pixel);
            for (i, set) in sets.enumerate() {
                let frames = packed.pack(set, input);
                for (slot, panel) in region.panels.clone().enumerate() {
                    let to = &mut sums[slot % slots * PANEL..];
                    let next = if panel + 1 < region.panels.end { panel + 1 } else { region.panels.start };
                    let input = Panel { input, layout: &layout, row_tiles, offsets, frames, panel, next };
                    input.sum(&scope, set, to, pixel, i > 0);
                    if i == last {
                        let position = (layout.positions > 1).then_some(size);
                        let mut sums = RegionSums { values: to, pixel, line: layout.slots, width: PANEL, position };
                        finish(t, panel..panel + 1, &mut sums);
                    }
                }
            }
        }
    });
}

/// One panel of a region, and the input in scratch.
struct Panel<'a> {
    input: &'a [bf16],
    layout: &'a Layout,
    row_tiles: &'a [RowTile],
    offsets: &'a [usize],
    /// Offset of the frame of each tap.
    frames: [usize; MOST_TAPS],
    panel: usize,
    /// The panel that is computed next.
    next: usize,
}

impl<'a> Panel<'a> {
    /// Computes the sums over some taps.
    fn sum<E>(
        &self,
        scope: &TileScope,
        taps: &[Tap<'a, E, TileWeights>],
        sums: &mut [f32],
        pixel: usize,
        accumulate: bool,
    ) {
        let weights = taps[0].weights;
        let total = taps.len() * self.offsets.len();
        let most = total.div_ceil(total.div_ceil(STEPS));
        let size = self.row_tiles.len() * SIDE * pixel;
        for position in 0..weights.positions {
            let sums = &mut sums[position * size..];
            let (from, mut accumulate, mut count) = (position * self.layout.position(), accumulate, 0);
            let mut steps = [Step { offset: 0, b: &weights.steps([0; 3], 0..1)[0] }; STEPS];
            for (tap, frame) in taps.iter().zip(&self.frames) {
                let b = tap.weights.steps([tap.part, self.panel, position], 0..weights.chunks);
                for (offset, b) in self.offsets.iter().zip(b) {
                    steps[count] = Step { offset: frame + from + offset, b };
                    count += 1;
                    if count == most {
                        self.multiply(scope, weights, (position, &steps[..most]), (sums, pixel, accumulate));
                        (accumulate, count) = (true, 0);
                    }
                }
            }
            if count > 0 {
                self.multiply(scope, weights, (position, &steps[..count]), (sums, pixel, accumulate));
            }
        }
    }

    fn multiply(
        &self,
        scope: &TileScope,
        weights: &TileWeights,
        (position, steps): (usize, &[Step]),
        (c, c_row, accumulate): (&mut [f32], usize, bool),
    ) {
        // The next product is the next position, and after the last position the first one of the next panel.
        let (here, last) = (self.panel * weights.positions + position, position + 1 == weights.positions);
        let next = if last { self.next * weights.positions } else { here + 1 };
        scope.multiply(Product {
            a: self.input,
            a_row: DEPTH,
            tiles: self.row_tiles,
            steps,
            next: (next as isize - here as isize) * weights.position() as isize,
            c,
            c_row,
            columns: weights.columns(self.panel),
            accumulate,
        });
    }
}
