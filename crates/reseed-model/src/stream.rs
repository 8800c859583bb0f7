//! One half of the VAE over a clip of any length, whole or in tiles, in memory that does not grow with it.

use reseed_ops::{Hw, Ops, Shape, Tensor, Thw};

use crate::error::Result;
use crate::plan::Tile;
use crate::vae::{Half, State};

/// A clip on its way through an encoder or a decoder.
pub struct Stream<'a> {
    ops: &'a dyn Ops,
    half: &'a dyn Half,
    plane: Hw,
    tiles: Option<Vec<Tile>>,
    states: Vec<State>,
    workers: usize,
}

impl<'a> Stream<'a> {
    /// A clip that starts, of frames of this size. `tiles` come from [`crate::plan::Tiling::tiles`]; as many as
    /// `workers` of them run at the same time.
    pub fn new(ops: &'a dyn Ops, half: &'a dyn Half, plane: Hw, tiles: Option<Vec<Tile>>, workers: usize) -> Self {
        let count = tiles.as_ref().map_or(1, Vec::len);
        let states = (0..count).map(|_| State::new()).collect();
        Stream { ops, half, plane, tiles, states, workers: workers.max(1) }
    }

    /// Runs the next slice: host values `[T, H, W, C]` in, `[T', H', W', C']` out. Behind the last one nothing is kept.
    pub fn step(&mut self, values: &[f32], last: bool) -> Result<Vec<f32>> {
        if last {
            self.states.iter_mut().for_each(State::end_with_next);
        }
        let channels = self.half.channels_in();
        let frames = values.len() / (self.plane.count() * channels);
        assert_eq!(values.len(), frames * self.plane.count() * channels, "a slice of whole frames");
        let slice = Slice { values, thw: Thw { t: frames, h: self.plane.h, w: self.plane.w }, channels };
        match self.tiles.take() {
            None => {
                let x = self.ops.upload(Shape::clip(slice.thw, channels), values)?;
                Ok(self.ops.download(&self.half.run(self.ops, x, &mut self.states[0])?)?)
            }
            Some(tiles) => {
                let result = self.step_tiles(&slice, &tiles);
                self.tiles = Some(tiles);
                result
            }
        }
    }

    /// The clip's memory as it stands; its tensors are shared, not copied.
    pub(crate) fn states(&self) -> Vec<State> {
        self.states.clone()
    }

    /// Goes on with another device, from `states` on that the clip had on this one.
    pub(crate) fn change(&mut self, ops: &'a dyn Ops, half: &'a dyn Half, states: Vec<State>) -> Result<()> {
        self.states.clear();
        let from = std::mem::replace(&mut self.ops, ops);
        self.half = half;
        self.states = states.into_iter().map(|state| state.moved(from, ops)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Where the clip runs.
    pub(crate) fn ops(&self) -> &'a dyn Ops {
        self.ops
    }

    fn step_tiles(&mut self, slice: &Slice, tiles: &[Tile]) -> Result<Vec<f32>> {
        let starts = self.states[0].starts();
        let out = self.half.plane_out(self.plane);
        let thw = Thw { t: self.half.frames_out(slice.thw.t, starts), h: out.h, w: out.w };
        let shape = Shape::clip(thw, self.half.channels_out());
        let mut canvas = self.ops.upload(shape, &vec![0.0; shape.count()])?;
        let (ops, half) = (self.ops, self.half);
        let run = |tile: &Tile, state: &mut State| -> Result<Tensor> {
            let (shape, values) = slice.crop(tile);
            half.run(ops, ops.upload(shape, &values)?, state)
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
        Ok(ops.download(&canvas)?)
    }
}

struct Slice<'a> {
    values: &'a [f32],
    thw: Thw,
    channels: usize,
}

impl Slice<'_> {
    fn crop(&self, tile: &Tile) -> (Shape, Vec<f32>) {
        let Thw { t, h, w } = self.thw;
        let c = self.channels;
        let mut values = Vec::with_capacity(t * tile.rows.len() * tile.columns.len() * c);
        for frame in 0..t {
            for row in tile.rows.clone() {
                let line = &self.values[(frame * h + row) * w * c..][..w * c];
                values.extend_from_slice(&line[tile.columns.start * c..tile.columns.end * c]);
            }
        }
        (Shape::clip(Thw { t, h: tile.rows.len(), w: tile.columns.len() }, c), values)
    }
}
