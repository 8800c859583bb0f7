//! Rank matching by a radix sort.

use reseed_ops::Result;

use super::CudaFrames;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::ops::stride_grid;
use crate::params::{int, long};

/// Values of a digit, and threads of a block.
pub const DIGITS: usize = 256;
/// Keys of a block; kernels/rank.cu has the same number.
const TILE: usize = 4096;
/// Bits of a digit.
const BITS: i32 = 8;
/// The largest key.
const MAX_KEY: f32 = ((1 << 24) - 1) as f32;
/// Quantisation of Lab values: keys per unit.
const LAB_SCALE: f32 = MAX_KEY / 256.0;

/// Blocks for so many keys.
pub fn tiles(keys: usize) -> usize {
    keys.div_ceil(TILE)
}

/// Keys, and the pixels that they belong to: none where key `i` is that of pixel `i`.
#[derive(Clone, Copy)]
struct Sorted {
    keys: Ptr,
    pixels: Ptr,
}

impl CudaFrames {
    fn sorted(&self) -> [Sorted; 2] {
        self.layout.scratch.sorted.map(|[keys, pixels]| Sorted { keys: self.at(keys), pixels: self.at(pixels) })
    }

    fn counts(&self) -> Ptr {
        self.at(self.layout.scratch.counts)
    }

    /// Digits of all keys of the content.
    fn totals(&self) -> Ptr {
        self.at(self.layout.scratch.totals[0])
    }

    /// Digits of all keys of the targets in the last pass.
    fn target_totals(&self) -> Ptr {
        self.at(self.layout.scratch.totals[1])
    }

    /// Counts the digits of keys.
    fn count_digits(&self, keys: Ptr, shift: i32, totals: Ptr, count: usize) -> Result<()> {
        let (counts, blocks) = (self.counts(), tiles(count));
        let grid = |blocks: usize| Grid::new([blocks, 1, 1], DIGITS);
        // SAFETY: arguments follow kernels/rank.cu in order and type; the layout has room for the counts of all tiles.
        unsafe { self.launch("rank_count", grid(blocks), args![counts, keys, shift, long(count)]) }?;
        // SAFETY: as above.
        unsafe { self.launch("rank_scan", grid(DIGITS), args![counts, totals, int(blocks)]) }
    }

    /// Moves keys whose digits are counted.
    fn scatter(&self, from: Sorted, to: Sorted, (shift, totals, stride): (i32, Ptr, i32), count: usize) -> Result<()> {
        let (Sorted { keys, pixels }, Sorted { keys: to_keys, pixels: to_pixels }) = (from, to);
        let (grid, counts) = (Grid::new([tiles(count), 1, 1], DIGITS), self.counts());
        let n = long(count);
        // SAFETY: as above; positions are below `count`.
        unsafe {
            let args = args![to_keys, to_pixels, keys, pixels, counts, totals, shift, stride, n];
            self.launch("rank_scatter", grid, args)
        }
    }

    /// Sorts the keys of `from`, and their pixels with `pixels`, by their lower `passes` digits, and counts the digits
    /// of the next pass. Returns the place of the result, which is one of the two buffers.
    fn sort(&self, from: usize, (passes, pixels): (usize, bool), totals: Ptr, count: usize) -> Result<Sorted> {
        let buffers = self.sorted();
        let kept = |buffer: Sorted| if pixels { buffer } else { Sorted { pixels: Ptr::NULL, ..buffer } };
        let mut keys = Sorted { pixels: Ptr::NULL, ..buffers[from] };
        for pass in 0..passes {
            let (to, shift) = (kept(buffers[(from + pass + 1) % 2]), BITS * pass as i32);
            self.count_digits(keys.keys, shift, totals, count)?;
            self.scatter(keys, to, (shift, totals, 1), count)?;
            keys = to;
        }
        self.count_digits(keys.keys, BITS * passes as i32, totals, count)?;
        Ok(keys)
    }

    /// Gives one channel of Lab pixels the ranks of the targets, which are overwritten by their sorted keys.
    pub(super) fn match_lab_channel(
        &self,
        values: Ptr,
        targets: Ptr,
        count: usize,
        (low, weight): (f32, f32),
    ) -> Result<()> {
        let (first, totals) = (self.sorted()[0], self.totals());
        let keys_of = |x: Ptr| {
            // SAFETY: arguments follow kernels/rank.cu in order and type; x has three values for each key.
            unsafe {
                self.launch("rank_keys_lab", stride_grid(count), args![first.keys, x, low, LAB_SCALE, long(count)])
            }
        };
        keys_of(targets)?;
        let sorted = self.sort(0, (2, false), totals, count)?;
        let result = Sorted { keys: targets, pixels: Ptr::NULL };
        self.scatter(sorted, result, (2 * BITS, totals, 3), count)?;

        keys_of(values)?;
        let Sorted { keys, pixels } = self.sort(0, (2, true), totals, count)?;
        let (counts, shift, n, grid) = (self.counts(), 2 * BITS, long(count), Grid::new([tiles(count), 1, 1], DIGITS));
        // SAFETY: as above; every key is replaced once.
        unsafe {
            let args = args![values, targets, keys, pixels, counts, totals, shift, n, low, LAB_SCALE, weight];
            self.launch("rank_replace_lab", grid, args)
        }
    }

    /// The saturations of the content, matched to those of the style in each band of hue. Band 0 also includes the
    /// pixels of the last bands; the match of those comes later.
    pub(super) fn match_saturations(&self, count: usize) -> Result<Ptr> {
        let [targets, saturations] =
            [self.layout.scratch.targets, self.layout.scratch.saturations].map(|offset| self.at(offset));
        let (first, totals, target_totals) = (self.sorted()[0], self.totals(), self.target_totals());
        for merged in [1, 0] {
            let keys_of = |x: Ptr, saturations: Ptr| {
                // SAFETY: arguments follow kernels/hsv.cu in order and type; all hold `count` pixels.
                unsafe {
                    self.launch("hsv_keys", stride_grid(count), args![first.keys, saturations, x, long(count), merged])
                }
            };
            keys_of(self.style(0), Ptr::NULL)?;
            let sorted = self.sort(0, (3, false), target_totals, count)?;
            let result = Sorted { keys: targets, pixels: Ptr::NULL };
            self.scatter(sorted, result, (3 * BITS, target_totals, 1), count)?;

            keys_of(self.content(0), if merged == 1 { saturations } else { Ptr::NULL })?;
            let Sorted { keys, pixels } = self.sort(0, (3, true), totals, count)?;
            let (counts, n, grid) = (self.counts(), long(count), Grid::new([tiles(count), 1, 1], DIGITS));
            // SAFETY: arguments follow kernels/rank.cu in order and type; every key is replaced at most once.
            unsafe {
                let args = args![saturations, targets, target_totals, keys, pixels, counts, totals, n, merged];
                self.launch("rank_replace_hsv", grid, args)
            }?;
        }
        Ok(saturations)
    }
}
