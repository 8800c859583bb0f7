//! Resampling of chroma along one axis, between chroma positions and luma positions.

use std::ops::Range;

use crate::rows;

/// The positions of chroma relative to luma along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    /// One chroma sample for each luma sample.
    Same,
    /// One chroma sample for two luma samples, between them.
    Centred,
    /// One chroma sample for two luma samples, at the first of them.
    CoSited,
}

impl Axis {
    /// The number of chroma samples for `luma` luma samples, rounded up.
    pub fn chroma_len(self, luma: usize) -> usize {
        match self {
            Axis::Same => luma,
            Axis::Centred | Axis::CoSited => luma.div_ceil(2),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Tap {
    index: usize,
    weight: f32,
}

/// Weights of at most three input samples for each output sample; samples at the edges repeat.
#[derive(Debug)]
pub(super) struct Filter {
    taps: Vec<[Tap; 3]>,
    pattern: Pattern,
}

/// The weights that all samples except those at the edges share, for filtering without table lookups.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    Copy,
    /// Two outputs per input, from the input and its neighbours.
    Double([[f32; 2]; 2]),
    /// One output for two inputs, from these and the input before them.
    Halve([f32; 3]),
}

impl Filter {
    /// From chroma to luma positions, by linear interpolation.
    pub fn up(axis: Axis, luma: usize) -> Filter {
        let last = axis.chroma_len(luma) as isize - 1;
        let taps = |x: usize| {
            let position = match axis {
                Axis::Same => x as f64,
                Axis::Centred => x as f64 / 2.0 - 0.25,
                Axis::CoSited => x as f64 / 2.0,
            };
            let below = position.floor();
            let fraction = (position - below) as f32;
            let tap = |step: isize, weight| Tap { index: (below as isize + step).clamp(0, last) as usize, weight };
            [tap(0, 1.0 - fraction), tap(1, fraction), tap(1, 0.0)]
        };
        let pattern = match axis {
            Axis::Same => Pattern::Copy,
            Axis::Centred => Pattern::Double([[0.25, 0.75], [0.75, 0.25]]),
            Axis::CoSited => Pattern::Double([[0.0, 1.0], [0.5, 0.5]]),
        };
        Filter { taps: (0..luma).map(taps).collect(), pattern }
    }

    /// From luma to chroma positions: the mean of two samples if chroma is between them, weights 1-2-1 if it is at one.
    pub fn down(axis: Axis, luma: usize) -> Filter {
        let last = luma as isize - 1;
        let taps = |i: usize| {
            let tap = |index: isize, weight| Tap { index: index.clamp(0, last) as usize, weight };
            let (i, twice) = (i as isize, 2 * i as isize);
            match axis {
                Axis::Same => [tap(i, 1.0), tap(i, 0.0), tap(i, 0.0)],
                Axis::Centred => [tap(twice, 0.5), tap(twice + 1, 0.5), tap(twice, 0.0)],
                Axis::CoSited => [tap(twice - 1, 0.25), tap(twice, 0.5), tap(twice + 1, 0.25)],
            }
        };
        let pattern = match axis {
            Axis::Same => Pattern::Copy,
            Axis::Centred => Pattern::Halve([0.0, 0.5, 0.5]),
            Axis::CoSited => Pattern::Halve([0.25, 0.5, 0.25]),
        };
        Filter { taps: (0..axis.chroma_len(luma)).map(taps).collect(), pattern }
    }

    /// Filters a row horizontally.
    pub fn horizontal(&self, row: &[f32], out: &mut [f32]) {
        assert_eq!(out.len(), self.taps.len(), "filtered row");
        let inner = self.inner(row, out);
        for x in (0..inner.start).chain(inner.end..out.len()) {
            let [a, b, c] = self.taps[x];
            out[x] = row[a.index] * a.weight + row[b.index] * b.weight + row[c.index] * c.weight;
        }
    }

    /// Filters the samples away from the edges, and returns the range of outputs that it wrote.
    fn inner(&self, row: &[f32], out: &mut [f32]) -> Range<usize> {
        match self.pattern {
            Pattern::Copy => {
                out.copy_from_slice(row);
                0..out.len()
            }
            Pattern::Double([even, odd]) if row.len() > 2 => {
                let inner = 2..2 * (row.len() - 1);
                rows::double(row, even, odd, &mut out[inner.clone()]);
                inner
            }
            Pattern::Halve(weights) if row.len() > 3 => {
                let inner = 1..(row.len() - 1) / 2;
                rows::halve(&row[1..], weights, &mut out[inner.clone()]);
                inner
            }
            _ => 0..0,
        }
    }

    /// Filters rows vertically into row `y` of the result.
    pub fn vertical(&self, rows: &RowWindow, y: usize, out: &mut [f32]) {
        let taps = self.taps[y];
        rows::blend(taps.map(|tap| rows.at(tap.index)), taps.map(|tap| tap.weight), out);
    }

    /// The last input row that row `y` of the result depends on.
    pub fn last_row(&self, y: usize) -> usize {
        self.taps[y].map(|tap| tap.index).into_iter().fold(0, usize::max)
    }
}

/// The most recent rows of a plane, as many as a vertical filter needs.
#[derive(Debug)]
pub(super) struct RowWindow {
    width: usize,
    values: Vec<f32>,
    /// The index after the last row.
    next: usize,
}

impl RowWindow {
    const CAPACITY: usize = 4;

    pub fn new(width: usize) -> RowWindow {
        RowWindow { width, values: vec![0.0; RowWindow::CAPACITY * width], next: 0 }
    }

    /// Adds rows up to and including `last`; `fill` writes the row of an index.
    pub fn fill_to(&mut self, last: usize, mut fill: impl FnMut(usize, &mut [f32])) {
        while self.next <= last {
            let at = self.next % RowWindow::CAPACITY * self.width;
            fill(self.next, &mut self.values[at..][..self.width]);
            self.next += 1;
        }
    }

    fn at(&self, index: usize) -> &[f32] {
        debug_assert!(index < self.next && index + RowWindow::CAPACITY >= self.next, "row {index} of {}", self.next);
        &self.values[index % RowWindow::CAPACITY * self.width..][..self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: [Axis; 3] = [Axis::Same, Axis::Centred, Axis::CoSited];

    fn horizontal(filter: &Filter, row: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; filter.taps.len()];
        filter.horizontal(row, &mut out);
        out
    }

    /// A slope sampled at chroma positions becomes the same slope at luma positions, and the reverse.
    #[test]
    fn a_slope_is_resampled_without_shift() {
        for axis in AXES {
            let position = |i: usize| match axis {
                Axis::Same => i as f32,
                Axis::Centred => 2.0 * i as f32 + 0.5,
                Axis::CoSited => 2.0 * i as f32,
            };
            let luma: Vec<f32> = (0..16).map(|x| x as f32).collect();
            let chroma: Vec<f32> = (0..axis.chroma_len(16)).map(position).collect();
            let (up, down) = (horizontal(&Filter::up(axis, 16), &chroma), horizontal(&Filter::down(axis, 16), &luma));
            assert_eq!(up[2..14], luma[2..14], "{axis:?} up");
            assert_eq!(down[1..7], chroma[1..7], "{axis:?} down");
        }
    }

    #[test]
    fn a_flat_row_stays_flat_at_every_length() {
        for axis in AXES {
            for luma in 1..9 {
                let flat = vec![0.5; axis.chroma_len(luma)];
                assert_eq!(horizontal(&Filter::up(axis, luma), &flat), vec![0.5; luma]);
                assert_eq!(horizontal(&Filter::down(axis, luma), &vec![0.5; luma]), flat);
            }
        }
    }

    /// The vertical filter uses the table, the horizontal one mostly uses the pattern.
    #[test]
    fn vertical_and_horizontal_filters_agree() {
        for (axis, luma) in AXES.into_iter().flat_map(|axis| (1..13).map(move |luma| (axis, luma))) {
            for (filter, length) in [(Filter::down(axis, luma), luma), (Filter::up(axis, luma), axis.chroma_len(luma))]
            {
                let column: Vec<f32> = (0..length).map(|v| (v * v) as f32).collect();
                let mut rows = RowWindow::new(1);
                for (y, value) in horizontal(&filter, &column).iter().enumerate() {
                    let mut out = [0.0];
                    rows.fill_to(filter.last_row(y), |i, row| row[0] = column[i]);
                    filter.vertical(&rows, y, &mut out);
                    assert_eq!(out[0], *value, "{axis:?} {luma} {y}");
                }
            }
        }
    }
}
