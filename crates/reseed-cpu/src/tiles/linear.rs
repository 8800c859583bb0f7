//! Linear layers on tiles. Tiles read the input in place. The weights are read once for each block of rows.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::shape::{DEPTH, PANEL, SIDE, STEP};
use super::tile::{Product, RowTile, Step, TileScope};
use super::weights::TileWeights;
use crate::host::buffer::Floats;
use crate::host::level::Level;
use crate::simd::gemm::even_parts;
use crate::simd::output::{DisjointSlice, store};

/// Most rows of a block.
const ROWS: usize = 384;
/// Most panels of a job, so that its sums stay in the second-level cache.
const PANELS: usize = 8;
/// Most steps of one product. Between products the sums are in memory.
const STEPS: usize = 32;
/// Padding of a row of sums, so that rows do not share cache sets.
const GAP: usize = SIDE;

/// Whether tiles can read rows of `d_in` values in place.
pub fn supports(d_in: usize) -> bool {
    d_in.is_multiple_of(DEPTH)
}

/// The operands of a linear layer.
pub struct Matrix<'a> {
    /// Level of the work on SIMD registers.
    pub level: Level,
    /// Input rows.
    pub x: &'a [bf16],
    /// Weights.
    pub weights: &'a TileWeights,
    /// Bias of every row.
    pub bias: &'a [f32],
    /// Output.
    pub out: DisjointSlice<'a, bf16>,
    /// Whether the output holds a residual that is added.
    pub add: bool,
}

thread_local! {
    static SUMS: RefCell<Floats> = RefCell::new(Floats::zeros(0));
}

impl Matrix<'_> {
    /// Values of an input row.
    fn depth(&self) -> usize {
        self.weights.chunks * DEPTH
    }

    /// Runs blocks of rows by groups of panels. Groups are in order, so that all threads read the same weights at a
    /// time.
    pub fn run(&self, threads: usize) {
        let (rows, panels) = (self.x.len() / self.depth(), self.weights.count());
        let blocks: Vec<_> = even_parts(rows, ROWS).collect();
        let groups = panels.div_ceil(PANELS).max((4 * threads).div_ceil(blocks.len())).min(panels);
        let groups: Vec<_> = even_parts(panels, panels.div_ceil(groups)).collect();
        (0..groups.len() * blocks.len()).into_par_iter().for_each(|job| {
            let ((first, last), (top, end)) = (groups[job / blocks.len()], blocks[job % blocks.len()]);
            SUMS.with_borrow_mut(|sums| self.block(top..end, first..last, sums));
        });
    }

    /// Computes some rows of the output, for the columns of some panels.
    fn block(&self, rows: Range<usize>, panels: Range<usize>, sums: &mut Floats) {
        let (depth, count) = (self.depth(), rows.len());
        let side = SIDE.min(count);
        let row_tiles: Vec<RowTile> = RowTile::consecutive(count, depth).collect();
        let pitch = panels.len() * PANEL + GAP;
        let sums = sums.at_least(row_tiles.len() * SIDE * pitch);
        let scope = TileScope::new(side);
        for (first, last) in (0..self.weights.chunks).step_by(STEPS).map(|i| (i, self.weights.chunks.min(i + STEPS))) {
            for (slot, panel) in panels.clone().enumerate() {
                let steps = Step::consecutive::<STEPS>(self.weights.steps([0, panel, 0], first..last));
                scope.multiply(Product {
                    a: &self.x[rows.start * depth + first * DEPTH..rows.end * depth],
                    a_row: depth,
                    tiles: &row_tiles,
                    steps: &steps[..last - first],
                    next: (self.weights.chunks * STEP) as isize,
                    c: &mut sums[slot * PANEL..],
                    c_row: pitch,
                    columns: self.weights.columns(panel),
                    accumulate: first > 0,
                });
            }
        }
        drop(scope);
        self.finish(rows, panels, sums, pitch);
    }

    /// Adds the bias and stores.
    fn finish(&self, rows: Range<usize>, panels: Range<usize>, sums: &[f32], pitch: usize) {
        let (n, first, count) = (self.weights.n, panels.start * PANEL, rows.len());
        let columns = (panels.len() * PANEL).min(n - first);
        let bias = &self.bias[first..][..columns];
        for (i, row) in rows.enumerate() {
            let tile = i / SIDE;
            let slot = tile * SIDE + i - (tile * SIDE).min(count - SIDE.min(count));
            // SAFETY: jobs differ in rows or in panels.
            let out = unsafe { self.out.slice_mut(row * n + first, columns) };
            store::<bf16>(self.level, &sums[slot * pitch..][..columns], bias, out, self.add);
        }
    }
}
