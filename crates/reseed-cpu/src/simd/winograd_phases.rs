//! Winograd F(3x3,2x2) for the four phases of a merged upsampler: 16 products instead of 36 for 3x3 outputs of a phase.
//!
//! Along one axis the points are 0, 1, -1 and infinity:
//!
//! ```text
//! d  inputs 3j-1 .. 3j+2            g  the two taps of a phase
//! V  = (d0 - d2, d1 + d2, d2 - d1, d3 - d1)
//! U  = (g0, (g0 + g1) / 2, (g0 - g1) / 2, g1)
//! y0 = U0 V0 + U1 V1 + U2 V2        y1 = U1 V1 - U2 V2        y2 = U1 V1 + U2 V2 + U3 V3
//! ```
//! Phase 0 reads the inputs before and at an output, phase 1 those at and after it. Output k is therefore output
//! 3j + k of phase 0 and 3j - 1 + k of phase 1, so that all phases read the same transformed input. Sums over temporal
//! taps and channels are direct.

use std::ops::Range;

use super::blocked::{Scratch, with_scratch};
use super::blocks::{copy_blocks, floats};
use super::gemm::{BLOCK, Product, Rows, even_parts, multiply, tile_rows};
use super::panels::Weights;
use super::region::{REGIONS_PER_THREAD, Region, Tap, Taps};
use super::region_sums::RegionSums;
use super::transpose::{Pixels, lanes};
use super::winograd_phases_transforms::{transform_input, transform_kernel, transform_kernel_sums, transform_output};
use crate::host::buffer::Floats;
use crate::host::element::Element;
use crate::host::level::Level;
use reseed_ops::Hw;

/// Outputs of a group along one axis.
pub const OUTPUTS: usize = 3;
/// Points along one axis, which are also the inputs of a group.
pub const POINTS: usize = 4;
/// Products of a group.
pub const POSITIONS: usize = POINTS * POINTS;
/// Phases of an upsampler in space.
pub const PHASES: usize = 4;

/// Most groups of columns of a region.
const GROUPS: usize = 14;
/// Most groups of rows of a region.
const ROWS: usize = 8;
/// The same where its products wait for more channels.
const WAITING_ROWS: usize = 4;
/// Bytes of the transformed input of all temporal taps of a region. Transformed weights are used once per region, so
/// that smaller regions transform them more often.
const INPUT_BYTES: usize = 768 << 10;
/// Most channels of which sums over all of them are made at once.
const CHANNELS: usize = 128;
/// Channels at a time where there are more.
const PART: usize = 64;
/// Most panels of a region where its products wait for more channels.
const PANELS: usize = 2;

/// Whether this algorithm computes an upsampler: it needs enough channels to fill a register.
pub fn supports(level: Level, channels: usize) -> bool {
    channels >= lanes(level)
}

/// Row and column of a phase.
pub fn place(phase: usize) -> Hw {
    Hw::new(phase / 2, phase % 2)
}

/// The parts of the channels whose products are summed at once.
fn parts(channels: usize) -> impl Iterator<Item = (usize, usize)> {
    even_parts(channels, if channels > CHANNELS { PART } else { CHANNELS })
}

/// The low-resolution input of an upsampler.
#[derive(Clone, Copy)]
pub struct Input {
    /// Size of a frame.
    pub plane: Hw,
    /// Channels of a pixel.
    pub channels: usize,
    /// Temporal taps.
    pub taps: usize,
}

impl Input {
    /// Splits the groups of the plane and the panels of output channels into enough regions to keep `threads` busy.
    pub fn regions(&self, level: Level, panels: usize, frames: usize, threads: usize) -> Vec<Region> {
        // Phase 1 begins one output before phase 0.
        let [down, across] = [self.plane.h, self.plane.w].map(|n| (n + 1).div_ceil(OUTPUTS));
        let tile = tile_rows(level);
        let tiles: Vec<_> = even_parts(across, tile).collect();
        let columns: Vec<_> = even_parts(tiles.len(), (GROUPS / tile).max(1)).collect();
        let line = self.taps * POSITIONS * floats(across.min(GROUPS), self.part()) * size_of::<f32>();
        let waiting = parts(self.channels).count() > 1;
        let rows = (INPUT_BYTES / line).clamp(1, if waiting { WAITING_ROWS } else { ROWS });
        let planar = down.div_ceil(rows) * columns.len() * frames;
        let splits = (REGIONS_PER_THREAD * threads).div_ceil(planar).clamp(1, panels);
        let most = if waiting { PANELS } else { panels };
        let mut all = Vec::new();
        for (y0, y1) in even_parts(down, rows) {
            for &(first, last) in &columns {
                let columns = tiles[first].0..tiles[last - 1].1;
                for (p0, p1) in even_parts(panels, panels.div_ceil(splits).min(most)) {
                    all.push(Region { rows: y0..y1, columns: columns.clone(), panels: p0..p1 });
                }
            }
        }
        all
    }

