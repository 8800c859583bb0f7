//! One half of the VAE over a clip of any length, whole or in tiles, in memory that does not grow with it.

use reseed_ops::{Device, Hw, PendingDownload, Pixels, Shape, Tensor, Thw};

use crate::error::{Error, Result};
use crate::plan::{CachePlan, Tile};
use crate::vae::{Coder, State};

/// A clip on its way through an encoder or a decoder.
pub struct Stream<'a> {
    ops: &'a dyn Device,
    half: &'a dyn Coder,
    plane: Hw,
    tiles: Option<Vec<Tile>>,
    states: Vec<State>,
    keeping: CachePlan,
    workers: usize,
    /// Slices so far, until their memory has been seen to suffice.
    first: Vec<Vec<f32>>,
    started: usize,
}

/// Some frames of a clip on the host: `[T, H, W, C]`.
#[derive(Clone, Copy)]
pub enum Slice<'a> {
    /// Values, of latents or of pictures from -1 to 1.
    Values(&'a [f32]),
    /// Pictures as they are stored, which the device converts.
    Pixels(&'a Pixels),
}

/// Slices behind this one take the memory that it took.
const STEADY: usize = 3;

impl<'a> Stream<'a> {
    /// A clip that starts, of frames of this size.
    pub fn new(ops: &'a dyn Device, half: &'a dyn Coder, plane: Hw, keeping: &CachePlan) -> Self {
        let states = vec![State::with_plan(keeping.clone())];
        Stream {
            ops,
            half,
            plane,
            tiles: None,
            states,
            keeping: keeping.clone(),
            workers: 1,
            first: Vec::new(),
            started: 0,
        }
    }

    /// The same in tiles, if there are any, which come from [`crate::plan::Tiling::tiles`]; as many as `workers` of them
    /// run at the same time.
    pub fn tiled(self, tiles: Option<Vec<Tile>>, workers: usize) -> Self {
        let mut stream = Stream { tiles, workers: workers.max(1), ..self };
        stream.restart();
        stream
    }

    fn restart(&mut self) {
        let count = self.tiles.as_ref().map_or(1, Vec::len);
        self.states = (0..count).map(|_| State::with_plan(self.keeping.clone())).collect();
    }

    /// Runs the next slice: host values `[T, H, W, C]` in, `[T', H', W', C']` out. Behind the last one nothing is kept.
    pub fn step(&mut self, values: &[f32], last: bool) -> Result<Vec<f32>> {
        let mut result = Vec::new();
        self.start(values, last)?.wait(&mut result)?;
        Ok(result)
    }

    /// Starts the next slice. Its result can be waited for while the one behind it runs.
    pub fn start(&mut self, values: &[f32], last: bool) -> Result<Box<dyn PendingDownload>> {
        Ok(self.ops.start_download(&self.run(Slice::Values(values), last)?)?)
    }

    /// Runs the next slice; its result stays on the device.
    pub fn run(&mut self, slice: Slice, last: bool) -> Result<Tensor> {
        if last {
            self.states.iter_mut().for_each(State::end_with_next);
        }
        let frame = self.plane.count() * self.half.channels_in();
        let frames = slice.len() / frame;
        assert_eq!(slice.len(), frames * frame, "a slice of whole frames");
        let thw = Thw { t: frames, h: self.plane.h, w: self.plane.w };
        match self.tiles.take() {
            None => {
                let x = slice.upload(self.ops, Shape::clip(thw, self.half.channels_in()))?;
                self.half.run(self.ops, x, &mut self.states[0])
            }
            Some(tiles) => {
                let result = self.run_tiles(slice, thw, &tiles);
                self.tiles = Some(tiles);
                result
            }
        }
    }

    /// The same on a device whose memory may turn out to be too small: `smaller`, which is asked when no tensor of this
    /// clip is left, says how to keep things in less, and the few slices so far run again, to the same results. What
    /// suffices for these suffices for all.
    pub fn start_within(
        &mut self,
        values: &[f32],
        last: bool,
        smaller: &mut dyn FnMut() -> Option<CachePlan>,
    ) -> Result<Box<dyn PendingDownload>> {
        let mut result = self.start(values, last);
        while self.started <= STEADY
            && let Err(Error::Device(reseed_ops::Error::OutOfMemory { .. })) = &result
        {
            self.states.clear();
            let Some(keeping) = smaller() else { break };
            self.keeping = keeping;
            self.restart();
            result = self.run_again().and_then(|()| self.start(values, last));
        }
        self.started += 1;
        match self.started <= STEADY {
            true => self.first.push(values.to_vec()),
            false => self.first.clear(),
        }
        result
    }

    fn run_again(&mut self) -> Result<()> {
        let first = std::mem::take(&mut self.first);
        let done = first.iter().try_for_each(|values| Ok(self.start(values, false)?.wait(&mut Vec::new())?));
        self.first = first;
        done
    }

    fn run_tiles(&mut self, slice: Slice, thw: Thw, tiles: &[Tile]) -> Result<Tensor> {
        let starts = self.states[0].starts();
        let out = self.half.plane_out(self.plane);
        let whole = Thw { t: self.half.frames_out(thw.t, starts), h: out.h, w: out.w };
        let shape = Shape::clip(whole, self.half.channels_out());
        let mut canvas = self.ops.upload(shape, &vec![0.0; shape.count()])?;
        let (ops, half) = (self.ops, self.half);
        let run = |tile: &Tile, state: &mut State| -> Result<Tensor> {
            half.run(ops, slice.upload_tile(ops, thw, half.channels_in(), tile)?, state)
        };
        // Tiles are added in their own order whatever the number of workers, so that it does not change a bit.
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
                canvas = ops.blend_add(canvas, &result?, &tile.at)?;
            }
        }
        Ok(canvas)
    }
}

impl Slice<'_> {
    fn len(self) -> usize {
        match self {
            Slice::Values(values) => values.len(),
            Slice::Pixels(pixels) => pixels.len(),
        }
    }

    fn upload(self, ops: &dyn Device, shape: Shape) -> Result<Tensor> {
        Ok(match self {
            Slice::Values(values) => ops.upload(shape, values)?,
            Slice::Pixels(pixels) => ops.upload_pixels(shape, pixels)?,
        })
    }

    /// Of frames of `thw`, what a tile covers.
    fn upload_tile(self, ops: &dyn Device, thw: Thw, channels: usize, tile: &Tile) -> Result<Tensor> {
        let shape = Shape::clip(Thw { t: thw.t, h: tile.rows.len(), w: tile.columns.len() }, channels);
        match self {
            Slice::Values(values) => Slice::Values(&crop(values, thw, channels, tile)).upload(ops, shape),
            Slice::Pixels(Pixels::U8(codes)) => {
                Slice::Pixels(&Pixels::U8(crop(codes, thw, channels, tile))).upload(ops, shape)
            }
            Slice::Pixels(Pixels::U16(codes)) => {
                Slice::Pixels(&Pixels::U16(crop(codes, thw, channels, tile))).upload(ops, shape)
            }
        }
    }
}

fn crop<T: Copy>(from: &[T], thw: Thw, channels: usize, tile: &Tile) -> Vec<T> {
    let (Thw { t, h, w }, c) = (thw, channels);
    let mut values = Vec::with_capacity(t * tile.rows.len() * tile.columns.len() * c);
    for frame in 0..t {
        for row in tile.rows.clone() {
            let line = &from[(frame * h + row) * w * c..][..w * c];
            values.extend_from_slice(&line[tile.columns.start * c..tile.columns.end * c]);
        }
    }
    values
}
