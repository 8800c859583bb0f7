//! The sums of a region, before bias, residual and rounding.

use super::dispatch::dispatch;
use crate::host::level::Level;

/// Products of Winograd F(2,3) over rows.
pub const ROW_POSITIONS: usize = 4;

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
                start + row % 2 * (ROW_POSITIONS - 1) * position
            }
        };
        &self.values[start..self.values.len().min(start + size)]
    }
}

/// Channels of a panel of [`combine_rows`].
pub const ROW_PANEL: usize = 32;

dispatch! {
    /// The output transform over rows, in place: m0 becomes the even row m0 + (m1 + m2), m3 the odd row m3 + (m1 - m2).
    /// The kernel transform has negated m3. Rows have `columns` pixels with stride `pixel`.
    pub fn combine_rows(m: [&mut [f32]; ROW_POSITIONS], columns: usize, pixel: usize) {
        let [m0, m1, m2, m3] = m.map(|m| m.chunks_mut(pixel).take(columns));
        for ((m0, m1), (m2, m3)) in m0.zip(m1).zip(m2.zip(m3)) {
            let (m0, m1) = (&mut m0[..ROW_PANEL], &m1[..ROW_PANEL]);
            let (m2, m3) = (&m2[..ROW_PANEL], &mut m3[..ROW_PANEL]);
            for i in 0..ROW_PANEL {
                m0[i] += m1[i] + m2[i];
                m3[i] += m1[i] - m2[i];
            }
        }
    }
}
