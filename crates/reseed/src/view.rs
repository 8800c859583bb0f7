//! Frames as the networks see them, and as colours are compared with: resized, in [-1, 1], `[H, W, 3]`.

use rayon::prelude::*;
use reseed_media::{Frame, Samples};

use crate::pool::Pool;
use crate::resize::Resizer;
use crate::size::Geometry;

/// What lies outside a picture.
pub const BLACK: f32 = -1.0;
/// The other end.
pub const WHITE: f32 = 1.0;

/// Makes pictures of one job's sizes from its frames.
pub struct View {
    geometry: Geometry,
    steps: Vec<Resizer<3>>,
    alpha: Resizer<1>,
    pool: Pool<Vec<f32>>,
    frames: Pool<Samples>,
}

impl View {
    /// The weights for the sizes of a job.
    pub fn new(geometry: Geometry) -> View {
        let from = std::iter::once(&geometry.input).chain(&geometry.steps);
        let steps = from.zip(&geometry.steps).map(|(from, to)| Resizer::new(*from, *to)).collect();
        let alpha = Resizer::new(geometry.input, geometry.output);
        View { geometry, steps, alpha, pool: Pool::default(), frames: Pool::default() }
    }

    /// The sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Memory for pictures.
    pub fn pool(&self) -> &Pool<Vec<f32>> {
        &self.pool
    }

    /// Memory for frames.
    pub fn frames(&self) -> &Pool<Samples> {
        &self.frames
    }

    /// Writes the picture that the networks see: black below and to the right.
    pub fn padded_into(&self, frame: &Frame, canvas: &mut [f32]) {
        let Geometry { input, steps, padded, .. } = &self.geometry;
        assert_eq!(canvas.len(), 3 * padded.pixels(), "a canvas for a padded picture");
        let drawn = steps.last().unwrap_or(input);
        let (rows, below) = canvas.split_at_mut(3 * drawn.h * padded.w);
        rows.chunks_exact_mut(3 * padded.w).for_each(|row| row[3 * drawn.w..].fill(BLACK));
        below.fill(BLACK);
        self.draw(frame, canvas, padded.w);
    }

    /// The picture that a result is compared with.
    pub fn cropped(&self, frame: &Frame) -> Vec<f32> {
        let mut canvas = self.pool.take(3 * self.geometry.output.pixels());
        self.draw(frame, &mut canvas, self.geometry.output.w);
        canvas
    }

    /// How opaque each pixel of the result would be by itself, in [0, 1].
    pub fn alpha(&self, alpha: &Samples) -> Vec<f32> {
        let mut canvas = vec![0.0; self.geometry.output.pixels()];
        let width = self.geometry.input.w;
        let row = |y: usize, row: &mut [f32]| alpha.copy_to_unit(y * width..(y + 1) * width, row);
        self.alpha.run(row, &mut canvas, self.geometry.output.w, |value| value.clamp(0.0, 1.0));
        canvas
    }

    /// Draws the resized frame onto the top left of a canvas.
    fn draw(&self, frame: &Frame, canvas: &mut [f32], width: usize) {
        assert_eq!(frame.size, self.geometry.input, "frames of a job have one size");
        let line = 3 * frame.size.w;
        let row = |y: usize, row: &mut [f32]| {
            let from = y * line;
            frame.samples.copy_to_unit(from..from + row.len(), row);
        };
        match &self.steps[..] {
            [] => {
                let shared = line.min(3 * width);
                canvas.par_chunks_mut(3 * width).take(frame.size.h).enumerate().for_each(|(y, to)| {
                    frame.samples.copy_between(y * line..y * line + shared, [BLACK, WHITE], &mut to[..shared]);
                });
            }
            [only] => only.run(row, canvas, width, signed),
            [first, second, ..] => {
                let between = resampled(first, row);
                let line = 3 * first.size().w;
                let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&between[y * line..(y + 1) * line]);
                second.run(row, canvas, width, signed);
            }
        }
    }
}

fn resampled(resizer: &Resizer<3>, row: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    let mut values = vec![0.0; 3 * resizer.size().pixels()];
    resizer.run(row, &mut values, resizer.size().w, |value| value);
    values
}

/// [0, 1], clamped, to [-1, 1].
pub(crate) fn signed(value: f32) -> f32 {
    value.clamp(0.0, 1.0) * 2.0 - 1.0
}
