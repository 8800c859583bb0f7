//! How large the products of a merged upsampler become, whose phases have 2x2 taps.

use super::CheckOps;
use super::magnitude::absolute;
use super::pair::magnitude;
use super::winograd::widened;
use crate::error::Result;
use crate::operands::TemporalCache;
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::Upsample;

/// What Winograd along both axes adds to the bound of an upsampler.
///
/// Its products have inputs that a tap of the direct algorithm does not read. With D the largest |x| among the inputs
/// of a patch of outputs, and S the sum of |g| over the taps, the products of an output are at most `factor` D S.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Products {
    factor: f64,
    /// Rows and columns between an input of an output and the furthest other input of its products.
    reach: usize,
    /// Roundings of operands beside those of the merged kernels.
    pub operand_roundings: usize,
    /// Roundings to f32 beside those of the sum of products, each of which counts like a term of the sum.
    pub transform_terms: usize,
}

impl Products {
    /// Those of a device that executes this part of the products of the merged kernels.
    ///
    /// F(2x2,2x2) executes 9/16 of them. Along an axis it computes two outputs from three inputs:
    ///
    /// ```text
    /// V = (d0 - d1, d1, d2 - d1)      U = (g0, g0 + g1, g1)      y0 = U0 V0 + U1 V1      y1 = U1 V1 + U2 V2
    /// ```
    ///
    /// The products of y0 are at most |g0| (|d0| + |d1|) + S |d1|, those of y1 at most S |d1| + |g1| (|d1| + |d2|):
    /// at most 3 D S. Both transforms are linear, so that those of both axes are at most 9 D S. Sums of inputs are
    /// rounded once per axis.
    ///
    /// F(3x3,2x2) executes 16/36. Along an axis it computes three outputs from four inputs:
    ///
    /// ```text
    /// V = (d0 - d2, d1 + d2, d2 - d1, d3 - d1)       U = (g0, (g0 + g1) / 2, (g0 - g1) / 2, g1)
    /// y0 = U0 V0 + U1 V1 + U2 V2      y1 = U1 V1 - U2 V2      y2 = U1 V1 + U2 V2 + U3 V3
    /// ```
    ///
    /// Every V is at most 2 D. The products of y0 are at most 2 D (|g0| + S), those of y1 at most 2 D S and those of y2
    /// at most 2 D (S + |g1|): at most 4 D S, and 16 D S along both axes. They are rounded to f32: along each axis an
    /// input and a weight once, and the sum of three products twice.
    ///
    /// None of these is used where all products are executed.
    pub fn of(executed: f32) -> Option<Products> {
        match (executed * 144.0).round() as usize {
            81 => Some(Products { factor: 9.0, reach: 1, operand_roundings: 2, transform_terms: 0 }),
            64 => Some(Products { factor: 16.0, reach: 3, operand_roundings: 0, transform_terms: 8 }),
            _ => None,
        }
    }
}

/// Rows and columns of zeros around a frame that its outputs read.
const BORDER: usize = 1;

