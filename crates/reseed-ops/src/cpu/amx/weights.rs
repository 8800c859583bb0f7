//! Weights as tiles read them: `[part][panel][chunk][tap][half panel][pair of channels][column][2]`, bf16, zero beyond the
//! last channel and column. A part is a temporal tap.

use half::bf16;
use rayon::prelude::*;

use super::tile::STEP;
use super::{DEPTH, PANEL, SIDE};
use crate::cpu::memory::{Element, Values};
use crate::shape::DType;

/// Packed weights.
pub struct Tiled {
    /// Taps of a part.
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
        let mut tiled = Tiled::zeros(parts, taps, c_in.div_ceil(DEPTH), n);
        let (panels, chunks) = (tiled.count(), tiled.chunks);
        tiled.data.elements_mut::<bf16>().par_chunks_exact_mut(STEP).enumerate().for_each(|(i, to)| {
            let (tap, chunk, panel, part) =
                (i % taps, i / taps % chunks, i / taps / chunks % panels, i / taps / chunks / panels);
            let channels = chunk * DEPTH..c_in.min((chunk + 1) * DEPTH);
            for (o, output) in (panel * PANEL..n.min((panel + 1) * PANEL)).enumerate() {
                for (c, channel) in channels.clone().enumerate() {
                    to[place(c, o)] = Element::from_f32(value(part, tap, channel, output));
                }
            }
        });
        tiled
    }

    fn zeros(parts: usize, taps: usize, chunks: usize, n: usize) -> Tiled {
        let data = Values::zeros(parts * n.div_ceil(PANEL) * chunks * taps * STEP, DType::Bf16);
        Tiled { taps, chunks, n, data }
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.data.elements::<bf16>().len() / (self.count() * self.chunks * self.taps * STEP)
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Columns of a panel that are not zeros.
    pub fn columns(&self, panel: usize) -> usize {
        PANEL.min(self.n - panel * PANEL)
    }

    /// Steps of some chunks of a panel, tap by tap.
    pub fn steps(&self, part: usize, panel: usize, chunks: std::ops::Range<usize>) -> &[[bf16; STEP]] {
        let first = ((part * self.count() + panel) * self.chunks + chunks.start) * self.taps;
        &self.data.elements().as_chunks().0[first..][..chunks.len() * self.taps]
    }

    /// Elements from a panel to the next.
    pub fn panel(&self) -> usize {
        self.chunks * self.taps * STEP
    }

    /// One part: the sum of some, rounded.
    pub fn fold(parts: &[(&Tiled, usize)]) -> Tiled {
        let Tiled { taps, chunks, n, .. } = *parts[0].0;
        let mut out = Tiled::zeros(1, taps, chunks, n);
        let size = out.count() * chunks * taps * STEP;
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
