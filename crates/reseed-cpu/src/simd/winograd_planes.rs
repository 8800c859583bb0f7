//! Winograd F(4x4,3x3): 36 products instead of 144 for 4x4 outputs of a 3x3 kernel. `winograd_axis` describes the
//! transform of an axis.
//!
//! All temporal taps read the same transformed inputs, and the sums over temporal taps and channels are direct. The
//! weights of a layer are transformed once for all regions. They take four times the memory, so that only small layers
//! are computed in this way.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::blocked::{Scratch, with_scratch};
use super::blocks::{copy_blocks, floats};
use super::gemm::{BLOCK, Product, Rows, even_parts, multiply, narrow_width, tile_rows};
use super::panels::Weights;
use super::region::{REGIONS_PER_THREAD, Region, Tap, Taps, Window};
use super::region_sums::RegionSums;
use super::transpose::{Pixels, lanes};
use super::winograd_axis::{OUTPUTS, POINTS};
use super::winograd_planes_transforms::{InputRows, transform_input, transform_kernel, transform_output};
use crate::host::buffer::Floats;
use crate::host::element::Element;
use crate::host::level::Level;
use reseed_ops::{ConvSpec, DType, Hw};

/// Products of a group of outputs.
pub const POSITIONS: usize = POINTS * POINTS;
/// Most groups of columns of a region.
const GROUPS: usize = 14;
/// Most groups of rows of a region.
const ROWS: usize = 4;
/// Bytes of the transformed input of all temporal taps of a region.
const INPUT_BYTES: usize = 512 << 10;
/// Most channels of the input and of the output. Three temporal taps of as many have 4 MB of transformed weights.
const CHANNELS: usize = 96;

/// Whether this algorithm computes a convolution: 3 x 3 taps, stride 1, and enough channels to fill a register.
pub fn supports(level: Level, spec: &ConvSpec) -> bool {
    let ConvSpec { taps, stride, c_in, c_out, .. } = *spec;
    (taps.h, taps.w, stride.h, stride.w) == (3, 3, 1, 1) && c_in >= lanes(level) && c_in.max(c_out) <= CHANNELS
}

/// Floats of the transformed weights of a convolution where `folded` output frames have fewer taps than later ones.
pub fn kernel_floats(level: Level, spec: &ConvSpec, folded: usize) -> usize {
    let taps: usize = spec.taps.t + (1..=folded).sum::<usize>();
    POSITIONS * taps * spec.c_in * spec.c_out.next_multiple_of(narrow_width(level, spec.c_out))
}

/// Splits an output plane and its channels into enough regions to keep `threads` busy.
pub fn regions(level: Level, output: Hw, spec: &ConvSpec, panels: usize, [frames, threads]: [usize; 2]) -> Vec<Region> {
    let [down, across] = [output.h, output.w].map(|n| n.div_ceil(OUTPUTS));
    let tile = tile_rows(level);
    let tiles: Vec<_> = even_parts(across, tile).collect();
    let columns: Vec<_> = even_parts(tiles.len(), (GROUPS / tile).max(1)).collect();
    let line = spec.taps.t * POSITIONS * floats(across.min(GROUPS), spec.c_in) * size_of::<f32>();
    let rows = (INPUT_BYTES / line).clamp(1, ROWS);
    let planar = down.div_ceil(rows) * columns.len() * frames;
    let splits = (REGIONS_PER_THREAD * threads).div_ceil(planar).clamp(1, panels);
    let mut all = Vec::new();
    for (y0, y1) in even_parts(down, rows) {
        for &(first, last) in &columns {
            let rows = OUTPUTS * y0..output.h.min(OUTPUTS * y1);
            let columns = OUTPUTS * tiles[first].0..output.w.min(OUTPUTS * tiles[last - 1].1);
            for (p0, p1) in even_parts(panels, panels.div_ceil(splits)) {
                all.push(Region { rows: rows.clone(), columns: columns.clone(), panels: p0..p1 });
            }
        }
    }
    all
}

