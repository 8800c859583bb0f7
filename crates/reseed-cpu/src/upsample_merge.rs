//! Merges the two convolutions of an upsampler into the kernels of its output phases, directly in panels.
//! `reseed_ops::merge` lists the products to sum.

use rayon::prelude::*;

use crate::host::buffer::Floats;
use crate::host::level::Level;
use crate::simd::gemm::{Product, even_parts, multiply};
use crate::simd::panels::{Panels, Weights};

/// Columns of `upscale` in a group: full register tiles of the widest level.
const COLUMNS: usize = 112;

/// One product of the merge.
pub struct Step {
    /// Tap of the convolution.
    pub tap: usize,
    /// Sub-position of the upscale.
    pub sub: usize,
    /// Tap of the low-resolution kernel that the product is added to.
    pub to: usize,
}

/// Reorders `[sub][c_mid][c_in]` for the products: `[sub][group of columns][c_mid][column]`.
pub fn upscale_columns(upscale: &[f32], c: usize) -> Floats {
    let mut columns = Floats::zeros(upscale.len());
    columns.par_chunks_exact_mut(c * c).zip(upscale.par_chunks_exact(c * c)).for_each(|(to, from)| {
        for (first, last) in even_parts(c, COLUMNS) {
            let rows = to[first * c..last * c].chunks_exact_mut(last - first);
            rows.zip(from.chunks_exact(c)).for_each(|(to, from)| to.copy_from_slice(&from[first..last]));
        }
    });
    columns
}

/// Sums the products into panels of `blocks · c` rows.
pub fn merge_into_panels(level: Level, upscale: &[f32], conv: &Weights, steps: &[Step], blocks: usize) -> Panels {
    let c = conv.n;
    let needed = c * steps.iter().map(|step| step.tap + 1).max().expect("a merge has steps");
    let mut out = Panels::zeros(level, blocks * c, c);
    let width = out.width;
    out.data.par_chunks_mut(blocks * c * width).enumerate().for_each_init(
        || Floats::zeros(0),
        |wide, (panel, out)| {
            let kernels = conv.rows(level, panel, 0..needed, wide);
            for step in steps {
                for (first, last) in even_parts(c, COLUMNS) {
                    let a = &upscale[(step.sub * c + first) * c..][..(last - first) * c];
                    let to = &mut out[(step.to * c + first) * width..];
                    let product =
                        Product::plain((a, last - first), (&kernels[step.tap * c * width..], width), c, (to, width));
                    multiply(level, Product { accumulate: true, ..product });
                }
            }
        },
    );
    out
}
