//! The right-hand matrix of a product, cut into panels: `[panel][k][column of the panel]`. Padding columns are zero.

use rayon::prelude::*;

use super::convert::{add_widened, widen};
use super::gemm::narrow_width;
use crate::host::buffer::{Floats, Values};
use crate::host::element::with_element;
use crate::host::level::Level;

/// A matrix of `k` rows and `n` columns in panels of `width` columns.
pub struct Panels<D = Floats> {
    /// Rows.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Columns of a panel.
    pub width: usize,
    /// `panels · k · width` values, aligned: a panel that straddles cache lines costs a third of the speed.
    pub data: D,
}

/// Panels in the narrowest type that holds every value exactly, so that weights occupy no more memory than in their
/// file. A thread widens a panel to f32 when it begins to use it.
pub type Weights = Panels<Values>;

impl<D> Panels<D> {
    /// Number of panels.
    pub fn count(&self) -> usize {
        self.n.div_ceil(self.width)
    }

    /// Columns including the padding.
    pub fn padded(&self) -> usize {
        self.count() * self.width
    }

    /// The values of rows `first .. first + rows` of a panel.
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

    /// A panel from row `k` on.
    pub fn panel(&self, panel: usize, k: usize) -> &[f32] {
        &self.data[self.span(panel, k, self.k - k)]
    }

    /// Fills all panels in parallel: `fill(first column, columns, panel)`.
    pub fn fill(&mut self, fill: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let (n, width) = (self.n, self.width);
        self.data.par_chunks_mut(self.k * width).enumerate().for_each(|(panel, data)| {
            let first = panel * width;
            fill(first, width.min(n - first), data);
        });
    }

    /// The same values in the narrowest exact type.
    pub fn narrow(self) -> Weights {
        let Panels { k, n, width, data } = self;
        Panels { k, n, width, data: data.narrow() }
    }
}

impl Weights {
    /// Some rows of a panel in f32. Widened values are in `scratch`.
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

    /// A copy of the first `k` rows.
    pub fn first_rows(&self, k: usize) -> Weights {
        let mut rows = Values::zeros(self.padded() * k, self.data.dtype());
        with_element!(self.data.dtype(), E => {
            for (panel, to) in rows.elements_mut::<E>().chunks_exact_mut(k * self.width).enumerate() {
                to.copy_from_slice(&self.data.elements::<E>()[self.span(panel, 0, k)]);
            }
        });
        Panels { k, n: self.n, width: self.width, data: rows }
    }
}

/// The sum of several matrices: for each, `rows` rows from its own first row on. It replaces the weights of several
/// taps that read the same frame.
pub fn fold(level: Level, parts: &[(&Weights, usize)], rows: usize) -> Panels {
    let Panels { n, width, .. } = *parts[0].0;
    let mut out = Panels::zeros(level, rows, n);
    assert_eq!(out.width, width, "panels of the same level");
    out.data.par_chunks_mut(rows * width).enumerate().for_each(|(panel, out)| {
        for (panels, first) in parts {
            add_widened(level, &panels.data, panels.span(panel, *first, rows), out);
        }
    });
    out
}

impl From<Panels> for Weights {
    /// Keeps f32, for panels that are used once.
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
    fn narrow_panels_have_the_narrowest_exact_type() {
        let cases =
            [(DType::Bf16, 1.0 + 1.0 / 64.0), (DType::F16, 1.0 + 1.0 / 1024.0), (DType::F32, 1.0 + 1.0 / 4096.0)];
        for level in Level::available().filter(|&level| level != Level::Reference) {
            for (dtype, largest) in cases {
                let value = |i: usize| if i == 77 { largest } else { (i % 5) as f32 - 2.0 };
                let mut panels = Panels::zeros(level, 5, 40);
                panels.data.iter_mut().enumerate().for_each(|(i, v)| *v = value(i));
                let weights = panels.narrow();
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
