//! Partition of a clip into slices of frames and spatial tiles, and the plan of its temporal caches.
//!
//! The functions work on integers and blend weights. They touch no tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::PI;
use std::ops::Range;

use reseed_ops::{Hw, Placement};

/// Schedule of a coder: frames per chunk and residency of the temporal caches. Results differ by rounding at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePlan {
    /// Frames per chunk in the levels of the highest resolution.
    pub chunk_frames: usize,
    /// Number of decoder levels that run in chunks.
    pub chunk_levels: usize,
    /// Slots of the layers whose temporal cache is offloaded to host memory.
    pub offloaded: BTreeSet<usize>,
    /// Of these, slots whose cache is offloaded after every chunk where chunks run breadth-first, as always where they
    /// run depth-first.
    pub streamed: BTreeSet<usize>,
    /// Prefetch distances that differ from the default. See [`CachePlan::prefetch_distance`].
    pub prefetch_distances: BTreeMap<usize, usize>,
    /// Whether chunks run breadth-first: all chunks of a slice pass an offloaded layer before any chunk enters the next
    /// layer, so that the cache is copied once per slice, unless it is streamed. Otherwise chunks run depth-first.
    pub breadth_first: bool,
    /// Blocks whose input chunks are offloaded while they wait, by the first slot of the block. Where chunks run
    /// breadth-first, this makes room for the caches of the layers that run meanwhile.
    pub offloaded_inputs: BTreeMap<usize, InputPlan>,
    /// Whether a convolution of one frame reads an offloaded cache in strips of rows, unless the cache is prefetched.
    pub strips: bool,
}

/// Which input chunks of a block are offloaded, and when they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputPlan {
    /// Number of chunks that stay on the device: those that wait for the shortest time.
    pub kept: usize,
    /// Number of slots at the end of the preceding chunk's layers that run while a chunk is prefetched.
    pub prefetch_distance: usize,
}

impl Default for InputPlan {
    /// Only the first or the last chunk stays.
    fn default() -> InputPlan {
        InputPlan { kept: 1, prefetch_distance: 2 }
    }
}

impl Default for CachePlan {
    /// Two frames per chunk. A layer caches two frames: the cache is the last chunk itself, and no copy is needed.
    fn default() -> CachePlan {
        CachePlan {
            chunk_frames: 2,
            chunk_levels: 2,
            offloaded: BTreeSet::new(),
            streamed: BTreeSet::new(),
            prefetch_distances: BTreeMap::new(),
            breadth_first: false,
            offloaded_inputs: BTreeMap::new(),
            strips: false,
        }
    }
}

impl CachePlan {
    /// Number of offloaded layers that run while the cache of `slot` is prefetched. The default is one, or zero with
    /// strips.
    ///
    /// At distance zero the layer waits for its cache or reads it in strips, and its input is freed without waiting for
    /// the offload copy.
    pub fn prefetch_distance(&self, slot: usize) -> usize {
        self.prefetch_distances.get(&slot).copied().unwrap_or(usize::from(!self.strips))
    }
}

/// Partitions a clip of `frames` frames into slices of `step` frames. The first slice has one frame more.
pub fn slices(frames: usize, step: usize) -> Vec<Range<usize>> {
    assert!(frames > 0 && step > 0, "slices({frames}, {step})");
    let mut plan = Vec::new();
    let mut start = 0;
    while start < frames {
        let end = frames.min(start + step + usize::from(start == 0));
        plan.push(start..end);
        start = end;
    }
    plan
}

/// Number of frames that a clip is padded to: 1 + a multiple of `factor`.
pub fn padded_frames(frames: usize, factor: usize) -> usize {
    assert!(frames > 0, "a clip has at least one frame");
    1 + (frames - 1).next_multiple_of(factor)
}

/// Index of the frame that frame `i` of the padded clip repeats; `total` is the length of the padded clip.
///
/// The padding mirrors the clip at its last frame. A clip too short for that repeats its last frame, mirrors down to
/// frame 1, and fills the rest with its last frame.
pub fn source_frame(i: usize, frames: usize, total: usize) -> usize {
    let added = total - frames;
    match i.checked_sub(frames) {
        None => i,
        Some(k) if added < frames => frames - 2 - k,
        Some(k) if k + 1 < frames => frames - 1 - k,
        Some(_) => frames - 1,
    }
}

/// Size of a side after padding at the right or bottom: unchanged when `factor` divides it, else the next multiple of
/// twice `factor`, which the patches of the transformer require.
fn padded_side(side: usize, factor: usize) -> usize {
    if side.is_multiple_of(factor) { side } else { side.next_multiple_of(2 * factor) }
}

