//! Runs a coder of the VAE over a clip of any length, whole or in tiles, in constant memory.

use std::ops::Range;

use reseed_ops::{Device, Hw, PendingDownload, Pixels, Shape, Tensor, Thw};

use crate::error::{Error, Result};
use crate::plan::{CachePlan, Tile};
use crate::vae::{Coder, State};

/// Runs a clip through the encoder or the decoder, slice by slice.
pub struct Stream<'a> {
    ops: &'a dyn Device,
    coder: &'a dyn Coder,
    plane: Hw,
    tiles: Option<Vec<Tile>>,
    states: Vec<State>,
    cache_plan: CachePlan,
    workers: usize,
    /// Inputs of the first slices, stored for a replan until memory use is steady.
    replay: Vec<Vec<f32>>,
    started: usize,
}

/// Frames of a clip: `[T, H, W, C]`.
#[derive(Clone, Copy)]
pub enum SliceData<'a> {
    /// Values of latents, or of frames in [-1, 1], in host memory.
    Values(&'a [f32]),
    /// Integer pixels of frames in host memory. The device converts them.
    Pixels(&'a Pixels),
    /// So many frames that the caller has on the device.
    Device(usize, &'a LoadRegion<'a>),
}

/// Makes a tensor of the given rows and columns of frames.
pub type LoadRegion<'a> = dyn Fn(Range<usize>, Range<usize>) -> reseed_ops::Result<Tensor> + Sync + 'a;

/// Number of slices until memory use is steady.
const STEADY_AFTER: usize = 3;

impl<'a> Stream<'a> {
    /// Starts a clip of frames of size `plane`.
    pub fn new(ops: &'a dyn Device, coder: &'a dyn Coder, plane: Hw, cache_plan: &CachePlan) -> Self {
        let states = vec![State::with_plan(cache_plan.clone())];
        Stream {
            ops,
            coder,
            plane,
            tiles: None,
            states,
            cache_plan: cache_plan.clone(),
            workers: 1,
            replay: Vec::new(),
            started: 0,
        }
    }

    /// Runs in `tiles` of [`Tiling::tiles`](crate::plan::Tiling::tiles) if there are any, `workers` tiles in parallel.
    pub fn tiled(self, tiles: Option<Vec<Tile>>, workers: usize) -> Self {
        let mut stream = Stream { tiles, workers: workers.max(1), ..self };
        stream.restart();
        stream
    }

    fn restart(&mut self) {
        let count = self.tiles.as_ref().map_or(1, Vec::len);
        self.states = (0..count).map(|_| State::with_plan(self.cache_plan.clone())).collect();
    }

    /// Runs the next slice: host values `[T, H, W, C]` in, `[T', H', W', C']` out. The `last` slice frees the caches.
    pub fn step(&mut self, values: &[f32], last: bool) -> Result<Vec<f32>> {
        let mut result = Vec::new();
        self.start(values, last)?.wait(&mut result)?;
        Ok(result)
    }

    /// Starts the next slice. The download of its result can overlap the slice after it.
    pub fn start(&mut self, values: &[f32], last: bool) -> Result<Box<dyn PendingDownload>> {
        Ok(self.ops.start_download(&self.run(SliceData::Values(values), last)?)?)
    }

    /// Runs the next slice. Its result stays on the device.
    pub fn run(&mut self, slice: SliceData, last: bool) -> Result<Tensor> {
        if last {
            self.states.iter_mut().for_each(State::end_with_next);
        }
        let frames = slice.frames(self.plane.count() * self.coder.channels_in());
        let thw = Thw { t: frames, h: self.plane.h, w: self.plane.w };
        match self.tiles.take() {
            None => {
                let x = slice.upload(self.ops, Shape::clip(thw, self.coder.channels_in()))?;
                self.coder.run(self.ops, x, &mut self.states[0])
            }
            Some(tiles) => {
                let result = self.run_tiles(slice, thw, &tiles);
                self.tiles = Some(tiles);
                result
            }
        }
    }

    /// Starts the next slice and replans when the device is out of memory.
    ///
    /// During the first slices an out-of-memory error frees all tensors of the clip and calls `replan` for a smaller
    /// plan. The slices so far then run again, with the same results. Without a smaller plan the error is returned.
    pub fn start_or_replan(
        &mut self,
        values: &[f32],
        last: bool,
        replan: &mut dyn FnMut() -> Option<CachePlan>,
    ) -> Result<Box<dyn PendingDownload>> {
        let mut result = self.start(values, last);
        while self.started <= STEADY_AFTER
            && let Err(Error::Device(reseed_ops::Error::OutOfMemory { .. })) = &result
        {
            self.states.clear();
            let Some(cache_plan) = replan() else { break };
            self.cache_plan = cache_plan;
            self.restart();
            result = self.run_replay().and_then(|()| self.start(values, last));
        }
        self.started += 1;
        match self.started <= STEADY_AFTER {
            true => self.replay.push(values.to_vec()),
            false => self.replay.clear(),
        }
        result
    }

    fn run_replay(&mut self) -> Result<()> {
        let replay = std::mem::take(&mut self.replay);
        let result = replay.iter().try_for_each(|values| Ok(self.start(values, false)?.wait(&mut Vec::new())?));
        self.replay = replay;
        result
    }

    fn run_tiles(&mut self, slice: SliceData, thw: Thw, tiles: &[Tile]) -> Result<Tensor> {
        let starts = self.states[0].starts();
        let out = self.coder.plane_out(self.plane);
        let whole = Thw { t: self.coder.frames_out(thw.t, starts), h: out.h, w: out.w };
        let shape = Shape::clip(whole, self.coder.channels_out());
        let mut canvas = self.ops.upload(shape, &vec![0.0; shape.count()])?;
        let (ops, coder) = (self.ops, self.coder);
        let run = |tile: &Tile, state: &mut State| -> Result<Tensor> {
            coder.run(ops, slice.upload_tile(ops, thw, coder.channels_in(), tile)?, state)
        };
        // The order of the additions does not depend on the number of workers, so the result does not either.
        for (tiles, states) in tiles.chunks(self.workers).zip(self.states.chunks_mut(self.workers)) {
            let results: Vec<Result<Tensor>> = match self.workers {
                1 => vec![run(&tiles[0], &mut states[0])],
                _ => std::thread::scope(|scope| {
                    let start = |(tile, state)| scope.spawn(move || run(tile, state));
                    let threads: Vec<_> = tiles.iter().zip(states).map(start).collect();
                    threads.into_iter().map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
                }),
            };
            for (tile, result) in tiles.iter().zip(results) {
                canvas = ops.blend_add(canvas, &result?, &tile.placement)?;
            }
        }
        Ok(canvas)
    }
}

impl SliceData<'_> {
    /// Number of frames of `frame` values each.
    fn frames(self, frame: usize) -> usize {
        let values = match self {
            SliceData::Values(values) => values.len(),
            SliceData::Pixels(pixels) => pixels.len(),
            SliceData::Device(frames, _) => return frames,
        };
        assert!(values.is_multiple_of(frame), "a slice has {values} values, not a multiple of {frame} per frame");
        values / frame
    }

    fn upload(self, ops: &dyn Device, shape: Shape) -> Result<Tensor> {
        Ok(match self {
            SliceData::Values(values) => ops.upload(shape, values)?,
            SliceData::Pixels(pixels) => ops.upload_pixels(shape, pixels)?,
            SliceData::Device(_, load) => load(0..shape.dims()[1], 0..shape.dims()[2])?,
        })
    }

    /// Uploads the region of a tile from frames of size `thw`.
    fn upload_tile(self, ops: &dyn Device, thw: Thw, channels: usize, tile: &Tile) -> Result<Tensor> {
        let shape = Shape::clip(Thw { t: thw.t, h: tile.rows.len(), w: tile.columns.len() }, channels);
        match self {
            SliceData::Values(values) => SliceData::Values(&crop(values, thw, channels, tile)).upload(ops, shape),
            SliceData::Pixels(Pixels::U8(codes)) => {
                SliceData::Pixels(&Pixels::U8(crop(codes, thw, channels, tile))).upload(ops, shape)
            }
            SliceData::Pixels(Pixels::U16(codes)) => {
                SliceData::Pixels(&Pixels::U16(crop(codes, thw, channels, tile))).upload(ops, shape)
            }
            SliceData::Device(_, load) => Ok(load(tile.rows.clone(), tile.columns.clone())?),
        }
    }
}

fn crop<T: Copy>(from: &[T], thw: Thw, channels: usize, tile: &Tile) -> Vec<T> {
    let (Thw { t, h, w }, c) = (thw, channels);
    let mut values = Vec::with_capacity(t * tile.rows.len() * tile.columns.len() * c);
    for frame in 0..t {
        for row in tile.rows.clone() {
            let row = &from[(frame * h + row) * w * c..][..w * c];
            values.extend_from_slice(&row[tile.columns.start * c..tile.columns.end * c]);
        }
    }
    values
}