    /// Most channels at a time.
    fn part(&self) -> usize {
        parts(self.channels).map(|(first, last)| last - first).max().unwrap_or(1)
    }

    /// The outputs of a phase in a region of groups, in low-resolution pixels. They may be none.
    pub fn outputs(&self, groups: &Region, phase: usize) -> Region {
        let Hw { h, w } = place(phase);
        let range = |groups: &Range<usize>, phase: usize, size: usize| {
            let at = |group: usize| (OUTPUTS * group).saturating_sub(phase).min(size);
            at(groups.start)..at(groups.end)
        };
        Region {
            rows: range(&groups.rows, h, self.plane.h),
            columns: range(&groups.columns, w, self.plane.w),
            panels: groups.panels.clone(),
        }
    }
}

/// Computes the sums of all phases in a region of groups. `taps` returns those of a frame and a phase; the phases of a
/// frame read the same frames. `finish` gets the sums by frame, phase and panel.
pub fn sum_phases<'a, E: Element>(
    level: Level,
    input: &Input,
    groups: &Region,
    frames: Range<usize>,
    taps: &impl Fn(usize, usize) -> Taps<'a, E, Weights>,
    finish: impl Fn(usize, usize, &Region, Range<usize>, &mut RegionSums),
) {
    with_scratch(|scratch| {
        let work = Work { level, input, groups };
        for t in frames {
            let taps = std::array::from_fn(|phase| taps(t, phase));
            work.sum_frame(&taps, scratch, |phase, outputs, panels, sums| finish(t, phase, outputs, panels, sums));
        }
    });
}

/// A region of an input.
struct Work<'a> {
    level: Level,
    input: &'a Input,
    groups: &'a Region,
}

