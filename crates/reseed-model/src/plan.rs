//! Slices in time and tiles in space, as integers and weights. No tensor is touched here.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::PI;
use std::ops::Range;

use reseed_ops::{Hw, Placement};

/// How a clip's memory is kept between and within slices. Whatever it says, the result is the same to rounding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePlan {
    /// Frames that run together in the levels next to the pictures.
    pub at_once: usize,
    /// How many levels of the decoder these are.
    pub levels: usize,
    /// Layers whose cache waits in the host's memory.
    pub offloaded: BTreeSet<usize>,
    /// Their leads, where not as usual: one, or none with strips. See [`CachePlan::lead`].
    pub leads: BTreeMap<usize, usize>,
    /// Whether all frames of a slice pass such a layer, those that run together one after the other, before any goes on
    /// to the next: its cache then travels once a slice.
    pub abreast: bool,
    /// Whether convolutions of one frame read such a cache from there, some rows at a time, unless it comes before they run.
    pub strips: bool,
}

impl Default for CachePlan {
    /// Two frames together, which are as many as a layer keeps: its cache is then its last input, and nothing is copied.
    fn default() -> CachePlan {
        let (offloaded, leads) = (BTreeSet::new(), BTreeMap::new());
        CachePlan { at_once: 2, levels: 2, offloaded, leads, abreast: false, strips: false }
    }
}

impl CachePlan {
    /// How many offloaded layers run while the cache of this one comes back. With none of them its layer waits for it, or reads it in
    /// strips, and nobody keeps its memory a while longer to wait less for what leaves.
    pub fn lead(&self, slot: usize) -> usize {
        self.leads.get(&slot).copied().unwrap_or(usize::from(!self.strips))
    }
}

/// Cuts a clip of `frames` frames into slices: the first holds one frame more than `step`.
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

/// Frames that a clip is extended to: 1 + a multiple of `factor`.
pub fn whole_frames(frames: usize, factor: usize) -> usize {
    assert!(frames > 0, "a clip has frames");
    1 + (frames - 1).next_multiple_of(factor)
}

/// Which frame of a clip of `frames` stands at position `i` of the extended clip: behind the end it runs backwards from
/// the last frame but one; a clip too short for that repeats its last frame, runs backwards to frame 1, and rests on the
/// last.
pub fn extended(i: usize, frames: usize, total: usize) -> usize {
    let added = total - frames;
    match i.checked_sub(frames) {
        None => i,
        Some(k) if added < frames => frames - 2 - k,
        Some(k) if k + 1 < frames => frames - 1 - k,
        Some(_) => frames - 1,
    }
}

/// Side that a side is padded to, right and bottom: unchanged when `factor` divides it, else a multiple of twice that,
/// which the transformer's patches need as well.
pub fn padded_side(side: usize, factor: usize) -> usize {
    if side.is_multiple_of(factor) { side } else { side.next_multiple_of(2 * factor) }
}

/// Both sides.
pub fn padded_plane(plane: Hw, factor: usize) -> Hw {
    Hw::new(padded_side(plane.h, factor), padded_side(plane.w, factor))
}

/// Tiles as a user asks for them, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Size of a tile.
    pub tile: Hw,
    /// Overlap of neighbours.
    pub overlap: Hw,
}

/// A tile's place in the input and on the output canvas.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Rows of the input plane.
    pub rows: Range<usize>,
    /// Columns of the input plane.
    pub columns: Range<usize>,
    /// Where its output goes, with weights that sum to one over all tiles.
    pub at: Placement,
}

/// Whether latents or pictures are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The encoder's input: pictures; blended as latents.
    Pictures,
    /// The decoder's input: latents; blended as pictures.
    Latents,
}

impl Tiling {
    /// Tiles of an input plane, in row-major order, or nothing when one tile holds it all. The grid is laid on latents,
    /// the way public implementations lay it.
    pub fn tiles(&self, cut: Cut, plane: Hw, factor: usize) -> Option<Vec<Tile>> {
        let axis = |size: usize, tile: usize, overlap: usize| Axis::new(cut, size, tile, overlap, factor);
        let rows = axis(plane.h, self.tile.h, self.overlap.h);
        let columns = axis(plane.w, self.tile.w, self.overlap.w);
        if rows.fits && columns.fits {
            return None;
        }
        let tile = |row: &Span, column: &Span| Tile {
            rows: row.input.clone(),
            columns: column.input.clone(),
            at: Placement { y: row.start, x: column.start, rows: row.weights.clone(), columns: column.weights.clone() },
        };
        let (rows, columns) = (rows.spans(), columns.spans());
        Some(rows.iter().flat_map(|row| columns.iter().map(move |column| tile(row, column))).collect())
    }
}