/// The transformed weights of the temporal taps of output frames, by the number of taps:
/// `[panel][position][temporal tap][row][channel]`. Frames at the start of a clip have fewer taps than later ones.
pub struct Kernels {
    values: Floats,
    /// Number of taps, and where their weights start.
    sets: Vec<(usize, usize)>,
    channels: usize,
    width: usize,
    panels: usize,
}

impl Kernels {
    /// Transforms the weights of all output frames into `values`. `taps` returns those of a frame.
    pub fn new<'a, E: Element>(
        level: Level,
        frames: Range<usize>,
        channels: usize,
        taps: &impl Fn(usize) -> Taps<'a, E, Weights>,
        mut values: Floats,
    ) -> Kernels {
        let (mut sets, mut size) = (Vec::<(usize, usize)>::new(), 0);
        let first = taps(frames.start)[0].weights;
        let (width, panels) = (first.width, first.count());
        let set_size = |taps: usize| panels * POSITIONS * taps * channels * width;
        let mut parts = Vec::new();
        for taps in frames.map(taps) {
            if sets.iter().all(|(count, _)| *count != taps.len()) {
                sets.push((taps.len(), size));
                size += set_size(taps.len());
                parts.push(taps);
            }
        }
        let mut rest = values.at_least(size);
        for taps in &parts {
            let (set, after) = rest.split_at_mut(set_size(taps.len()));
            rest = after;
            let taps: Vec<_> = taps.iter().map(|tap| (tap.weights, tap.part)).collect();
            let all = set.par_chunks_exact_mut(set.len() / panels).enumerate();
            all.for_each(|(panel, to)| transform_panel(level, &taps, channels, panel, to));
        }
        Kernels { values, sets, channels, width, panels }
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.panels
    }

    /// The buffer of the weights.
    pub fn into_values(self) -> Floats {
        self.values
    }

    /// The weights of a panel of an output frame with so many taps.
    fn panel(&self, taps: usize, panel: usize) -> &[f32] {
        let set = self.sets.iter().find(|(count, _)| *count == taps);
        let (_, first) = set.expect("weights of every output frame are transformed");
        let size = POSITIONS * taps * self.channels * self.width;
        &self.values[first + panel * size..][..size]
    }
}

/// U of a panel.
fn transform_panel(level: Level, taps: &[(&Weights, usize)], channels: usize, panel: usize, to: &mut [f32]) {
    let position = to.len() / POSITIONS;
    let (mut wide, size) = (Floats::zeros(0), position / taps.len());
    for (i, (weights, part)) in taps.iter().enumerate() {
        let first = part * 9 * channels;
        let g = weights.rows(level, panel, first..first + 9 * channels, &mut wide);
        transform_kernel(level, g, &mut to[i * size..], position);
    }
}

/// Some output frames of a convolution in a region.
pub struct Work<'a> {
    /// Level of the loops.
    pub level: Level,
    /// Geometry of the convolution.
    pub window: &'a Window,
    /// Its temporal taps.
    pub taps: usize,
    /// Its weights.
    pub kernels: &'a Kernels,
    /// The region.
    pub region: &'a Region,
}