impl Work<'_> {
    /// Computes one output frame.
    fn sum_frame<E: Element>(
        &self,
        taps: &[Taps<E, Weights>; PHASES],
        scratch: &mut Scratch,
        finish: impl Fn(usize, &Region, Range<usize>, &mut RegionSums),
    ) {
        let (panels, channels) = (self.groups.panels.clone(), self.input.channels);
        let width = taps[0][0].weights.width;
        let plane = self.rows() * self.columns() * width;
        // Products wait for the next channels; those of all channels are finished at once.
        let waiting = parts(channels).count() > 1;
        let slots = if waiting { PHASES * panels.len() } else { 1 };
        let Scratch { input, sums, panel: kernels, products, wide, .. } = scratch;
        let products = products.at_least(slots * POSITIONS * plane);
        let sums = sums.at_least(OUTPUTS * OUTPUTS * plane);
        for (first, last) in parts(channels) {
            if waiting {
                input.clear();
            }
            let position = floats(self.columns(), last - first);
            let frames = taps[0].iter().map(|tap| tap.frame);
            let pack = |frame: &[E], to: &mut [f32]| self.pack(frame, first..last, to);
            let (values, runs) =
                input.packed_together(self.input.taps, frames, self.rows() * POSITIONS * position, pack);
            for (phase, taps) in taps.iter().enumerate() {
                for panel in panels.clone() {
                    let slot = if waiting { phase * panels.len() + panel - panels.start } else { 0 };
                    let products = &mut products[slot * POSITIONS * plane..][..POSITIONS * plane];
                    let kernel = Kernel { taps, panel, part: first..last, channels };
                    let operands = (values, &runs[..taps.len()], position);
                    self.multiply(&kernel, operands, (kernels, wide), products, first > 0);
                    if last == channels {
                        self.finish(products, sums, phase, panel, &finish);
                    }
                }
            }
        }
    }

    fn rows(&self) -> usize {
        self.groups.rows.len()
    }

    fn columns(&self) -> usize {
        self.groups.columns.len()
    }

    /// The products of a panel: `[position][row][group][channel]`.
    fn multiply<E>(
        &self,
        kernel: &Kernel<E>,
        (values, runs, position): (&[f32], &[usize], usize),
        (kernels, wide): (&mut Floats, &mut [Floats; 4]),
        products: &mut [f32],
        accumulate: bool,
    ) {
        let width = kernel.width();
        let block = kernel.taps.len() * kernel.part.len() * width;
        let kernels = kernels.at_least(POINTS * block);
        let mut planes = products.chunks_exact_mut(products.len() / POSITIONS).enumerate();
        for row in 0..POINTS {
            kernel.transform(self.level, row, wide, kernels);
            for b in kernels.chunks_exact(block) {
                let (i, c) = planes.next().expect("a plane for every product");
                let product = Product {
                    a: &values[i * position..],
                    rows: Rows::Blocks,
                    a_line: POSITIONS * position,
                    a_step: self.columns() * BLOCK,
                    runs,
                    steps: kernel.part.len(),
                    b,
                    width,
                    lines: self.rows(),
                    columns: self.columns(),
                    c,
                    c_row: width,
                    accumulate,
                };
                multiply(self.level, product);
            }
        }
    }

    /// Transforms the products of a panel, and passes on those outputs of its groups that exist.
    fn finish(
        &self,
        products: &[f32],
        sums: &mut [f32],
        phase: usize,
        panel: usize,
        finish: impl Fn(usize, &Region, Range<usize>, &mut RegionSums),
    ) {
        let outputs = self.input.outputs(self.groups, phase);
        if outputs.rows.is_empty() || outputs.columns.is_empty() {
            return;
        }
        let (line, width) = (OUTPUTS * self.columns(), products.len() / POSITIONS / self.rows() / self.columns());
        transform_output(self.level, products, sums, self.columns(), width);
        let Hw { h, w } = place(phase);
        let row = outputs.rows.start + h - OUTPUTS * self.groups.rows.start;
        let column = outputs.columns.start + w - OUTPUTS * self.groups.columns.start;
        let values = &mut sums[(row * line + column) * width..];
        let mut sums = RegionSums { values, pixel: width, line, width, position: None };
        finish(phase, &outputs, panel..panel + 1, &mut sums);
    }

    /// Copies and transforms some channels of a frame: `[row][position][block of channels][group of columns][BLOCK]`.
    fn pack<E: Element>(&self, frame: &[E], part: Range<usize>, to: &mut [f32]) {
        let (Input { plane, channels, .. }, groups) = (*self.input, self.columns());
        let count = OUTPUTS * groups + 1;
        let mut pixels = [0.0; POINTS * (OUTPUTS * GROUPS + 1) * BLOCK];
        let pixels = &mut pixels[..POINTS * count * BLOCK];
        let first = (OUTPUTS * self.groups.columns.start) as isize - 1;
        let line = to.len() / self.rows();
        for (to, row) in to.chunks_exact_mut(line).zip(self.groups.rows.clone()) {
            for (block, c) in part.clone().step_by(BLOCK).enumerate() {
                for (i, pixels) in pixels.chunks_exact_mut(count * BLOCK).enumerate() {
                    let Some(y) = (OUTPUTS * row + i).checked_sub(1).filter(|&y| y < plane.h) else {
                        pixels.fill(0.0);
                        continue;
                    };
                    let row = &frame[y * plane.w * channels..][..plane.w * channels];
                    let part = c..part.end.min(c + BLOCK);
                    copy_blocks(
                        self.level,
                        Pixels { row, channels, part, first, step: 1, count },
                        plane.w * channels,
                        pixels,
                    );
                }
                transform_input(self.level, pixels, to, block, groups);
            }
        }
    }
}

/// Some channels of a panel of the weights of a phase.
struct Kernel<'a, 'b, E> {
    taps: &'a [Tap<'b, E, Weights>],
    panel: usize,
    part: Range<usize>,
    channels: usize,
}

impl<E> Kernel<'_, '_, E> {
    fn width(&self) -> usize {
        self.taps[0].weights.width
    }

    /// U of one row of points: `[column of points][temporal tap][row of the panel][channel]`.
    fn transform(&self, level: Level, row: usize, wide: &mut [Floats; 4], to: &mut [f32]) {
        let (blocks, size) = (to.len() / POINTS, self.part.len() * self.width());
        for (i, tap) in self.taps.iter().enumerate() {
            let mut wide = wide.iter_mut();
            let g: [&[f32]; 4] = std::array::from_fn(|at| {
                let first = (tap.part * 4 + at) * self.channels;
                let rows = first + self.part.start..first + self.part.end;
                tap.weights.rows(level, self.panel, rows, wide.next().expect("a buffer for every tap"))
            });
            let mut u = to.chunks_exact_mut(blocks).map(|block| &mut block[i * size..][..size]);
            let u = std::array::from_fn(|_| u.next().expect("a block for every product"));
            match row {
                0 => transform_kernel(level, [g[0], g[1]], u),
                1 => transform_kernel_sums(level, g, 1.0, u),
                2 => transform_kernel_sums(level, g, -1.0, u),
                _ => transform_kernel(level, [g[2], g[3]], u),
            }
        }
    }
}
