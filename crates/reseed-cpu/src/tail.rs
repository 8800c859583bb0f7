//! The last frames of a slice: the temporal cache of the next slice.

use rayon::prelude::*;

use crate::CpuOps;
use crate::conv::Frames;
use crate::host::element::{Element, with_element};
use crate::host::memory::{elements, elements_mut};
use reseed_ops::{Result, Shape, TemporalCache, Tensor, Thw};

/// Elements that a thread copies at a time.
const COPY: usize = 1 << 16;

/// Runs the op.
pub fn run(cpu: &CpuOps, mut cache: Option<Tensor>, mut x: Tensor, keep: usize) -> Result<Tensor> {
    let thw = x.thw();
    if thw.t == keep && x.is_unique() {
        return Ok(x);
    }
    if cache.as_mut().is_some_and(|cache| cache.thw().t == keep && cache.is_unique()) {
        let mut cache = cache.expect("the cache exists");
        with_element!(x.dtype(), E => {
            let to = elements_mut::<E>(&mut cache);
            let from = elements::<E>(&x);
            let from = &from[from.len().saturating_sub(to.len())..];
            let end = to.len() - from.len();
            to.copy_within(from.len().., 0);
            copy(cpu, from, &mut to[end..]);
        });
        return Ok(cache);
    }
    let cache = cache.as_ref().map_or(TemporalCache::Start, TemporalCache::Frames);
    let mut tail = cpu.allocate("tail", Shape::clip(Thw { t: keep, ..thw }, x.channels()), x.dtype())?;
    with_element!(x.dtype(), E => {
        let frames = Frames::<E>::new(cache, &x);
        let size = thw.h * thw.w * x.channels();
        for (i, to) in elements_mut::<E>(&mut tail).chunks_exact_mut(size).enumerate() {
            let from = frames.at((thw.t + i) as isize - keep as isize);
            copy(cpu, from, to);
        }
    });
    Ok(tail)
}

fn copy<E: Element>(cpu: &CpuOps, from: &[E], to: &mut [E]) {
    let chunks = to.par_chunks_mut(COPY).zip(from.par_chunks(COPY));
    cpu.install(|| chunks.for_each(|(to, from)| to.copy_from_slice(from)));
}
