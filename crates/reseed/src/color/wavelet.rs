//! result = content + low(style - content), clamped: the content's detail on the style's low band. The low band is linear,
//! so one of the difference replaces two.

use rayon::prelude::*;
use reseed_media::{Size, wide};

use super::RUN;

/// Distances of the taps of the five blurs.
const REACHES: [usize; 5] = [1, 2, 4, 8, 16];

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>], size: Size) {
    let mut low = Low::new(size);
    for (content, style) in content.iter_mut().zip(style) {
        let low = low.of_difference(style, content);
        content.par_chunks_mut(RUN).zip(low.par_chunks(RUN)).for_each(|(content, low)| {
            content.iter_mut().zip(low).for_each(|(value, low)| *value = (*value + low).clamp(-1.0, 1.0));
        });
    }
}

/// What five blurs of doubling reach leave of a picture, in two buffers that serve frame after frame.
pub struct Low {
    size: Size,
    picture: Vec<f32>,
    blurred: Vec<f32>,
}

impl Low {
    pub fn new(size: Size) -> Low {
        let values = 3 * size.pixels();
        Low { size, picture: vec![0.0; values], blurred: vec![0.0; values] }
    }

    /// low(a - b).
    pub fn of_difference(&mut self, a: &[f32], b: &[f32]) -> &[f32] {
        self.picture.par_chunks_mut(RUN).zip(a.par_chunks(RUN)).zip(b.par_chunks(RUN)).for_each(|((to, a), b)| {
            to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = a - b);
        });
        let most = (self.size.h.min(self.size.w) / 8).max(1);
        for reach in REACHES {
            self.blur(reach.min(most));
            std::mem::swap(&mut self.picture, &mut self.blurred);
        }
        &self.picture
    }

    /// Weights 1 2 1 (/4) along both axes, taps `reach` pixels apart, edges repeated.
    fn blur(&mut self, reach: usize) {
        let Size { h, w } = self.size;
        let (line, from) = (3 * w, &self.picture);
        let row = |y: usize| &from[y * line..(y + 1) * line];
        let rows = self.blurred.par_chunks_mut(line).enumerate();
        rows.for_each_init(
            || vec![0.0; line],
            |down, (y, out)| {
                let (before, here, after) = (row(y.saturating_sub(reach)), row(y), row((y + reach).min(h - 1)));
                blend(before, here, after, down);
                across(down, out, reach, w);
            },
        );
    }
}

/// The same along one row; inside it, taps are whole slices apart.
fn across(row: &[f32], out: &mut [f32], reach: usize, w: usize) {
    let (shift, inside) = (3 * reach, reach..w.saturating_sub(reach).max(reach));
    let edge = |x: usize, out: &mut [f32]| {
        for c in 0..3 {
            let at = |x: usize| row[3 * x + c];
            out[3 * x + c] = (at(x.saturating_sub(reach)) + 2.0 * at(x) + at((x + reach).min(w - 1))) / 4.0;
        }
    };
    (0..inside.start.min(w)).for_each(|x| edge(x, out));
    (inside.end..w).for_each(|x| edge(x, out));
    let middle = 3 * inside.len();
    let (before, here, after) = (&row[..middle], &row[shift.min(row.len())..], &row[(2 * shift).min(row.len())..]);
    blend(before, here, after, &mut out[shift.min(row.len())..]);
}

wide! {
    /// One quarter, two quarters, one quarter.
    fn blend(before: &[f32], here: &[f32], after: &[f32], to: &mut [f32]) {
        for (((to, b), x), a) in to.iter_mut().zip(before).zip(here).zip(after) {
            *to = (b + 2.0 * x + a) / 4.0;
        }
    }
}
