//! Weighted addition of a tile to a canvas.

use reseed_ops::{DType, Placement, Result, Tensor};

use super::CudaOps;
use super::memory::ptr;
use crate::launch::{Grid, args};
use crate::params::int;

pub fn run(cuda: &CudaOps, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
    let (area, size, channels) = (tile.thw(), canvas.thw(), tile.channels());
    assert_eq!((at.rows.len(), at.columns.len()), (area.h, area.w), "blend_add: weights of {tile:?}");
    assert!(at.y + area.h <= size.h && at.x + area.w <= size.w, "blend_add: {tile:?} exceeds {canvas:?}");
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
    // SAFETY: arguments follow kernels/blend_add.cu in order and type; the scratch holds the weights, and the tile lies
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
