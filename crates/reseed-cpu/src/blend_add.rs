//! Adds a weighted tile to a canvas.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use reseed_ops::reference;
use reseed_ops::{Placement, Result, Tensor};

/// Runs the op.
pub fn run(cpu: &CpuOps, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
    let (area, size) = (tile.thw(), canvas.thw());
    assert_eq!((at.rows.len(), at.columns.len()), (area.h, area.w), "blend_add: weights of {tile:?}");
    assert!(at.y + area.h <= size.h && at.x + area.w <= size.w, "blend_add: {tile:?} leaves {canvas:?}");
    assert_eq!((area.t, tile.channels()), (size.t, canvas.channels()), "blend_add: {tile:?} on {canvas:?}");
    if cpu.level() == Level::Reference {
        let mut sum = cpu.clip(&canvas);
        reference::blend_add(&mut sum, &cpu.clip(tile), at);
        return Ok(cpu.reference_output(&sum, None)?.tensor);
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
