//! Windows of tokens, as integers. No tensor is touched here.

use std::ops::Range;

use reseed_ops::{RotaryData, Thw};

use super::config::Rope;
use super::rope::Places;

/// Token rows times columns of the plane that windows are made for: 720p.
const AREA: f64 = 45.0 * 80.0;
/// Windows of that plane along either side.
const SPLIT: usize = 3;
/// Windows of a clip in time, and the longest clip that is cut into no more.
const SPLIT_TIME: (usize, usize) = (4, 30);

/// Size of a full window: the plane is thought scaled to the area of 720p and cut in three both ways.
pub fn cell(grid: Thw) -> Thw {
    let scale = (AREA / (grid.h * grid.w) as f64).sqrt();
    let side = |n: usize| ((n as f64 * scale).round_ties_even() as usize).div_ceil(SPLIT).max(1);
    let (windows, longest) = SPLIT_TIME;
    Thw { t: grid.t.min(longest).div_ceil(windows), h: side(grid.h), w: side(grid.w) }
}

/// Cuts an axis. Shifted windows begin with half a window; an axis no longer than a window is never cut.
fn cuts(length: usize, size: usize, shifted: bool) -> Vec<Range<usize>> {
    let first = if shifted && size < length { size / 2 } else { size };
    let inner = (first..length).step_by(size).filter(|&edge| edge > 0);
    let edges: Vec<usize> = [0].into_iter().chain(inner).chain([length]).collect();
    edges.windows(2).map(|edge| edge[0]..edge[1]).collect()
}

/// Where every token stands when windows are sequences: each its video tokens, then all of the text.
pub struct Packing {
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    /// Which token stands at each place; text counts on behind the video tokens of the whole grid.
    pub order: Vec<u32>,
    /// The place of each video token.
    pub video: Vec<u32>,
    /// The places of each text token, one in every sequence.
    pub text: Vec<u32>,
    /// Rotary positions of every place.
    pub rotary: RotaryData,
}

impl Packing {
    /// Regular or shifted windows of a grid, with `text` tokens of text.
    pub fn new(grid: Thw, text: usize, shifted: bool, rope: Rope) -> Packing {
        let size = cell(grid);
        let axis = |length, size| cuts(length, size, shifted);
        let (ts, hs, ws) = (axis(grid.t, size.t), axis(grid.h, size.h), axis(grid.w, size.w));
        let (mut lengths, mut order) = (Vec::new(), Vec::new());
        let mut places = Places::new(rope, text);
        for (t, h, w) in product(&ts, &hs, &ws) {
            let row = |(t, h): (usize, usize)| w.clone().map(move |w| ((t * grid.h + h) * grid.w + w) as u32);
            order.extend(t.clone().flat_map(|t| h.clone().map(move |h| (t, h))).flat_map(row));
            order.extend((grid.count()..grid.count() + text).map(|token| token as u32));
            lengths.push(t.len() * h.len() * w.len() + text);
            places.add([t.len(), h.len(), w.len()]);
        }
        let (video, text) = places_of(&order, grid.count(), text);
        Packing { lengths, order, video, text, rotary: places.finish() }
    }
}

fn product<'a>(
    ts: &'a [Range<usize>],
    hs: &'a [Range<usize>],
    ws: &'a [Range<usize>],
) -> impl Iterator<Item = (&'a Range<usize>, &'a Range<usize>, &'a Range<usize>)> {
    ts.iter().flat_map(move |t| hs.iter().flat_map(move |h| ws.iter().map(move |w| (t, h, w))))
}

/// The places of `video` tokens, and of the `text` tokens behind them sequence by sequence.
fn places_of(order: &[u32], video: usize, text: usize) -> (Vec<u32>, Vec<u32>) {
    let mut first = vec![0; video];
    let mut repeated = vec![Vec::new(); text];
    for (place, &token) in order.iter().enumerate() {
        match (token as usize).checked_sub(video) {
            None => first[token as usize] = place as u32,
            Some(i) => repeated[i].push(place as u32),
        }
    }
    (first, repeated.concat())
}

/// Latent pixels of every token, (row, column) within its cell, each as the pixel's number and then the same in the frames
/// behind: noise, then condition.
pub fn patches(latent: Thw, patch: usize) -> Vec<u32> {
    let pixels = latent.count() as u32;
    cells(latent, patch).flat_map(|pixel| [pixel, pixel + pixels]).collect()
}

/// Which of the tokens' pixels stands at each latent pixel.
pub fn unpatched(latent: Thw, patch: usize) -> Vec<u32> {
    let mut at = vec![0; latent.count()];
    cells(latent, patch).enumerate().for_each(|(i, pixel)| at[pixel as usize] = i as u32);
    at
}