impl Work<'_> {
    /// Computes the sums of the region over the taps of each frame, and passes them to `finish` by frame and panel.
    pub fn sum<'a, E: Element>(
        &self,
        frames: Range<usize>,
        taps: &impl Fn(usize) -> Taps<'a, E, Weights>,
        finish: impl Fn(usize, Range<usize>, &mut RegionSums),
    ) {
        with_scratch(|scratch| {
            for t in frames {
                self.sum_frame(&taps(t), scratch, |panels, sums| finish(t, panels, sums));
            }
        });
    }

    fn rows(&self) -> usize {
        self.region.rows.len().div_ceil(OUTPUTS)
    }

    fn groups(&self) -> usize {
        self.region.columns.len().div_ceil(OUTPUTS)
    }

    fn sum_frame<E: Element>(
        &self,
        taps: &[Tap<E, Weights>],
        scratch: &mut Scratch,
        finish: impl Fn(Range<usize>, &mut RegionSums),
    ) {
        let (groups, channels, width) = (self.groups(), self.window.channels, self.kernels.width);
        let (position, plane) = (floats(groups, channels), self.rows() * groups * width);
        let Scratch { input, sums, products, panel: copies, .. } = scratch;
        let copies = RefCell::new(copies);
        let (products, sums) = (products.at_least(POSITIONS * plane), sums.at_least(OUTPUTS * OUTPUTS * plane));
        let pack = |frame: &[E], to: &mut [f32]| self.pack(frame, &mut copies.borrow_mut(), to);
        let (values, runs) = input.packed_together(
            self.taps,
            taps.iter().map(|tap| tap.frame),
            self.rows() * POSITIONS * position,
            pack,
        );
        for panel in self.region.panels.clone() {
            let kernels = self.kernels.panel(taps.len(), panel);
            let operands = products.chunks_exact_mut(plane).zip(kernels.chunks_exact(kernels.len() / POSITIONS));
            for (i, (c, b)) in operands.enumerate() {
                let product = Product {
                    a: &values[i * position..],
                    rows: Rows::Blocks,
                    a_line: POSITIONS * position,
                    a_step: groups * BLOCK,
                    runs: &runs[..taps.len()],
                    steps: channels,
                    b,
                    width,
                    lines: self.rows(),
                    columns: groups,
                    c,
                    c_row: width,
                    accumulate: false,
                };
                multiply(self.level, product);
            }
            transform_output(self.level, products, sums, groups, width);
            let mut sums = RegionSums { values: sums, pixel: width, line: OUTPUTS * groups, width, position: None };
            finish(panel..panel + 1, &mut sums);
        }
    }

    /// Transforms a frame: `[row of groups][position][block of channels][group][BLOCK]`.
    fn pack<E: Element>(&self, frame: &[E], copies: &mut Floats, to: &mut [f32]) {
        let (Window { plane, channels, before, .. }, groups) = (*self.window, self.groups());
        let (count, size) = (OUTPUTS * (groups + 1) - 2, plane.w * channels);
        let first = self.region.columns.start as isize - before.w as isize;
        let inside = first >= 0 && first as usize + count <= plane.w && E::DTYPE == DType::F32;
        let copies = &mut copies.at_least(POINTS * count * BLOCK)[..];
        let line = to.len() / self.rows();
        for (i, to) in to.chunks_exact_mut(line).enumerate() {
            let top = (self.region.rows.start + OUTPUTS * i) as isize - before.h as isize;
            let row = |y: usize| {
                let y = usize::try_from(top + y as isize).ok().filter(|&y| y < plane.h)?;
                Some(&frame[y * size..][..size])
            };
            for (block, c) in (0..channels).step_by(BLOCK).enumerate() {
                let whole = inside && top >= 0 && row(POINTS - 1).is_some() && c + BLOCK <= channels;
                let rows = if whole {
                    let values: &[f32] = bytemuck::cast_slice(frame);
                    let first = top as usize * size + first as usize * channels + c;
                    let rows = std::array::from_fn(|y| &values[first + y * size..]);
                    InputRows { rows, pixel: channels, ahead: OUTPUTS * size }
                } else {
                    for (y, to) in copies.chunks_exact_mut(count * BLOCK).enumerate() {
                        let part = c..channels.min(c + BLOCK);
                        match row(y) {
                            Some(row) => {
                                let pixels = Pixels { row, channels, part, first, step: 1, count };
                                copy_blocks(self.level, pixels, OUTPUTS * size, to);
                            }
                            None => to.fill(0.0),
                        }
                    }
                    let copies = &*copies;
                    let rows = std::array::from_fn(|y| &copies[y * count * BLOCK..]);
                    InputRows { rows, pixel: BLOCK, ahead: 0 }
                };
                transform_input(self.level, rows, to, block, groups);
            }
        }
    }
}
