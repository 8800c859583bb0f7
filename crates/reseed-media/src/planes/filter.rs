//! Chroma along one axis, from its own positions to those of luma and back.

use std::ops::Range;

use crate::rows;

/// How chroma lies against luma along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    /// One chroma sample for each luma sample.
    Same,
    /// One for two, between them.
    Centred,
    /// One for two, on the first of them.
    CoSited,
}

impl Axis {
    /// Chroma samples for `luma` luma samples; an odd one at the end has its own.
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

/// A weighted sum of at most three input samples for each output sample; the edges repeat.
#[derive(Debug)]
pub(super) struct Filter {
    taps: Vec<[Tap; 3]>,
    pattern: Pattern,
}

/// What all taps but those at the edges have in common, for rows to be filtered without looking them up.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    Copy,
    /// Two outputs for an input, from it and its neighbours.
    Two([[f32; 2]; 2]),
    /// An output for two inputs, from the one before them and both.
    Half([f32; 3]),
}

impl Filter {
    /// Chroma to luma positions: linear between the two nearest samples.
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
            Axis::Centred => Pattern::Two([[0.25, 0.75], [0.75, 0.25]]),
            Axis::CoSited => Pattern::Two([[0.0, 1.0], [0.5, 0.5]]),
        };
        Filter { taps: (0..luma).map(taps).collect(), pattern }
    }

    /// Luma to chroma positions: the mean of two for a sample between them, 1-2-1 for a sample on one of them.
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
            Axis::Centred => Pattern::Half([0.0, 0.5, 0.5]),
            Axis::CoSited => Pattern::Half([0.25, 0.5, 0.25]),
        };
        Filter { taps: (0..axis.chroma_len(luma)).map(taps).collect(), pattern }
    }

    /// Filters along a row.
    pub fn along(&self, row: &[f32], out: &mut [f32]) {
        assert_eq!(out.len(), self.taps.len(), "filtered row");
        let inner = self.inner(row, out);
        for x in (0..inner.start).chain(inner.end..out.len()) {
            let [a, b, c] = self.taps[x];
            out[x] = row[a.index] * a.weight + row[b.index] * b.weight + row[c.index] * c.weight;
        }
    }

    /// Filters what lies away from the edges and says which part of the output that was.
    fn inner(&self, row: &[f32], out: &mut [f32]) -> Range<usize> {
        match self.pattern {
            Pattern::Copy => {
                out.copy_from_slice(row);
                0..out.len()
            }
            Pattern::Two([even, odd]) if row.len() > 2 => {
                let inner = 2..2 * (row.len() - 1);
                rows::double(row, even, odd, &mut out[inner.clone()]);
                inner
            }
            Pattern::Half(weights) if row.len() > 3 => {
                let inner = 1..(row.len() - 1) / 2;
                rows::halve(&row[1..], weights, &mut out[inner.clone()]);
                inner
            }
            _ => 0..0,
        }
    }

    /// Filters across rows, each as wide as `out`, and yields row `y` of the result.
    pub fn across(&self, rows: &Rows, y: usize, out: &mut [f32]) {
        let taps = self.taps[y];
        rows::blend(taps.map(|tap| rows.at(tap.index)), taps.map(|tap| tap.weight), out);
    }

    /// The last row that row `y` of the result is made of.
    pub fn last_row(&self, y: usize) -> usize {
        self.taps[y].map(|tap| tap.index).into_iter().fold(0, usize::max)
    }
}

/// The last few rows of a plane: as many as a filter reaches across.
#[derive(Debug)]
pub(super) struct Rows {
    width: usize,
    values: Vec<f32>,
    /// The row behind the last.
    next: usize,
}

impl Rows {
    const HELD: usize = 4;

    pub fn new(width: usize) -> Rows {
        Rows { width, values: vec![0.0; Rows::HELD * width], next: 0 }
    }

    /// Takes rows up to and with `last`, each from `fill`, which is given its number.
    pub fn take_to(&mut self, last: usize, mut fill: impl FnMut(usize, &mut [f32])) {
        while self.next <= last {
            let at = self.next % Rows::HELD * self.width;
            fill(self.next, &mut self.values[at..][..self.width]);
            self.next += 1;
        }
    }

    fn at(&self, index: usize) -> &[f32] {
        debug_assert!(index < self.next && index + Rows::HELD >= self.next, "row {index} of {}", self.next);
        &self.values[index % Rows::HELD * self.width..][..self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: [Axis; 3] = [Axis::Same, Axis::Centred, Axis::CoSited];

    fn along(filter: &Filter, row: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; filter.taps.len()];
        filter.along(row, &mut out);
        out
    }

    /// A slope sampled where chroma lies must come back as the slope where luma lies, and the other way.
    #[test]
    fn a_slope_keeps_its_place() {
        for axis in AXES {
            let place = |i: usize| match axis {
                Axis::Same => i as f32,
                Axis::Centred => 2.0 * i as f32 + 0.5,
                Axis::CoSited => 2.0 * i as f32,
            };
            let luma: Vec<f32> = (0..16).map(|x| x as f32).collect();
            let chroma: Vec<f32> = (0..axis.chroma_len(16)).map(place).collect();
            let (up, down) = (along(&Filter::up(axis, 16), &chroma), along(&Filter::down(axis, 16), &luma));
            assert_eq!(up[2..14], luma[2..14], "{axis:?} up");
            assert_eq!(down[1..7], chroma[1..7], "{axis:?} down");
        }
    }

    #[test]
    fn a_flat_row_stays_flat_at_every_length() {
        for axis in AXES {
            for luma in 1..9 {
                let flat = vec![0.5; axis.chroma_len(luma)];
                assert_eq!(along(&Filter::up(axis, luma), &flat), vec![0.5; luma]);
                assert_eq!(along(&Filter::down(axis, luma), &vec![0.5; luma]), flat);
            }
        }
    }

    /// One looks its taps up, the other mostly does not.
    #[test]
    fn across_equals_along_transposed() {
        for (axis, luma) in AXES.into_iter().flat_map(|axis| (1..13).map(move |luma| (axis, luma))) {
            for (filter, length) in [(Filter::down(axis, luma), luma), (Filter::up(axis, luma), axis.chroma_len(luma))]
            {
                let column: Vec<f32> = (0..length).map(|v| (v * v) as f32).collect();
                let mut rows = Rows::new(1);
                for (y, value) in along(&filter, &column).iter().enumerate() {
                    let mut out = [0.0];
                    rows.take_to(filter.last_row(y), |i, row| row[0] = column[i]);
                    filter.across(&rows, y, &mut out);
                    assert_eq!(out[0], *value, "{axis:?} {luma} {y}");
                }
            }
        }
    }
}