/// Size of a plane after padding at the right and bottom.
pub fn padded_plane(plane: Hw, factor: usize) -> Hw {
    Hw::new(padded_side(plane.h, factor), padded_side(plane.w, factor))
}

/// Tile size and overlap in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Size of a tile.
    pub tile: Hw,
    /// Overlap of neighbouring tiles.
    pub overlap: Hw,
}

/// Position of a tile in the input and in the output.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Rows of the input plane.
    pub rows: Range<usize>,
    /// Columns of the input plane.
    pub columns: Range<usize>,
    /// Position of its output, with blend weights that sum to one over all tiles.
    pub placement: Placement,
}

/// Input of the coder that runs in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileInput {
    /// Frames, of the encoder. Its output is blended as latents.
    Frames,
    /// Latents, of the decoder. Its output is blended as frames.
    Latents,
}

impl Tiling {
    /// Tiles of an input plane in row-major order, or `None` when one tile covers the plane. The grid is defined on
    /// latents, as in the public implementations.
    pub fn tiles(&self, input: TileInput, plane: Hw, factor: usize) -> Option<Vec<Tile>> {
        let axis = |size: usize, tile: usize, overlap: usize| Axis::new(input, size, tile, overlap, factor);
        let rows = axis(plane.h, self.tile.h, self.overlap.h);
        let columns = axis(plane.w, self.tile.w, self.overlap.w);
        if rows.fits && columns.fits {
            return None;
        }
        let tile = |row: &Span, column: &Span| Tile {
            rows: row.input.clone(),
            columns: column.input.clone(),
            placement: Placement {
                y: row.start,
                x: column.start,
                rows: row.weights.clone(),
                columns: column.weights.clone(),
            },
        };
        let (rows, columns) = (rows.spans(), columns.spans());
        Some(rows.iter().flat_map(|row| columns.iter().map(move |column| tile(row, column))).collect())
    }
}

/// One axis of the grid, in latents.
struct Axis {
    input: TileInput,
    factor: usize,
    size: usize,
    tile: usize,
    overlap: usize,
    overlap_pixels: usize,
    fits: bool,
}

/// A tile along one axis.
struct Span {
    input: Range<usize>,
    start: usize,
    weights: Vec<f32>,
}

impl Axis {
    fn new(input: TileInput, size: usize, tile: usize, overlap_pixels: usize, factor: usize) -> Axis {
        let latents = (tile / factor).max(1);
        let (size, fits) = match input {
            TileInput::Frames => (size.div_ceil(factor), size <= tile),
            TileInput::Latents => (size, size <= latents),
        };
        let overlap = (overlap_pixels / factor).min(latents - 1);
        Axis { input, factor, size, tile: latents, overlap, overlap_pixels, fits }
    }

    /// Latents of each tile. A tile inside the overlap of the previous one is omitted.
    fn ranges(&self) -> Vec<Range<usize>> {
        let stride = (self.tile - self.overlap).max(1);
        let range = |start: usize| start..(start + self.tile).min(self.size);
        let inside = |r: &Range<usize>| r.start > 0 && r.len() <= self.overlap;
        (0..self.size).step_by(stride).map(range).filter(|r| !inside(r)).collect()
    }

    /// Tiles with blend weights on the output grid. The weights of the grid are the products of those of its axes, so
    /// each axis is normalised separately.
    fn spans(&self) -> Vec<Span> {
        let (scale, ramp) = match self.input {
            TileInput::Frames => (1, ramp(self.overlap)),
            TileInput::Latents => (self.factor, ramp(self.overlap_pixels)),
        };
        let length = self.size * scale;
        let ranges = self.ranges();
        // A ramp longer than the overlap can leave a pixel where all weights are zero. The floor avoids a division by
        // zero there and is negligible elsewhere.
        const FLOOR: f64 = 1e-9;
        let weigh = |r: &Range<usize>| weights(r.start * scale..r.end * scale, length, &ramp);
        let floored = |w: Vec<f64>| w.into_iter().map(|w| w.max(FLOOR)).collect();
        let raw: Vec<Vec<f64>> = ranges.iter().map(weigh).map(floored).collect();
        let mut total = vec![0.0; length];
        for (range, raw) in ranges.iter().zip(&raw) {
            total[range.start * scale..].iter_mut().zip(raw).for_each(|(total, w)| *total += w);
        }
        let span = |(range, raw): (&Range<usize>, &Vec<f64>)| {
            let start = range.start * scale;
            let weights = raw.iter().zip(&total[start..]).map(|(w, total)| (w / total) as f32).collect();
            let input = match self.input {
                TileInput::Frames => range.start * self.factor..range.end * self.factor,
                TileInput::Latents => range.clone(),
            };
            Span { input, start, weights }
        };
        ranges.iter().zip(&raw).map(span).collect()
    }
}