fn cells(latent: Thw, patch: usize) -> impl Iterator<Item = u32> {
    let Thw { t, h, w } = latent;
    let pixel = move |i: usize| {
        let (dx, dy) = (i % patch, i / patch % patch);
        let token = i / (patch * patch);
        let (x, y, t) = (token % (w / patch), token / (w / patch) % (h / patch), token / (w / patch * (h / patch)));
        ((t * h + y * patch + dy) * w + x * patch + dx) as u32
    };
    (0..t * h * w).map(pixel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths(length: usize, size: usize, shifted: bool) -> Vec<usize> {
        cuts(length, size, shifted).iter().map(|cut| cut.len()).collect()
    }

    /// Grid, full window, then regular and shifted lengths along each axis.
    type Row = ([usize; 3], [usize; 3], [&'static [usize]; 3], [&'static [usize]; 3]);

    const PUBLISHED: &[Row] = &[
        ([1, 45, 80], [1, 15, 27], [&[1], &[15; 3], &[27, 27, 26]], [&[1], &[7, 15, 15, 8], &[13, 27, 27, 13]]),
        (
            [2, 68, 120],
            [1, 15, 27],
            [&[1, 1], &[15, 15, 15, 15, 8], &[27, 27, 27, 27, 12]],
            [&[1, 1], &[7, 15, 15, 15, 15, 1], &[13, 27, 27, 27, 26]],
        ),
        (
            [21, 68, 120],
            [6, 15, 27],
            [&[6, 6, 6, 3], &[15, 15, 15, 15, 8], &[27, 27, 27, 27, 12]],
            [&[3, 6, 6, 6], &[7, 15, 15, 15, 15, 1], &[13, 27, 27, 27, 26]],
        ),
        (
            [33, 45, 80],
            [8, 15, 27],
            [&[8, 8, 8, 8, 1], &[15; 3], &[27, 27, 26]],
            [&[4, 8, 8, 8, 5], &[7, 15, 15, 8], &[13, 27, 27, 13]],
        ),
        (
            [1, 64, 64],
            [1, 20, 20],
            [&[1], &[20, 20, 20, 4], &[20, 20, 20, 4]],
            [&[1], &[10, 20, 20, 14], &[10, 20, 20, 14]],
        ),
        ([5, 20, 30], [2, 17, 25], [&[2, 2, 1], &[17, 3], &[25, 5]], [&[1, 2, 2], &[8, 12], &[12, 18]]),
        (
            [1, 75, 192],
            [1, 13, 32],
            [&[1], &[13, 13, 13, 13, 13, 10], &[32; 6]],
            [&[1], &[6, 13, 13, 13, 13, 13, 4], &[16, 32, 32, 32, 32, 32, 16]],
        ),
        ([1, 8, 8], [1, 20, 20], [&[1], &[8], &[8]], [&[1], &[8], &[8]]),
    ];

    #[test]
    fn windows_are_the_published_ones() {
        for (grid, size, regular, shifted) in PUBLISHED {
            let [t, h, w] = *grid;
            let found = cell(Thw::new(t, h, w));
            assert_eq!([found.t, found.h, found.w], *size, "{grid:?}");
            for axis in 0..3 {
                assert_eq!(lengths(grid[axis], size[axis], false), regular[axis], "{grid:?} axis {axis}");
                assert_eq!(lengths(grid[axis], size[axis], true), shifted[axis], "{grid:?} axis {axis}, shifted");
            }
        }
    }

    proptest! {
        #[test]
        fn every_token_stands_in_one_window_and_text_in_all(
            (t, h, w) in (1usize..12, 1usize..40, 1usize..40), text in 1usize..5, shifted: bool,
        ) {
            let grid = Thw::new(t, h, w);
            let packing = Packing::new(grid, text, shifted, Rope::Stretched);
            let windows = packing.lengths.len();
            prop_assert_eq!(packing.lengths.iter().sum::<usize>(), packing.order.len());
            prop_assert_eq!(packing.order.len(), grid.count() + windows * text);
            prop_assert_eq!(packing.rotary.places.len(), packing.order.len());
            let found = packing.video.iter().map(|&place| packing.order[place as usize]);
            prop_assert!(found.eq(0..grid.count() as u32));
            for (i, places) in packing.text.chunks_exact(windows).enumerate() {
                prop_assert!(places.iter().all(|&p| packing.order[p as usize] as usize == grid.count() + i));
            }
        }

        #[test]
        fn patches_come_back_where_they_were((t, h, w) in (1usize..4, 1usize..6, 1usize..6)) {
            let latent = Thw::new(t, 2 * h, 2 * w);
            let (there, back) = (patches(latent, 2), unpatched(latent, 2));
            for (pixel, &at) in back.iter().enumerate() {
                prop_assert_eq!(there[2 * at as usize] as usize, pixel);
                prop_assert_eq!(there[2 * at as usize + 1] as usize, pixel + latent.count());
            }
        }
    }
}
