//! Ops that only move or mix values: the tail of a slice, the diagonal Gaussian, tiles on a canvas.

use reseed_ops::{DType, Placement, Result, Shape, Tensor, Thw};

use super::CudaOps;
use super::memory::ptr;
use crate::driver::Ptr;
use crate::event::Lane;
use crate::launch::{Grid, args};
use crate::params::int;

pub fn tail(cuda: &CudaOps, mut cache: Option<Tensor>, mut x: Tensor, keep: usize) -> Result<Tensor> {
    let thw = x.thw();
    if thw.t == keep && x.is_unique() {
        return Ok(x);
    }
    if let Some(cache) = &cache {
        let plane = |t: &Tensor| (t.thw().h, t.thw().w, t.channels(), t.dtype());
        assert_eq!(plane(cache), plane(&x), "tail: cache {cache:?}, input {x:?}");
    }
    // Frames move towards the front, one by one, so that a cache may make room for itself.
    let in_place = match &mut cache {
        Some(cache) if cache.thw().t == keep => cuda.is_writable(cache)?,
        _ => false,
    };
    let kept = match &cache {
        Some(cache) if in_place => cache.clone(),
        _ => cuda.room("tail", Shape::clip(Thw { t: keep, ..thw }, x.channels()), x.dtype())?,
    };
    let frame = thw.h * thw.w * x.channels() * x.dtype().bytes();
    for i in 0..keep {
        let from = match ((thw.t + i).checked_sub(keep), &cache) {
            (Some(t), _) => ptr(&x).plus(t * frame),
            (None, None) => ptr(&x),
            (None, Some(cache)) => {
                let back = keep - thw.t - i;
                assert!(back <= cache.thw().t, "tail: {keep} frames of {cache:?} and {x:?}");
                ptr(cache).plus((cache.thw().t - back) * frame)
            }
        };
        // SAFETY: both are frames of one size, and never the same one: those of a cache that makes room move forward.
        unsafe { cuda.driver.copy(Lane::Compute, ptr(&kept).plus(i * frame), from, frame) }?;
    }
    Ok(kept)
}

pub fn gaussian(cuda: &CudaOps, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
    let (thw, channels) = (moments.thw(), moments.channels() / 2);
    let shape = Shape::clip(thw, channels);
    if let Some(noise) = noise {
        assert_eq!((noise.shape(), noise.dtype()), (shape, moments.dtype()), "gaussian: noise for {moments:?}");
    }
    let y = cuda.room("gaussian", shape, moments.dtype())?;
    let grid = Grid::new([shape.count().div_ceil(256), 1, 1], 256);
    let noise = noise.map_or(Ptr::NULL, ptr);
    let name = format!("gaussian_{}", moments.dtype());
    // SAFETY: arguments follow kernels/small.cu in order and type; shapes were checked above.
    unsafe {
        cuda.driver.launch(&name, grid, args![ptr(&y), ptr(moments), noise, int(thw.count()), int(channels), scale])
    }?;
    Ok(y)
}

pub fn blend_add(cuda: &CudaOps, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
    let (area, size, channels) = (tile.thw(), canvas.thw(), tile.channels());
    assert_eq!((at.rows.len(), at.columns.len()), (area.h, area.w), "blend_add: weights of {tile:?}");
    assert!(at.y + area.h <= size.h && at.x + area.w <= size.w, "blend_add: {tile:?} leaves {canvas:?}");
    assert_eq!((area.t, channels), (size.t, canvas.channels()), "blend_add: {tile:?} on {canvas:?}");
    assert_eq!(tile.dtype(), canvas.dtype(), "blend_add: {tile:?} on {canvas:?}");
    let canvas = cuda.writable("blend_add", canvas)?;
    let weights = [&at.rows[..], &at.columns[..]].concat();
    let scratch = cuda.scratch("blend_add", weights.len(), DType::F32)?;
    let (rows, columns) = (scratch.ptr(), scratch.ptr().plus(area.h * size_of::<f32>()));
    let grid = Grid::new([(area.w * channels).div_ceil(256), area.h, area.t], 256);
    let sizes = [area.t, area.h, area.w, size.h, size.w, channels, at.y, at.x].map(int);
    let [frames, tile_h, tile_w, canvas_h, canvas_w, channels, y, x] = sizes;
    let name = format!("blend_add_{}", tile.dtype());
    // SAFETY: arguments follow kernels/small.cu in order and type; the scratch holds the weights, and the tile lies
    // within the canvas.
    unsafe {
        cuda.driver.copy_in(rows, bytemuck::cast_slice(&weights))?;
        let (canvas, tile) = (ptr(&canvas), ptr(tile));
        cuda.driver.launch(
            &name,
            grid,
            args![canvas, tile, rows, columns, frames, tile_h, tile_w, canvas_h, canvas_w, channels, y, x],
        )?;
    }
    Ok(canvas)
}
