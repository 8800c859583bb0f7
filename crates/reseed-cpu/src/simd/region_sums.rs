//! The sums of a region, before bias, residual and rounding.

use super::winograd::{POSITIONS, combine_rows};
use crate::host::level::Level;

/// Sums of a region: `[row][column][channel]`. The channels are those of the region's panels, padded to whole panels.
pub struct RegionSums<'a> {
    /// The values.
    pub values: &'a mut [f32],
    /// Stride between pixels.
    pub pixel: usize,
    /// Pixels from a row to the next.
    pub line: usize,
    /// Channels of a panel.
    pub width: usize,
    /// Where the values are the four products of Winograd F(2,3) over rows: pixels from a product to the next.
    pub position: Option<usize>,
}

impl RegionSums<'_> {
    /// The sums of a row. Rows must be read in order: row 2j combines the Winograd products of rows 2j and 2j + 1.
    pub fn row(&mut self, level: Level, row: usize) -> &[f32] {
        let size = self.line * self.pixel;
        let start = match self.position.map(|pixels| pixels * self.pixel) {
            None => row * size,
            Some(position) => {
                let start = row / 2 * size;
                if row.is_multiple_of(2) {
                    let mut planes = self.values.chunks_mut(position);
                    let products =
                        std::array::from_fn(|_| &mut planes.next().expect("a plane for every product")[start..]);
                    combine_rows(level, products, self.line, self.pixel);
                }
                start + row % 2 * (POSITIONS - 1) * position
            }
        };
        &self.values[start..self.values.len().min(start + size)]
    }
}
