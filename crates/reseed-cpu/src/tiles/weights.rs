//! Weights in the layout of tiles: `[part][panel][position][chunk][tap][half panel][pair of channels][column][2]`
//! in bf16. Padding channels and columns are zero. A part is a temporal tap. Positions are the products of Winograd
//! F(2,3); a direct convolution has one.

use half::bf16;
use rayon::prelude::*;

use super::shape::{DEPTH, PANEL, SIDE, STEP};
use crate::host::buffer::Values;
use crate::host::element::Element;
use reseed_ops::DType;

/// Packed weights.
pub struct TileWeights {
    /// Positions of a part.
    pub positions: usize,
    /// Taps of a position.
    pub taps: usize,
    /// Chunks of `DEPTH` input channels.
    pub chunks: usize,
    /// Output channels.
    pub n: usize,
    data: Values,
}

impl TileWeights {
    /// Packs `value(part, tap, channel, output)`.
    pub fn pack(
        [parts, taps, c_in, n]: [usize; 4],
        value: impl Fn(usize, usize, usize, usize) -> f32 + Sync,
    ) -> TileWeights {
        TileWeights::pack_positions([parts, 1, taps, c_in, n], |part, _, tap, channel, output| {
            value(part, tap, channel, output)
        })
    }

    /// Packs `value(part, position, tap, channel, output)`.
    pub fn pack_positions(
        [parts, positions, taps, c_in, n]: [usize; 5],
        value: impl Fn(usize, usize, usize, usize, usize) -> f32 + Sync,
    ) -> TileWeights {
        let mut weights = TileWeights::zeros([parts, positions, taps], c_in.div_ceil(DEPTH), n);
        let (panels, chunks) = (weights.count(), weights.chunks);
        weights.data.elements_mut::<bf16>().par_chunks_exact_mut(STEP).enumerate().for_each(|(i, to)| {
            let (tap, chunk, i) = (i % taps, i / taps % chunks, i / taps / chunks);
            let (position, panel, part) = (i % positions, i / positions % panels, i / positions / panels);
            let channels = chunk * DEPTH..c_in.min((chunk + 1) * DEPTH);
            for (o, output) in (panel * PANEL..n.min((panel + 1) * PANEL)).enumerate() {
                for (c, channel) in channels.clone().enumerate() {
                    to[offset(c, o)] = Element::from_f32(value(part, position, tap, channel, output));
                }
            }
        });
        weights
    }

    fn zeros([parts, positions, taps]: [usize; 3], chunks: usize, n: usize) -> TileWeights {
        let data = Values::zeros(parts * n.div_ceil(PANEL) * positions * chunks * taps * STEP, DType::Bf16);
        TileWeights { positions, taps, chunks, n, data }
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.data.elements::<bf16>().len() / (self.count() * self.positions * self.position())
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Columns of a panel without the padding.
    pub fn columns(&self, panel: usize) -> usize {
        PANEL.min(self.n - panel * PANEL)
    }

    /// Stride between positions, and from the last position of a panel to the first of the next.
    pub fn position(&self) -> usize {
        self.chunks * self.taps * STEP
    }

    /// The steps of some chunks of a part, panel and position, chunk by chunk and tap by tap.
    pub fn steps(&self, [part, panel, position]: [usize; 3], chunks: std::ops::Range<usize>) -> &[[bf16; STEP]] {
        let first = ((part * self.count() + panel) * self.positions + position) * self.chunks + chunks.start;
        &self.data.elements().as_chunks().0[first * self.taps..][..chunks.len() * self.taps]
    }

    /// The sum of several parts, rounded: the weights of taps that read the same frame.
    pub fn fold(parts: &[(&TileWeights, usize)]) -> TileWeights {
        let TileWeights { positions, taps, chunks, n, .. } = *parts[0].0;
        let mut out = TileWeights::zeros([1, positions, taps], chunks, n);
        let size = out.count() * positions * out.position();
        let parts: Vec<&[bf16]> =
            parts.iter().map(|(weights, part)| &weights.data.elements()[part * size..][..size]).collect();
        out.data.elements_mut::<bf16>().par_chunks_mut(STEP).enumerate().for_each(|(i, to)| {
            let mut sums = [0.0; STEP];
            for part in &parts {
                let from = &part[i * STEP..][..STEP];
                sums.iter_mut().zip(from).for_each(|(sum, v)| *sum += Element::to_f32(*v));
            }
            to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = Element::from_f32(*sum));
        });
        out
    }
}

/// Offset of a channel of a chunk and a column of a panel in a step.
fn offset(channel: usize, column: usize) -> usize {
    column / SIDE * DEPTH * SIDE + channel / 2 * DEPTH + column % SIDE * 2 + channel % 2
}
