//! The right-hand matrix of every product, cut into panels: `[panel][k][panel width]`, zero beyond the last column.

use rayon::prelude::*;

use super::gemm::narrow_width;
use super::level::Level;
use super::memory::{Floats, Values, with_element};
use super::widen::{add_widened, widen};

/// A matrix of `k` rows and `n` columns in panels of `width` columns.
pub struct Panels<D = Floats> {
    /// Rows.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Columns of a panel.
    pub width: usize,
    /// `panels · k · width` values; a panel that straddles cache lines would cost a third of the speed.
    pub data: D,
}

/// Panels that are kept, in the narrowest type that holds every value exactly: a file's weights take the room that they
/// take in the file, and a panel is widened when a thread begins to use it.
pub type Weights = Panels<Values>;

impl<D> Panels<D> {
    /// Number of panels.
    pub fn count(&self) -> usize {
        self.n.div_ceil(self.width)
    }

    /// Columns with the zeros behind the last.
    pub fn padded(&self) -> usize {
        self.count() * self.width
    }

    /// Where rows `first .. first + rows` of a panel stand.
    fn span(&self, panel: usize, first: usize, rows: usize) -> std::ops::Range<usize> {
        assert!(first + rows <= self.k, "rows {first} to {} of {}", first + rows, self.k);
        let start = (panel * self.k + first) * self.width;
        start..start + rows * self.width
    }
}

impl Panels {
    /// Zeros.
    pub fn zeros(level: Level, k: usize, n: usize) -> Panels {
        let width = narrow_width(level, n);
        Panels { k, n, width, data: Floats::zeros(n.div_ceil(width) * k * width) }
    }

    /// Rows `k` and on of a panel.
    pub fn panel(&self, panel: usize, k: usize) -> &[f32] {
        &self.data[self.span(panel, k, self.k - k)]
    }

    /// Fills every panel side by side: `fill(first column, columns, panel)`.
    pub fn fill(&mut self, fill: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let (n, width) = (self.n, self.width);
        self.data.par_chunks_mut(self.k * width).enumerate().for_each(|(panel, data)| {
            let first = panel * width;
            fill(first, width.min(n - first), data);
        });
    }

    /// The same values, to be kept.
    pub fn keep(self) -> Weights {
        let Panels { k, n, width, data } = self;
        Panels { k, n, width, data: data.keep() }
    }
}

impl Weights {
    /// Some rows of a panel, in `scratch` where they had to be widened.
    pub fn rows<'a>(
        &'a self,
        level: Level,
        panel: usize,
        rows: std::ops::Range<usize>,
        scratch: &'a mut Floats,
    ) -> &'a [f32] {
        let span = self.span(panel, rows.start, rows.len());
        match self.data.floats() {
            Some(floats) => &floats[span],
            None => {
                let to = scratch.at_least(span.len());
                widen(level, &self.data, span, to);
                to
            }
        }
    }

    /// The first `k` rows alone.
    pub fn first_rows(&self, k: usize) -> Weights {
        let mut kept = Values::zeros(self.padded() * k, self.data.dtype());
        with_element!(self.data.dtype(), E => {
            for (panel, to) in kept.elements_mut::<E>().chunks_exact_mut(k * self.width).enumerate() {
                to.copy_from_slice(&self.data.elements::<E>()[self.span(panel, 0, k)]);
            }
        });
        Panels { k, n: self.n, width: self.width, data: kept }
    }
}

/// Sums `rows` rows of several panels, each from its own first row on: what multiplies a frame that all of them read.
pub fn fold(level: Level, parts: &[(&Weights, usize)], rows: usize) -> Panels {
    let Panels { n, width, .. } = *parts[0].0;
    let mut out = Panels::zeros(level, rows, n);
    assert_eq!(out.width, width, "panels of another level");
    out.data.par_chunks_mut(rows * width).enumerate().for_each(|(panel, out)| {
        for (panels, first) in parts {
            add_widened(level, &panels.data, panels.span(panel, *first, rows), out);
        }
    });
    out
}

impl From<Panels> for Weights {
    /// Without looking for a narrower type: panels of a single run.
    fn from(panels: Panels) -> Weights {
        let Panels { k, n, width, data } = panels;
        Panels { k, n, width, data: data.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_ops::DType;

    #[test]
    fn kept_panels_are_as_narrow_as_their_values_and_lose_nothing() {
        let cases =
            [(DType::Bf16, 1.0 + 1.0 / 64.0), (DType::F16, 1.0 + 1.0 / 1024.0), (DType::F32, 1.0 + 1.0 / 4096.0)];
        for level in Level::available().filter(|&level| level != Level::Reference) {
            for (dtype, largest) in cases {
                let value = |i: usize| if i == 77 { largest } else { (i % 5) as f32 - 2.0 };
                let mut panels = Panels::zeros(level, 5, 40);
                panels.data.iter_mut().enumerate().for_each(|(i, v)| *v = value(i));
                let weights = panels.keep();
                assert_eq!(weights.data.dtype(), dtype);
                let (scratch, size) = (&mut Floats::zeros(0), 2 * weights.width);
                for panel in 0..weights.count() {
                    let first = weights.span(panel, 1, 2).start;
                    let want: Vec<f32> = (first..first + size).map(value).collect();
                    assert_eq!(weights.rows(level, panel, 1..3, scratch), want, "{level} {dtype:?}");
                    let doubled: Vec<f32> = want.iter().map(|v| 2.0 * v).collect();
                    let folded = fold(level, &[(&weights, 1), (&weights, 1)], 2);
                    assert_eq!(folded.panel(panel, 0), doubled, "{level} {dtype:?}");
                }
                assert_eq!(weights.first_rows(3).rows(level, 1, 0..3, scratch).len(), 3 * weights.width);
            }
        }
    }
}
