//! Linear layers on tiles: rows are read where they stand, weights pass by once for each block of rows.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::tile::{Place, Product, STEP, Step, Tiles};
use super::weights::Tiled;
use super::{DEPTH, PANEL, SIDE};
use crate::finish::{Target, store};
use crate::gemm::even_parts;
use crate::level::Level;
use crate::memory::Floats;

/// Most rows of a block.
const ROWS: usize = 384;
/// Most panels of a job: its sums stay in the second-level cache.
const PANELS: usize = 8;
/// Steps between two visits to memory of the sums.
const STEPS: usize = 32;
/// Floats between rows of sums beside their columns, against rows that share sets of the cache.
const GAP: usize = SIDE;

/// Whether rows can be read where they stand.
pub fn fits(d_in: usize) -> bool {
    d_in.is_multiple_of(DEPTH)
}

/// A product of rows with weights.
pub struct Matrix<'a> {
    /// Level of what is not done in tiles.
    pub level: Level,
    /// Rows.
    pub x: &'a [bf16],
    /// Weights.
    pub weights: &'a Tiled,
    /// Added to every row.
    pub bias: &'a [f32],
    /// Where results go.
    pub out: Target<bf16>,
    /// Whether that already holds what is to be added.
    pub add: bool,
}

thread_local! {
    static SUMS: RefCell<Floats> = RefCell::new(Floats::zeros(0));
}

impl Matrix<'_> {
    fn depth(&self) -> usize {
        self.weights.chunks * DEPTH
    }

    /// Blocks of rows by groups of panels; groups come one after the other, so that all threads read the same weights.
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

    /// Some rows of the output, the columns of some panels.
    fn block(&self, rows: Range<usize>, panels: Range<usize>, sums: &mut Floats) {
        let (depth, count) = (self.depth(), rows.len());
        let side = SIDE.min(count);
        let places: Vec<Place> = Place::in_a_row(count, depth).collect();
        let pitch = panels.len() * PANEL + GAP;
        let sums = sums.at_least(places.len() * SIDE * pitch);
        let tiles = Tiles::shaped(side);
        for (first, last) in (0..self.weights.chunks).step_by(STEPS).map(|i| (i, self.weights.chunks.min(i + STEPS))) {
            for (slot, panel) in panels.clone().enumerate() {
                let steps = Step::in_a_row::<STEPS>(self.weights.steps([0, panel, 0], first..last));
                tiles.multiply(Product {
                    a: &self.x[rows.start * depth + first * DEPTH..rows.end * depth],
                    a_row: depth,
                    tiles: &places,
                    steps: &steps[..last - first],
                    next: (self.weights.chunks * STEP) as isize,
                    c: &mut sums[slot * PANEL..],
                    c_row: pitch,
                    columns: self.weights.columns(panel),
                    fresh: first == 0,
                });
            }
        }
        drop(tiles);
        self.finish(rows, panels, sums, pitch);
    }

    fn finish(&self, rows: Range<usize>, panels: Range<usize>, sums: &[f32], pitch: usize) {
        let (n, first, count) = (self.weights.n, panels.start * PANEL, rows.len());
        let columns = (panels.len() * PANEL).min(n - first);
        let bias = &self.bias[first..][..columns];
        for (i, row) in rows.enumerate() {
            let tile = i / SIDE;
            let slot = tile * SIDE + i - (tile * SIDE).min(count - SIDE.min(count));
            // SAFETY: jobs differ in rows or in panels.
            let out = unsafe { self.out.piece(row * n + first, columns) };
            store::<bf16>(self.level, &sums[slot * pitch..][..columns], bias, out, self.add);
        }
    }
}