impl CheckOps<'_> {
    /// The sum of all products of every output without signs, on the reference.
    pub(super) fn upsample_sums(&self, cache: TemporalCache, x: &Tensor, upsample: &Upsample) -> Result<Vec<f64>> {
        let Some(products) = Products::of(upsample.executed) else {
            return self.absolute_upsample(cache, x, upsample, |x| self.absolute(x));
        };
        // Products have inputs inside the frame even where the taps of an output read zeros around it.
        let sums = self.absolute_upsample(cache, x, upsample, |x| self.largest(x, products.reach))?;
        let (thw, channels) = (x.thw(), x.channels());
        let (line, border) = (2 * (thw.w + 2 * BORDER) * channels, 2 * BORDER * channels);
        let rows = |frame: &[f64]| {
            let rows = frame.chunks_exact(line).skip(2 * BORDER).take(2 * thw.h);
            let inside = rows.flat_map(|row| row[border..line - border].iter());
            inside.map(|sum| products.factor * sum).collect::<Vec<_>>()
        };
        Ok(sums.chunks_exact(2 * (thw.h + 2 * BORDER) * line).flat_map(rows).collect())
    }

    /// The upsampler of magnitudes, which `inputs` makes of a clip.
    fn absolute_upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        inputs: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Vec<f64>> {
        let frames = cache.frames().map(&inputs).transpose()?;
        let cache = cache.with(frames.as_ref());
        let sums = self.reference.upsample(cache, &inputs(x)?, magnitude(&upsample.packed), None)?;
        self.magnitudes(&sums.tensor)
    }

    /// The largest |x| around every pixel, also around those of the border.
    fn largest(&self, x: &Tensor, reach: usize) -> Result<Tensor> {
        let (thw, channels) = (x.thw(), x.channels());
        let (values, padded) = bordered(&absolute(&self.values(x)?), thw, channels);
        // Rows of frames are like columns of as many channels as a row has values.
        let values = widened(&values, padded.w, channels, reach);
        let values = widened(&values, padded.h, padded.w * channels, reach);
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

    /// A Winograd algorithm along one axis: its points of N inputs and of both taps, and their part in the outputs.
    struct Axis<const N: usize, const OUTPUTS: usize> {
        inputs: fn([f32; N]) -> [f32; N],
        taps: fn([f32; 2]) -> [f32; N],
        outputs: [[f32; N]; OUTPUTS],
    }

    /// Both axes of a plane, each by `axis`.
    fn transformed<const N: usize, const M: usize>(plane: &[f32], axis: fn([f32; M]) -> [f32; N]) -> [[f32; N]; N] {
        let rows: [[f32; N]; M] = std::array::from_fn(|y| axis(std::array::from_fn(|x| plane[y * M + x])));
        let columns: [[f32; N]; N] = std::array::from_fn(|x| axis(std::array::from_fn(|y| rows[y][x])));
        std::array::from_fn(|y| std::array::from_fn(|x| columns[x][y]))
    }

    impl<const N: usize, const OUTPUTS: usize> Axis<N, OUTPUTS> {
        /// The algorithm gives the convolution, and the bound of its products holds for every output of a patch.
        fn stays_below_its_bound(&self) {
            let executed = (N * N) as f32 / (OUTPUTS * OUTPUTS * 4) as f32;
            let factor = Products::of(executed).expect("a known algorithm").factor as f32;
            let mut values = Values::new(11);
            for _ in 0..100 {
                let (g, d) = (values.take(4), values.take(N * N));
                let (u, v) = (transformed(&g, self.taps), transformed(&d, self.inputs));
                let largest = d.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
                let most = factor * largest * g.iter().map(|g| g.abs()).sum::<f32>();
                for (y, x) in (0..OUTPUTS).flat_map(|y| (0..OUTPUTS).map(move |x| (y, x))) {
                    let part = |i: usize| self.outputs[y][i / N] * self.outputs[x][i % N];
                    let products = (0..N * N).map(|i| part(i) * u[i / N][i % N] * v[i / N][i % N]);
                    let products: Vec<f32> = products.collect();
                    let direct: f32 = (0..4).map(|i| g[i] * d[(y + i / 2) * N + x + i % 2]).sum();
                    assert!((products.iter().sum::<f32>() - direct).abs() < 1e-5, "{g:?} {d:?}");
                    assert!(products.iter().map(|product| product.abs()).sum::<f32>() <= most, "{g:?} {d:?}");
                }
            }
        }
    }

    #[test]
    fn the_products_of_2x2_outputs_stay_below_their_bound() {
        let axis = Axis {
            inputs: |d| [d[0] - d[1], d[1], d[2] - d[1]],
            taps: |g| [g[0], g[0] + g[1], g[1]],
            outputs: [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]],
        };
        axis.stays_below_its_bound();
    }

    #[test]
    fn the_products_of_3x3_outputs_stay_below_their_bound() {
        let axis = Axis {
            inputs: |d| [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]],
            taps: |g| [g[0], (g[0] + g[1]) / 2.0, (g[0] - g[1]) / 2.0, g[1]],
            outputs: [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, 0.0], [0.0, 1.0, 1.0, 1.0]],
        };
        axis.stays_below_its_bound();
    }

    #[test]
    fn a_border_is_around_every_frame() {
        let (values, padded) = bordered(&[1.0, 2.0, 3.0, 4.0], Thw::new(2, 1, 2), 1);
        assert_eq!((padded.h, padded.w), (3, 4));
        let frame = |a, b| [0.0, 0.0, 0.0, 0.0, 0.0, a, b, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(values, [frame(1.0, 2.0), frame(3.0, 4.0)].concat());
    }
}
