//! Wavelet colour transfer: high frequencies of the content plus low frequencies of the style, clamped to [-1, 1].
//!
//! The low-pass filter is linear, so content - low(content) + low(style) = content + low(style - content): one filter
//! pass instead of two. The filter is an à-trous decomposition with five levels.

use rayon::prelude::*;
use reseed_media::{Size, wide};

use super::RUN;

/// Dilations of the five levels.
const DILATIONS: [usize; 5] = [1, 2, 4, 8, 16];

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>], size: Size) {
    let mut low_pass = LowPass::new(size);
    for (content, style) in content.iter_mut().zip(style) {
        let low = low_pass.of_difference(style, content);
        content.par_chunks_mut(RUN).zip(low.par_chunks(RUN)).for_each(|(content, low)| {
            content.iter_mut().zip(low).for_each(|(value, low)| *value = (*value + low).clamp(-1.0, 1.0));
        });
    }
}

/// Low-pass filter: five dilated 3x3 binomial blurs. Its two buffers are reused from frame to frame.
pub struct LowPass {
    size: Size,
    frame: Vec<f32>,
    blurred: Vec<f32>,
}

impl LowPass {
    pub fn new(size: Size) -> LowPass {
        let values = 3 * size.pixels();
        LowPass { size, frame: vec![0.0; values], blurred: vec![0.0; values] }
    }

    /// low(a - b).
    pub fn of_difference(&mut self, a: &[f32], b: &[f32]) -> &[f32] {
        self.frame.par_chunks_mut(RUN).zip(a.par_chunks(RUN)).zip(b.par_chunks(RUN)).for_each(|((to, a), b)| {
            to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = a - b);
        });
        let max_dilation = (self.size.h.min(self.size.w) / 8).max(1);
        for dilation in DILATIONS {
            self.blur(dilation.min(max_dilation));
            std::mem::swap(&mut self.frame, &mut self.blurred);
        }
        &self.frame
    }

    /// Separable blur with weights [1, 2, 1] / 4, taps `dilation` pixels apart and replicated edges.
    fn blur(&mut self, dilation: usize) {
        let Size { h, w } = self.size;
        let (line, from) = (3 * w, &self.frame);
        let row = |y: usize| &from[y * line..(y + 1) * line];
        let rows = self.blurred.par_chunks_mut(line).enumerate();
        rows.for_each_init(
            || vec![0.0; line],
            |down, (y, out)| {
                let (above, here, below) = (row(y.saturating_sub(dilation)), row(y), row((y + dilation).min(h - 1)));
                blend(above, here, below, down);
                blur_row(down, out, dilation, w);
            },
        );
    }
}

/// Blurs one row along x. Away from the edges, the taps are shifted slices of the row.
fn blur_row(row: &[f32], out: &mut [f32], dilation: usize, w: usize) {
    let (shift, inside) = (3 * dilation, dilation..w.saturating_sub(dilation).max(dilation));
    let edge = |x: usize, out: &mut [f32]| {
        for c in 0..3 {
            let at = |x: usize| row[3 * x + c];
            out[3 * x + c] = (at(x.saturating_sub(dilation)) + 2.0 * at(x) + at((x + dilation).min(w - 1))) / 4.0;
        }
    };
    (0..inside.start.min(w)).for_each(|x| edge(x, out));
    (inside.end..w).for_each(|x| edge(x, out));
    let middle = 3 * inside.len();
    let (before, here, after) = (&row[..middle], &row[shift.min(row.len())..], &row[(2 * shift).min(row.len())..]);
    blend(before, here, after, &mut out[shift.min(row.len())..]);
}

wide! {
    /// (before + 2 here + after) / 4.
    fn blend(before: &[f32], here: &[f32], after: &[f32], to: &mut [f32]) {
        for (((to, b), x), a) in to.iter_mut().zip(before).zip(here).zip(after) {
            *to = (b + 2.0 * x + a) / 4.0;
        }
    }
}