/// Raised cosine from 0 to 1 in `n` steps, both ends included.
fn ramp(n: usize) -> Vec<f64> {
    let step = |i| if n > 1 { i as f64 / (n - 1) as f64 } else { 0.0 };
    (0..n).map(|i| 0.5 - 0.5 * (PI * step(i)).cos()).collect()
}

/// Blend weights of a tile before normalisation: a ramp next to each neighbour. The ramp at the end overrides the one
/// at the start.
fn weights(range: Range<usize>, size: usize, ramp: &[f64]) -> Vec<f64> {
    let mut weights = vec![1.0; range.len()];
    let n = ramp.len().min(range.len() - 1);
    if range.start > 0 {
        weights[..n].copy_from_slice(&ramp[..n]);
    }
    if range.end < size {
        let end = range.len() - n;
        weights[end..].iter_mut().zip(ramp).for_each(|(w, r)| *w = 1.0 - r);
    }
    weights
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn padding_of_clips_matches_the_public_pipeline() {
        let padding = |frames: usize| {
            let total = padded_frames(frames, 4);
            (0..total).map(|i| source_frame(i, frames, total)).collect::<Vec<_>>()
        };
        assert_eq!(padding(1), [0]);
        assert_eq!(padding(2), [0, 1, 1, 1, 1]);
        assert_eq!(padding(3), [0, 1, 2, 1, 0]);
        assert_eq!(padding(4), [0, 1, 2, 3, 2]);
        assert_eq!(padding(5), [0, 1, 2, 3, 4]);
        assert_eq!(padding(6), [0, 1, 2, 3, 4, 5, 4, 3, 2]);
    }

    #[test]
    fn divisible_sides_are_not_padded() {
        assert_eq!([40, 41, 48, 49, 1].map(|side| padded_side(side, 8)), [40, 48, 48, 64, 16]);
    }

    #[test]
    fn tiles_at_2160p_match_the_public_grid() {
        let tiling = Tiling { tile: Hw::new(1024, 1024), overlap: Hw::new(128, 128) };
        let tiles = tiling.tiles(TileInput::Latents, Hw::new(270, 480), 8).unwrap();
        let mut starts: Vec<usize> = tiles.iter().map(|t| t.columns.start).collect();
        starts.dedup();
        assert_eq!(&starts[..5], [0, 112, 224, 336, 448]);
        assert_eq!(tiles.len(), 15);
    }

    proptest! {
        #[test]
        fn every_frame_is_in_exactly_one_slice(frames in 1usize..400, step in 1usize..40) {
            let plan = slices(frames, step);
            let all: Vec<usize> = plan.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..frames).collect::<Vec<_>>());
            prop_assert!(plan.iter().skip(1).all(|slice| slice.len() <= step));
            prop_assert!(plan[0].len() <= step + 1);
        }

        #[test]
        fn padded_clips_repeat_existing_frames(frames in 1usize..50, factor in 1usize..9) {
            let total = padded_frames(frames, factor);
            prop_assert!(total >= frames && (total - 1).is_multiple_of(factor) && total - frames < factor);
            prop_assert!((0..total).all(|i| source_frame(i, frames, total) < frames));
        }

        #[test]
        fn weights_sum_to_one_at_every_pixel(
            h in 1usize..60, w in 1usize..60,
            tile_h in 8usize..200, tile_w in 8usize..200,
            overlap_h in 0usize..200, overlap_w in 0usize..200,
            decode in any::<bool>(),
        ) {
            let tiling = Tiling {
                tile: Hw::new(tile_h, tile_w),
                overlap: Hw::new(overlap_h.min(tile_h - 1), overlap_w.min(tile_w - 1)),
            };
            let (input, plane, scale) = match decode {
                true => (TileInput::Latents, Hw::new(h, w), 8),
                false => (TileInput::Frames, Hw::new(8 * h, 8 * w), 1),
            };
            let Some(tiles) = tiling.tiles(input, plane, 8) else { return Ok(()) };
            let mut sum = vec![0.0f64; h * w * scale * scale];
            for tile in &tiles {
                for (i, row) in tile.placement.rows.iter().enumerate() {
                    for (j, column) in tile.placement.columns.iter().enumerate() {
                        sum[(tile.placement.y + i) * w * scale + tile.placement.x + j] += f64::from(row * column);
                    }
                }
            }
            prop_assert!(sum.iter().all(|s| (s - 1.0).abs() < 1e-5));
        }
    }
}
