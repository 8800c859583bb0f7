//! A matrix product on the host, for weights that are multiplied before they are packed.

use rayon::prelude::*;

use crate::host::buffer::Floats;
use crate::host::level::Level;
use crate::simd::gemm::{Product, multiply};
use crate::simd::panels::Panels;
use crate::simd::transpose::transpose;

/// Rows of a block: four full register tiles of the widest level.
const ROWS: usize = 56;

/// A `[m, k]` times B `[k, n]` in f32, at the best level of this machine.
pub fn matmul(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let k = b.len() / n;
    assert!(b.len() == k * n && a.len().is_multiple_of(k), "matmul of {} by {} values, n = {n}", a.len(), b.len());
    let level = Level::best().max(Level::Portable).simd();
    let mut panels = Panels::zeros(level, k, n);
    panels.fill(|first, count, panel| {
        let width = panel.len() / k;
        for (row, from) in panel.chunks_exact_mut(width).zip(b.chunks_exact(n)) {
            row[..count].copy_from_slice(&from[first..][..count]);
        }
    });
    let mut out = vec![0.0; a.len() / k * n];
    out.par_chunks_mut(ROWS * n).zip(a.par_chunks(ROWS * k)).for_each(|(out, a)| {
        let columns = a.len() / k;
        let mut transposed = Floats::zeros(a.len());
        transpose(level, a, k, &mut transposed, columns);
        let mut sums = Floats::zeros(columns * panels.padded());
        for panel in 0..panels.count() {
            let c = &mut sums[panel * panels.width..];
            let b = (panels.panel(panel, 0), panels.width);
            let product = Product::plain((&transposed, columns), b, k, (c, panels.padded()));
            multiply(level, product);
        }
        for (out, sums) in out.chunks_exact_mut(n).zip(sums.chunks_exact(panels.padded())) {
            out.copy_from_slice(&sums[..n]);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::matmul;

    #[test]
    fn a_product_of_small_integers_is_exact() {
        let (m, k, n) = (59, 7, 35);
        let value = |i: usize| (i % 11) as f32 - 5.0;
        let (a, b): (Vec<f32>, Vec<f32>) = ((0..m * k).map(value).collect(), (0..k * n).map(value).collect());
        let want = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum::<f32>();
        assert_eq!(matmul(&a, &b, n), (0..m * n).map(want).collect::<Vec<_>>());
    }
}
