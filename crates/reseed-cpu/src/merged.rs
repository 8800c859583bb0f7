//! The products of an upsampler's two convolutions, straight into panels; what is summed is told by `reseed_ops::merge`.

use rayon::prelude::*;

use super::gemm::{Product, even_parts, multiply};
use super::level::Level;
use super::memory::Floats;
use super::panels::{Panels, Weights};

/// Columns of `upscale` that stand together: full register tiles of the widest level.
const COLUMNS: usize = 112;

/// One product: kernel tap `tap` after sub-position `sub` goes to low-resolution tap `to`.
pub struct Step {
    pub tap: usize,
    pub sub: usize,
    pub to: usize,
}

/// `[sub][c_mid][c_in]` in the order that products read it: `[sub][some columns][c_mid][column]`.
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

/// Sums products into panels of `blocks · c` rows.
pub fn merged(level: Level, upscale: &[f32], conv: &Weights, steps: &[Step], blocks: usize) -> Panels {
    let c = conv.n;
    let needed = c * steps.iter().map(|step| step.tap + 1).max().expect("a merge has products");
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
                    multiply(level, Product { fresh: false, ..product });
                }
            }
        },
    );
    out
}
