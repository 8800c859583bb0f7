//! Resizes frames to values `[H, W, 3]` in [-1, 1], as input of the networks and as style of the colour transfer.

use rayon::prelude::*;
use reseed_media::{Frame, Samples};
use reseed_ops::Resize;

use crate::pool::FramePool;
use crate::resize::Resizer;
use crate::size::Geometry;

/// Value of black, and of the padding.
pub const BLACK: f32 = -1.0;
/// Value of white.
pub const WHITE: f32 = 1.0;

/// Resizes the frames of a job.
pub struct View {
    geometry: Geometry,
    steps: Vec<Resizer<3>>,
    alpha: Resizer<1>,
    pixel_pool: FramePool<Vec<f32>>,
    sample_pool: FramePool<Samples>,
}

impl View {
    /// Computes the resampling weights for the sizes of a job.
    pub fn new(geometry: Geometry) -> View {
        let from = std::iter::once(&geometry.input).chain(&geometry.steps);
        let steps = from.zip(&geometry.steps).map(|(from, to)| Resizer::new(*from, *to)).collect();
        let alpha = Resizer::new(geometry.input, geometry.output);
        View { geometry, steps, alpha, pixel_pool: FramePool::default(), sample_pool: FramePool::default() }
    }

    /// The sizes of the job.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The resampling steps, for a device.
    pub fn resizes(&self) -> Vec<Resize> {
        self.steps.iter().map(Resizer::weights).collect()
    }

    /// The resampling of alpha, for a device.
    pub fn alpha_resize(&self) -> Resize {
        self.alpha.weights()
    }

    /// Buffers of frame values.
    pub fn pixel_pool(&self) -> &FramePool<Vec<f32>> {
        &self.pixel_pool
    }

    /// Buffers of frame samples.
    pub fn sample_pool(&self) -> &FramePool<Samples> {
        &self.sample_pool
    }

    /// Writes the resized frame at the padded size, with black padding below and to the right.
    pub fn padded_into(&self, frame: &Frame, canvas: &mut [f32]) {
        let Geometry { input, steps, padded, .. } = &self.geometry;
        assert_eq!(canvas.len(), 3 * padded.pixels(), "the canvas does not have the padded size");
        let resized = steps.last().unwrap_or(input);
        let (rows, below) = canvas.split_at_mut(3 * resized.h * padded.w);
        rows.chunks_exact_mut(3 * padded.w).for_each(|row| row[3 * resized.w..].fill(BLACK));
        below.fill(BLACK);
        self.resize_into(frame, canvas, padded.w);
    }

    /// The resized frame at the output size.
    pub fn cropped(&self, frame: &Frame) -> Vec<f32> {
        let mut canvas = self.pixel_pool.take(3 * self.geometry.output.pixels());
        self.resize_into(frame, &mut canvas, self.geometry.output.w);
        canvas
    }

    /// The alpha of a frame resized to the output size, in [0, 1].
    pub fn alpha(&self, alpha: &Samples) -> Vec<f32> {
        let mut canvas = vec![0.0; self.geometry.output.pixels()];
        let width = self.geometry.input.w;
        let row = |y: usize, row: &mut [f32]| alpha.copy_to_unit(y * width..(y + 1) * width, row);
        self.alpha.run(row, &mut canvas, self.geometry.output.w, |value| value.clamp(0.0, 1.0));
        canvas
    }

    /// Writes the resized frame to the top left of a canvas whose rows have `width` pixels.
    fn resize_into(&self, frame: &Frame, canvas: &mut [f32], width: usize) {
        assert_eq!(frame.size, self.geometry.input, "a frame does not have the input size of the job");
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
                let intermediate = resampled(first, row);
                let line = 3 * first.size().w;
                let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&intermediate[y * line..(y + 1) * line]);
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

/// Clamps to [0, 1] and maps to [-1, 1].
pub(crate) fn signed(value: f32) -> f32 {
    value.clamp(0.0, 1.0) * 2.0 - 1.0
}
