//! Weights as tiles read them: `[part][panel][position][chunk][tap][half panel][pair of channels][column][2]`, bf16, zero
//! beyond the last channel and column. A part is a temporal tap; positions are those of `pairs.rs`, or there is one.

use half::bf16;
use rayon::prelude::*;

use super::tile::STEP;
use super::{DEPTH, PANEL, SIDE};
use crate::memory::{Element, Values};
use reseed_ops::DType;

/// Packed weights.
pub struct Tiled {
    /// Positions of a part.
    pub positions: usize,
    /// Taps of a position.
    pub taps: usize,
    /// Chunks of `DEPTH` input channels.
    pub chunks: usize,
    /// Outputs.
    pub n: usize,
    data: Values,
}

impl Tiled {
    /// Packs what `value(part, tap, channel, output)` tells.
    pub fn pack([parts, taps, c_in, n]: [usize; 4], value: impl Fn(usize, usize, usize, usize) -> f32 + Sync) -> Tiled {
        Tiled::pack_positions([parts, 1, taps, c_in, n], |part, _, tap, channel, output| {
            value(part, tap, channel, output)
        })
    }

    /// Packs what `value(part, position, tap, channel, output)` tells.
    pub fn pack_positions(
        [parts, positions, taps, c_in, n]: [usize; 5],
        value: impl Fn(usize, usize, usize, usize, usize) -> f32 + Sync,
    ) -> Tiled {
        let mut tiled = Tiled::zeros([parts, positions, taps], c_in.div_ceil(DEPTH), n);
        let (panels, chunks) = (tiled.count(), tiled.chunks);
        tiled.data.elements_mut::<bf16>().par_chunks_exact_mut(STEP).enumerate().for_each(|(i, to)| {
            let (tap, chunk, i) = (i % taps, i / taps % chunks, i / taps / chunks);
            let (position, panel, part) = (i % positions, i / positions % panels, i / positions / panels);
            let channels = chunk * DEPTH..c_in.min((chunk + 1) * DEPTH);
            for (o, output) in (panel * PANEL..n.min((panel + 1) * PANEL)).enumerate() {
                for (c, channel) in channels.clone().enumerate() {
                    to[place(c, o)] = Element::from_f32(value(part, position, tap, channel, output));
                }
            }
        });
        tiled
    }

    fn zeros([parts, positions, taps]: [usize; 3], chunks: usize, n: usize) -> Tiled {
        let data = Values::zeros(parts * n.div_ceil(PANEL) * positions * chunks * taps * STEP, DType::Bf16);
        Tiled { positions, taps, chunks, n, data }
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.data.elements::<bf16>().len() / (self.count() * self.positions * self.position())
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Columns of a panel that are not zeros.
    pub fn columns(&self, panel: usize) -> usize {
        PANEL.min(self.n - panel * PANEL)
    }

    /// Elements from a position to the next, which may be the next panel's.
    pub fn position(&self) -> usize {
        self.chunks * self.taps * STEP
    }

    /// Steps of some chunks of a part, a panel and a position, tap by tap.
    pub fn steps(&self, [part, panel, position]: [usize; 3], chunks: std::ops::Range<usize>) -> &[[bf16; STEP]] {
        let first = ((part * self.count() + panel) * self.positions + position) * self.chunks + chunks.start;
        &self.data.elements().as_chunks().0[first * self.taps..][..chunks.len() * self.taps]
    }

    /// One part: the sum of some, rounded.
    pub fn fold(parts: &[(&Tiled, usize)]) -> Tiled {
        let Tiled { positions, taps, chunks, n, .. } = *parts[0].0;
        let mut out = Tiled::zeros([1, positions, taps], chunks, n);
        let size = out.count() * positions * out.position();
        let parts: Vec<&[bf16]> =
            parts.iter().map(|(tiled, part)| &tiled.data.elements()[part * size..][..size]).collect();
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

/// Where a channel of a chunk and a column of a panel stand in a step.
fn place(channel: usize, column: usize) -> usize {
    column / SIDE * DEPTH * SIDE + channel / 2 * DEPTH + column % SIDE * 2 + channel % 2
}
