//! Chroma along one axis, from its own positions to those of luma and back.

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
        Filter { taps: (0..luma).map(taps).collect() }
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
        Filter { taps: (0..axis.chroma_len(luma)).map(taps).collect() }
    }

    /// Filters along a row.
    pub fn along(&self, row: &[f32], out: &mut [f32]) {
        assert_eq!(out.len(), self.taps.len(), "filtered row");
        for (value, [a, b, c]) in out.iter_mut().zip(&self.taps) {
            *value = row[a.index] * a.weight + row[b.index] * b.weight + row[c.index] * c.weight;
        }
    }

    /// Filters across the rows of `plane`, each as wide as `out`, and yields row `y` of the result.
    pub fn across(&self, plane: &[f32], y: usize, out: &mut [f32]) {
        let width = out.len();
        let row = |tap: Tap| &plane[tap.index * width..][..width];
        let [a, b, c] = self.taps[y];
        let rows = row(a).iter().zip(row(b)).zip(row(c));
        for (value, ((at_a, at_b), at_c)) in out.iter_mut().zip(rows) {
            *value = at_a * a.weight + at_b * b.weight + at_c * c.weight;
        }
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

    #[test]
    fn across_equals_along_transposed() {
        let column: Vec<f32> = (0..7).map(|v| (v * v) as f32).collect();
        for axis in AXES {
            let filter = Filter::down(axis, 7);
            let expected = along(&filter, &column);
            for (y, value) in expected.iter().enumerate() {
                let mut out = [0.0];
                filter.across(&column, y, &mut out);
                assert_eq!(out[0], *value);
            }
        }
    }
}
