//! Attention windows as index tables. The functions touch no tensor.

use std::ops::Range;

use reseed_ops::{RotaryData, Thw};

use super::config::Rope;
use super::rope::RotaryBuilder;

/// Tokens of the reference plane, 720p.
const REFERENCE_AREA: f64 = 45.0 * 80.0;
/// Windows of the reference plane along each side.
const SPLIT: usize = 3;
/// Windows of a clip along time, up to [`MAX_SPLIT_FRAMES`] frames.
const TIME_SPLIT: usize = 4;
/// Longest clip whose window length is a fraction of the clip.
const MAX_SPLIT_FRAMES: usize = 30;

/// Size of a full window: a third of each side of the plane scaled to the area of 720p.
fn window_size(grid: Thw) -> Thw {
    let scale = (REFERENCE_AREA / (grid.h * grid.w) as f64).sqrt();
    let side = |n: usize| ((n as f64 * scale).round_ties_even() as usize).div_ceil(SPLIT).max(1);
    Thw { t: grid.t.min(MAX_SPLIT_FRAMES).div_ceil(TIME_SPLIT), h: side(grid.h), w: side(grid.w) }
}

/// Splits an axis into windows. Shifted windows start with half a window. An axis no longer than a window stays whole.
fn split_axis(length: usize, size: usize, shifted: bool) -> Vec<Range<usize>> {
    let first = if shifted && size < length { size / 2 } else { size };
    let inner = (first..length).step_by(size).filter(|&edge| edge > 0);
    let edges: Vec<usize> = [0].into_iter().chain(inner).chain([length]).collect();
    edges.windows(2).map(|edge| edge[0]..edge[1]).collect()
}

/// Packing of windows into sequences: the video tokens of a window, then all text tokens.
pub struct WindowPacking {
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    /// Token at each position. Text tokens are numbered after the video tokens of the grid.
    pub order: Vec<u32>,
    /// Position of each video token.
    pub video: Vec<u32>,
    /// Positions of each text token, one per sequence.
    pub text: Vec<u32>,
    /// Rotary embedding of each position.
    pub rotary: RotaryData,
}

impl WindowPacking {
    /// Packs the regular or shifted windows of a grid with `text` text tokens.
    pub fn new(grid: Thw, text: usize, shifted: bool, rope: Rope) -> WindowPacking {
        let size = window_size(grid);
        let axis = |length, size| split_axis(length, size, shifted);
        let (ts, hs, ws) = (axis(grid.t, size.t), axis(grid.h, size.h), axis(grid.w, size.w));
        let (mut lengths, mut order) = (Vec::new(), Vec::new());
        let mut rotary = RotaryBuilder::new(rope, text);
        for (t, h, w) in product(&ts, &hs, &ws) {
            let row = |(t, h): (usize, usize)| w.clone().map(move |w| ((t * grid.h + h) * grid.w + w) as u32);
            order.extend(t.clone().flat_map(|t| h.clone().map(move |h| (t, h))).flat_map(row));
            order.extend((grid.count()..grid.count() + text).map(|token| token as u32));
            lengths.push(t.len() * h.len() * w.len() + text);
            rotary.add([t.len(), h.len(), w.len()]);
        }
        let (video, text) = positions(&order, grid.count(), text);
        WindowPacking { lengths, order, video, text, rotary: rotary.finish() }
    }
}

fn product<'a>(
    ts: &'a [Range<usize>],
    hs: &'a [Range<usize>],
    ws: &'a [Range<usize>],
) -> impl Iterator<Item = (&'a Range<usize>, &'a Range<usize>, &'a Range<usize>)> {
    ts.iter().flat_map(move |t| hs.iter().flat_map(move |h| ws.iter().map(move |w| (t, h, w))))
}

/// Positions of the `video` tokens, and of each of the `text` tokens in all sequences.
fn positions(order: &[u32], video: usize, text: usize) -> (Vec<u32>, Vec<u32>) {
    let mut of_video = vec![0; video];
    let mut of_text = vec![Vec::new(); text];
    for (position, &token) in order.iter().enumerate() {
        match (token as usize).checked_sub(video) {
            None => of_video[token as usize] = position as u32,
            Some(i) => of_text[i].push(position as u32),
        }
    }
    (of_video, of_text.concat())
}

/// Indices that gather the latent pixels of every token in row-major order of its patch: for each pixel the noise, then
/// the condition, whose frames follow those of the noise.
pub fn patchify(latent: Thw, patch: usize) -> Vec<u32> {
    let pixels = latent.count() as u32;
    patch_pixels(latent, patch).flat_map(|pixel| [pixel, pixel + pixels]).collect()
}

/// Indices that gather the pixels of the tokens into a latent.
pub fn unpatchify(latent: Thw, patch: usize) -> Vec<u32> {
    let mut indices = vec![0; latent.count()];
    patch_pixels(latent, patch).enumerate().for_each(|(i, pixel)| indices[pixel as usize] = i as u32);
    indices
}

/// Latent pixels in the order of the tokens.
fn patch_pixels(latent: Thw, patch: usize) -> impl Iterator<Item = u32> {
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
        split_axis(length, size, shifted).iter().map(|window| window.len()).collect()
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
    fn windows_match_the_published_ones() {
        for (grid, size, regular, shifted) in PUBLISHED {
            let [t, h, w] = *grid;
            let found = window_size(Thw::new(t, h, w));
            assert_eq!([found.t, found.h, found.w], *size, "{grid:?}");
            for axis in 0..3 {
                assert_eq!(lengths(grid[axis], size[axis], false), regular[axis], "{grid:?} axis {axis}");
                assert_eq!(lengths(grid[axis], size[axis], true), shifted[axis], "{grid:?} axis {axis}, shifted");
            }
        }
    }

    proptest! {
        #[test]
        fn every_video_token_is_in_one_window_and_every_text_token_in_all(
            (t, h, w) in (1usize..12, 1usize..40, 1usize..40), text in 1usize..5, shifted: bool,
        ) {
            let grid = Thw::new(t, h, w);
            let packing = WindowPacking::new(grid, text, shifted, Rope::Pixel);
            let windows = packing.lengths.len();
            prop_assert_eq!(packing.lengths.iter().sum::<usize>(), packing.order.len());
            prop_assert_eq!(packing.order.len(), grid.count() + windows * text);
            prop_assert_eq!(packing.rotary.places.len(), packing.order.len());
            let found = packing.video.iter().map(|&position| packing.order[position as usize]);
            prop_assert!(found.eq(0..grid.count() as u32));
            for (i, positions) in packing.text.chunks_exact(windows).enumerate() {
                prop_assert!(positions.iter().all(|&p| packing.order[p as usize] as usize == grid.count() + i));
            }
        }

        #[test]
        fn unpatchify_inverts_patchify((t, h, w) in (1usize..4, 1usize..6, 1usize..6)) {
            let latent = Thw::new(t, 2 * h, 2 * w);
            let (gathered, scattered) = (patchify(latent, 2), unpatchify(latent, 2));
            for (pixel, &at) in scattered.iter().enumerate() {
                prop_assert_eq!(gathered[2 * at as usize] as usize, pixel);
                prop_assert_eq!(gathered[2 * at as usize + 1] as usize, pixel + latent.count());
            }
        }
    }
}
