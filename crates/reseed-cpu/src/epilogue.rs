//! The epilogue of a convolution, one region at a time.

use std::ops::Range;

use crate::host::element::Element;
use crate::host::level::Level;
use crate::simd::output::{DisjointSlice, OutputRow, PixelOffsets, finish_row};
use crate::simd::region::Region;
use crate::simd::region_sums::RegionSums;
use crate::simd::stats::ACCUMULATOR;
use crate::tiles;

/// How the sums of a region become output.
pub struct RegionEpilogue<'a, E> {
    /// Level of the loops.
    pub level: Level,
    /// Whether the sums are those of tiles.
    pub tiles: bool,
    /// Output.
    pub out: &'a DisjointSlice<'a, E>,
    /// Channels of an output pixel.
    pub channels: usize,
    /// Whether the output holds a residual that is added.
    pub add: bool,
    /// Bias of every pixel, at the offset that the caller of [`RegionEpilogue::run`] names.
    pub bias: &'a [f32],
    /// Where wanted, statistics of blocks of pixels: `[block][channel]`.
    pub block_stats: Option<&'a DisjointSlice<'a, [f64; 2]>>,
}

impl<E: Element> RegionEpilogue<'_, E> {
    /// Writes some panels of a region, which is one block of the statistics. `offsets` maps a row and a column to the
    /// pixel's offsets in the output and in the bias.
    pub fn run(
        &self,
        region: &Region,
        panels: Range<usize>,
        sums: &mut RegionSums,
        block: usize,
        offsets: impl Fn(usize, usize) -> PixelOffsets,
    ) {
        let first = panels.start * sums.width;
        let channels = (panels.len() * sums.width).min(self.channels - first);
        let row = OutputRow {
            out: self.out,
            bias: self.bias,
            add: self.add,
            columns: region.columns.clone(),
            pixel: sums.pixel,
            first,
            channels,
            ahead: {
                let start = |y: usize| offsets(y, region.columns.start).output;
                start(region.rows.start + 1) - start(region.rows.start)
            },
        };
        let registers = self.tiles && tiles::output::supports(channels);
        ACCUMULATOR.with_borrow_mut(|stats| {
            let mut stats = self.block_stats.is_some().then_some(stats);
            for (i, y) in region.rows.clone().enumerate() {
                let line = sums.row(self.level, i);
                if let (0, Some(stats)) = (i, &mut stats) {
                    row.begin_stats(stats, line, offsets(y, region.columns.start));
                }
                match registers {
                    true => tiles::output::finish_row(&row, line, |x| offsets(y, x), stats.as_deref_mut()),
                    false => finish_row(self.level, &row, line, |x| offsets(y, x), stats.as_deref_mut()),
                }
            }
            if let (Some(block_stats), Some(stats)) = (self.block_stats, stats) {
                // SAFETY: regions differ in their block or in their channels.
                let to = unsafe { block_stats.slice_mut(block * self.channels + first, channels) };
                stats.finish(region.rows.len() * region.columns.len(), to);
            }
        });
    }
}