/// One axis of the grid, in latents.
struct Axis {
    cut: Cut,
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
    fn new(cut: Cut, size: usize, tile: usize, overlap_pixels: usize, factor: usize) -> Axis {
        let latents = (tile / factor).max(1);
        let (size, fits) = match cut {
            Cut::Pictures => (size.div_ceil(factor), size <= tile),
            Cut::Latents => (size, size <= latents),
        };
        let overlap = (overlap_pixels / factor).min(latents - 1);
        Axis { cut, factor, size, tile: latents, overlap, overlap_pixels, fits }
    }

    /// Latents of each tile. One that would lie inside the last overlap is left out.
    fn ranges(&self) -> Vec<Range<usize>> {
        let stride = (self.tile - self.overlap).max(1);
        let range = |start: usize| start..(start + self.tile).min(self.size);
        let inside = |r: &Range<usize>| r.start > 0 && r.len() <= self.overlap;
        (0..self.size).step_by(stride).map(range).filter(|r| !inside(r)).collect()
    }

    /// Tiles with weights on the output's grid. The grid of tiles is a product of its axes and so is the sum of weights,
    /// hence each axis is normalised by itself.
    fn spans(&self) -> Vec<Span> {
        let (scale, ramp) = match self.cut {
            Cut::Pictures => (1, ramp(self.overlap)),
            Cut::Latents => (self.factor, ramp(self.overlap_pixels)),
        };
        let length = self.size * scale;
        let ranges = self.ranges();
        // A ramp longer than the overlap may leave pixels to tiles that all weigh nothing there; the floor shares them
        // out instead of leaving them black, and is far below what shows elsewhere.
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
            let input = match self.cut {
                Cut::Pictures => range.start * self.factor..range.end * self.factor,
                Cut::Latents => range.clone(),
            };
            Span { input, start, weights }
        };
        ranges.iter().zip(&raw).map(span).collect()
    }
}

/// Raised cosine from 0 to 1 over `n` steps, both ends included.
fn ramp(n: usize) -> Vec<f64> {
    let step = |i| if n > 1 { i as f64 / (n - 1) as f64 } else { 0.0 };
    (0..n).map(|i| 0.5 - 0.5 * (PI * step(i)).cos()).collect()
}

/// Weights of a tile before normalisation: ramps where it has neighbours. The ramp at its end wins where both meet.
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
    fn short_clips_are_extended_like_the_public_pipeline() {
        let extend = |frames: usize| {
            let total = whole_frames(frames, 4);
            (0..total).map(|i| extended(i, frames, total)).collect::<Vec<_>>()
        };
        assert_eq!(extend(1), [0]);
        assert_eq!(extend(2), [0, 1, 1, 1, 1]);
        assert_eq!(extend(3), [0, 1, 2, 1, 0]);
        assert_eq!(extend(4), [0, 1, 2, 3, 2]);
        assert_eq!(extend(5), [0, 1, 2, 3, 4]);
        assert_eq!(extend(6), [0, 1, 2, 3, 4, 5, 4, 3, 2]);
    }

    #[test]
    fn sides_are_padded_only_when_they_must_be() {
        assert_eq!([40, 41, 48, 49, 1].map(|side| padded_side(side, 8)), [40, 48, 48, 64, 16]);
    }

    #[test]
    fn the_public_grid_at_2160p() {
        let tiling = Tiling { tile: Hw::new(1024, 1024), overlap: Hw::new(128, 128) };
        let tiles = tiling.tiles(Cut::Latents, Hw::new(270, 480), 8).unwrap();
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
        fn extended_clips_only_show_frames_that_exist(frames in 1usize..50, factor in 1usize..9) {
            let total = whole_frames(frames, factor);
            prop_assert!(total >= frames && (total - 1).is_multiple_of(factor) && total - frames < factor);
            prop_assert!((0..total).all(|i| extended(i, frames, total) < frames));
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
            let (cut, input, scale) = match decode {
                true => (Cut::Latents, Hw::new(h, w), 8),
                false => (Cut::Pictures, Hw::new(8 * h, 8 * w), 1),
            };
            let Some(tiles) = tiling.tiles(cut, input, 8) else { return Ok(()) };
            let mut sum = vec![0.0f64; h * w * scale * scale];
            for tile in &tiles {
                for (i, row) in tile.at.rows.iter().enumerate() {
                    for (j, column) in tile.at.columns.iter().enumerate() {
                        sum[(tile.at.y + i) * w * scale + tile.at.x + j] += f64::from(row * column);
                    }
                }
            }
            prop_assert!(sum.iter().all(|s| (s - 1.0).abs() < 1e-5));
        }
    }
}
