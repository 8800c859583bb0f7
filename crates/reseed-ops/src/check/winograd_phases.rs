//! How large the products of an upsampler by Winograd F(3x3,2x2) become.
//!
//! Along one axis three outputs are computed from four inputs d and two taps g:
//!
//! ```text
//! V = (d0 - d2, d1 + d2, d2 - d1, d3 - d1)       U = (g0, (g0 + g1) / 2, (g0 - g1) / 2, g1)
//! y0 = U0 V0 + U1 V1 + U2 V2      y1 = U1 V1 - U2 V2      y2 = U1 V1 + U2 V2 + U3 V3
//! ```
//!
//! With D = max |d| every V is at most 2D. The products of y0 are at most 2D (|g0| + |g0| + |g1|), those of y1 at most
//! 2D (|g0| + |g1|) and those of y2 at most 2D (|g1| + |g0| + |g1|): at most 4D (|g0| + |g1|). Both transforms are
//! linear, so that along both axes the products are at most 16 D times the sum of the four |g|, with the largest D of
//! 4x4 inputs. An input of these is at most three rows and three columns away from any input of the output.

use super::CheckOps;
use super::magnitude::absolute;
use super::winograd::widened;
use crate::error::Result;
use crate::operands::TemporalCache;
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::Upsample;

/// The bound of all products, relative to the merged kernels without signs and the largest input.
const PRODUCTS: f64 = 16.0;
/// Rows and columns between an input of an output and the furthest other input of its products.
const REACH: usize = 3;
/// Roundings to f32 beside those of the sum of products: along each axis one of an input, one of a weight and two of
/// the sum of three products.
pub const TRANSFORM_TERMS: usize = 8;
/// Rows and columns of zeros around a frame that its outputs read.
const BORDER: usize = 1;

impl CheckOps<'_> {
    /// The bound of the products of every output, on the reference.
    pub(super) fn upsample_products(&self, cache: TemporalCache, x: &Tensor, upsample: &Upsample) -> Result<Vec<f64>> {
        let (thw, channels) = (x.thw(), x.channels());
        let sums = self.upsample_sums(cache, &self.largest(x)?, upsample, Self::largest)?;
        let line = 2 * (thw.w + 2 * BORDER) * channels;
        let frame = 2 * (thw.h + 2 * BORDER) * line;
        let border = 2 * BORDER * channels;
        let rows = |frame: &[f64]| {
            let rows = frame.chunks_exact(line).skip(2 * BORDER).take(2 * thw.h);
            rows.flat_map(|row| row[border..line - border].iter().map(|sum| PRODUCTS * sum)).collect::<Vec<_>>()
        };
        Ok(sums.chunks_exact(frame).flat_map(rows).collect())
    }

    /// The largest |x| around every pixel, also around those of the border.
    fn largest(&self, x: &Tensor) -> Result<Tensor> {
        let (thw, channels) = (x.thw(), x.channels());
        let (values, padded) = bordered(&absolute(&self.values(x)?), thw, channels);
        let values = widened(&values, padded.w, channels, REACH);
        let values = widened(&values, padded.h, padded.w * channels, REACH);
        self.reference.upload(Shape::clip(padded, channels), &values)
    }
}

/// Frames with their border of zeros, and their size.
fn bordered(values: &[f32], thw: Thw, channels: usize) -> (Vec<f32>, Thw) {
    let padded = Thw { h: thw.h + 2 * BORDER, w: thw.w + 2 * BORDER, ..thw };
    let mut to = vec![0.0; padded.count() * channels];
    for (i, row) in values.chunks_exact(thw.w * channels).enumerate() {
        let at = (i / thw.h * padded.h + i % thw.h + BORDER) * padded.w + BORDER;
        to[at * channels..][..row.len()].copy_from_slice(row);
    }
    (to, padded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Values;

    fn inputs(d: [f32; 4]) -> [f32; 4] {
        [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]]
    }
    fn taps(g: [f32; 2]) -> [f32; 4] {
        [g[0], (g[0] + g[1]) / 2.0, (g[0] - g[1]) / 2.0, g[1]]
    }
    const OUTPUTS: [[f32; 4]; 3] = [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, 0.0], [0.0, 1.0, 1.0, 1.0]];

    fn transformed<const N: usize>(plane: &[f32], axis: fn([f32; N]) -> [f32; 4]) -> [[f32; 4]; 4] {
        let rows: [[f32; 4]; N] = std::array::from_fn(|y| axis(std::array::from_fn(|x| plane[y * N + x])));
        let columns: [[f32; 4]; 4] = std::array::from_fn(|x| axis(std::array::from_fn(|y| rows[y][x])));
        std::array::from_fn(|y| std::array::from_fn(|x| columns[x][y]))
    }

    /// F(3x3,2x2) gives the convolution, and the bound of its products holds for every one of the nine outputs.
    #[test]
    fn the_products_of_phases_stay_below_their_bound() {
        let mut values = Values::new(11);
        for _ in 0..100 {
            let (g, d) = (values.take(4), values.take(16));
            let (u, v) = (transformed(&g, taps), transformed(&d, inputs));
            let largest = d.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
            let most = PRODUCTS as f32 * largest * g.iter().map(|g| g.abs()).sum::<f32>();
            for (y, x) in (0..3).flat_map(|y| (0..3).map(move |x| (y, x))) {
                let product = |i: usize| OUTPUTS[y][i / 4] * OUTPUTS[x][i % 4] * u[i / 4][i % 4] * v[i / 4][i % 4];
                let products: Vec<f32> = (0..16).map(product).collect();
                let direct: f32 = (0..4).map(|i| g[i] * d[(y + i / 2) * 4 + x + i % 2]).sum();
                assert!((products.iter().sum::<f32>() - direct).abs() < 1e-5, "{g:?} {d:?}");
                assert!(products.iter().map(|product| product.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
            }
        }
    }

    #[test]
    fn a_border_is_around_every_frame() {
        let (values, padded) = bordered(&[1.0, 2.0, 3.0, 4.0], Thw::new(2, 1, 2), 1);
        assert_eq!((padded.h, padded.w), (3, 4));
        let frame = |a, b| [0.0, 0.0, 0.0, 0.0, 0.0, a, b, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(values, [frame(1.0, 2.0), frame(3.0, 4.0)].concat());
    }
}
