//! Ops that only move or mix values: the tail of a slice, tiles on a canvas.

use rayon::prelude::*;

use super::CpuOps;
use super::level::Level;
use super::memory::{Element, elements, elements_mut, with_element};
use reseed_ops::Result;
use reseed_ops::Tensor;
use reseed_ops::reference;
use reseed_ops::{Placement, TemporalCache};
use reseed_ops::{Shape, Thw};

/// Elements that a thread copies at a time.
const COPY: usize = 1 << 16;

pub fn tail(cpu: &CpuOps, mut cache: Option<Tensor>, mut x: Tensor, keep: usize) -> Result<Tensor> {
    let thw = x.thw();
    if thw.t == keep && x.is_unique() {
        return Ok(x);
    }
    if cache.as_mut().is_some_and(|cache| cache.thw().t == keep && cache.is_unique()) {
        let mut cache = cache.expect("seen above");
        with_element!(x.dtype(), E => {
            let to = elements_mut::<E>(&mut cache);
            let from = elements::<E>(&x);
            let from = &from[from.len().saturating_sub(to.len())..];
            let end = to.len() - from.len();
            to.copy_within(from.len().., 0);
            cpu.install(|| to[end..].par_chunks_mut(COPY).zip(from.par_chunks(COPY)).for_each(|(to, from)| to.copy_from_slice(from)));
        });
        return Ok(cache);
    }
    let cache = cache.as_ref().map_or(TemporalCache::Start, TemporalCache::Frames);
    let mut kept = cpu.room("tail", Shape::clip(Thw { t: keep, ..thw }, x.channels()), x.dtype())?;
    with_element!(x.dtype(), E => {
        let frames = super::conv::Frames::<E>::new(cache, &x);
        let size = thw.h * thw.w * x.channels();
        for (i, to) in elements_mut::<E>(&mut kept).chunks_exact_mut(size).enumerate() {
            let from = frames.at((thw.t + i) as isize - keep as isize);
            cpu.install(|| to.par_chunks_mut(COPY).zip(from.par_chunks(COPY)).for_each(|(to, from)| to.copy_from_slice(from)));
        }
    });
    Ok(kept)
}

pub fn blend_add(cpu: &CpuOps, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
    let (area, size) = (tile.thw(), canvas.thw());
    assert_eq!((at.rows.len(), at.columns.len()), (area.h, area.w), "blend_add: weights of {tile:?}");
    assert!(at.y + area.h <= size.h && at.x + area.w <= size.w, "blend_add: {tile:?} leaves {canvas:?}");
    assert_eq!((area.t, tile.channels()), (size.t, canvas.channels()), "blend_add: {tile:?} on {canvas:?}");
    if cpu.level() == Level::Reference {
        let mut sum = cpu.clip(&canvas);
        reference::blend_add(&mut sum, &cpu.clip(tile), at);
        return Ok(cpu.plain_result(&sum, None)?.tensor);
    }
    let mut canvas = cpu.writable("blend_add", canvas)?;
    with_element!(tile.dtype(), E => blend::<E>(cpu, &mut canvas, tile, at));
    Ok(canvas)
}

fn blend<E: Element>(cpu: &CpuOps, canvas: &mut Tensor, tile: &Tensor, at: &Placement) {
    let (area, size, c) = (tile.thw(), canvas.thw(), tile.channels());
    let lines = elements_mut::<E>(canvas).par_chunks_mut(size.w * c).enumerate();
    let tile = elements::<E>(tile);
    cpu.install(|| {
        lines.for_each(|(line, to)| {
            let (t, y) = (line / size.h, line % size.h);
            let Some(row) = y.checked_sub(at.y).filter(|&row| row < area.h) else { return };
            let from = &tile[(t * area.h + row) * area.w * c..][..area.w * c];
            let to = &mut to[at.x * c..][..area.w * c];
            for ((to, from), column) in to.chunks_exact_mut(c).zip(from.chunks_exact(c)).zip(&at.columns) {
                let weight = at.rows[row] * column;
                if weight == 1.0 {
                    to.copy_from_slice(from);
                } else {
                    to.iter_mut().zip(from).for_each(|(to, v)| *to = E::from_f32(to.to_f32() + weight * v.to_f32()));
                }
            }
        })
    });
}
