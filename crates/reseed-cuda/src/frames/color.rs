//! Colour transfer.

use reseed_ops::{Hw, Result};

use super::CudaFrames;
use super::layout::RUN;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::ops::{row_grid, stride_grid};
use crate::params::{int, long};

/// Dilations of the five levels of the low-pass filter.
const DILATIONS: [usize; 5] = [1, 2, 4, 8, 16];

impl CudaFrames {
    fn pixels(&self) -> usize {
        self.spec.output.count()
    }

    /// low(style - content) of a frame.
    fn low_pass(&self, frame: usize) -> Result<Ptr> {
        let (Hw { h, w }, count) = (self.spec.output, self.count());
        let (content, style) = (self.content(frame), self.style(frame));
        let [mut x, mut y] = self.layout.scratch.low_pass.map(|offset| self.at(offset));
        // SAFETY: arguments follow kernels/wavelet.cu in order and type; each buffer holds a frame.
        unsafe { self.launch("wavelet_difference", stride_grid(count), args![x, style, content, long(count)]) }?;
        for dilation in DILATIONS {
            let dilation = dilation.min((h.min(w) / 8).max(1));
            // SAFETY: as above.
            unsafe { self.launch("wavelet_blur", row_grid(h, 3 * w), args![y, x, int(h), int(w), int(dilation)]) }?;
            std::mem::swap(&mut x, &mut y);
        }
        Ok(x)
    }

    pub(super) fn wavelet(&self, frame: usize) -> Result<()> {
        let (low, count) = (self.low_pass(frame)?, self.count());
        // SAFETY: arguments follow kernels/wavelet.cu in order and type; both hold a frame.
        unsafe { self.launch("wavelet_add", stride_grid(count), args![self.content(frame), low, long(count)]) }
    }

    pub(super) fn adain(&self, frame: usize) -> Result<()> {
        let (runs, pixels) = (self.pixels().div_ceil(RUN), long(self.pixels()));
        let [sums, moments] = [self.layout.scratch.sums, self.layout.scratch.moments].map(|offset| self.at(offset));
        let (content, style) = (self.content(frame), self.style(frame));
        for squares in [0, 1] {
            let grid = Grid::new([runs, 2, 1], 32);
            // SAFETY: arguments follow kernels/adain.cu in order and type; sums has a place for every run.
            unsafe { self.launch("adain_sums", grid, args![sums, content, style, moments, pixels, squares]) }?;
            let grid = Grid::new([1, 1, 1], 32);
            // SAFETY: as above.
            unsafe { self.launch("adain_moments", grid, args![moments, sums, int(runs), pixels, squares]) }?;
        }
        // SAFETY: as above.
        unsafe { self.launch("adain_apply", stride_grid(self.count()), args![content, moments, pixels]) }
    }

    /// Lab ranks after the wavelet of every frame: L* moves a fifth of the way.
    pub(super) fn lab(&self, frames: usize) -> Result<()> {
        let (count, [content, style]) = (frames * self.pixels(), [self.content(0), self.style(0)]);
        for x in [content, style] {
            // SAFETY: arguments follow kernels/lab.cu in order and type; x holds all frames.
            unsafe { self.launch("lab_from_rgb", stride_grid(4 * count), args![x, long(count)]) }?;
        }
        for (channel, (low, weight)) in [(0.0, 0.2), (-128.0, 1.0), (-128.0, 1.0)].into_iter().enumerate() {
            let [values, targets] = [content, style].map(|x| x.plus(channel * size_of::<f32>()));
            self.match_lab_channel(values, targets, count, (low, weight))?;
        }
        // SAFETY: as above.
        unsafe { self.launch("lab_to_rgb", stride_grid(4 * count), args![content, long(count)]) }
    }

    pub(super) fn hsv(&self, frames: usize) -> Result<()> {
        let (count, content) = (frames * self.pixels(), self.content(0));
        let saturations = self.match_saturations(count)?;
        // SAFETY: arguments follow kernels/hsv.cu in order and type; both hold all pixels.
        unsafe { self.launch("hsv_apply", stride_grid(count), args![content, saturations, long(count)]) }
    }

    pub(super) fn wavelet_adaptive(&self, frames: usize) -> Result<()> {
        let saturations = self.match_saturations(frames * self.pixels())?;
        for frame in 0..frames {
            let low = self.low_pass(frame)?;
            let own = saturations.plus(frame * self.pixels() * size_of::<f32>());
            let (content, style, pixels) = (self.content(frame), self.style(frame), self.pixels());
            let grid = stride_grid(pixels);
            // SAFETY: arguments follow kernels/hsv.cu in order and type; each holds a frame.
            unsafe { self.launch("wavelet_adaptive", grid, args![content, style, low, own, long(pixels)]) }?;
        }
        Ok(())
    }
}
