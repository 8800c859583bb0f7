//! Resampling of input frames, and the low band.

use reseed_ops::{Hw, Resize, ResizeAxis, Result, SampleType};

use super::CudaFrames;
use super::layout::table_bytes;
use crate::driver::{Driver, Ptr};
use crate::launch::{Argument, Grid, args};
use crate::ops::{row_grid, stride_grid};
use crate::params::{int, long};
use crate::stream::Stream;

/// The weights of a resampling on the GPU: starts and weights of rows, then of columns.
pub struct Table {
    pub rows: [Ptr; 2],
    pub columns: [Ptr; 2],
    pub to: Hw,
}

impl Table {
    /// Copies the weights to `at` and moves it to their end.
    pub fn upload(driver: &Driver, resize: &Resize, at: &mut Ptr) -> Result<Table> {
        let Resize { rows, columns, .. } = resize;
        let bytes = |axis: &ResizeAxis| -> [Vec<u8>; 2] {
            [bytemuck::cast_slice(&axis.starts).to_vec(), bytemuck::cast_slice(&axis.weights).to_vec()]
        };
        let mut places = [Ptr::NULL; 4];
        let parts = [bytes(rows), bytes(columns)].concat();
        for ((place, part), bytes) in places.iter_mut().zip(parts).zip(table_bytes(resize)) {
            *place = *at;
            // SAFETY: the layout has room for `bytes` bytes, at least those of the part.
            unsafe { driver.copy_in(*at, &part) }?;
            *at = at.plus(bytes);
        }
        let [a, b, c, d] = places;
        Ok(Table { rows: [a, b], columns: [c, d], to: resize.to })
    }
}

/// The type of samples, as names of kernels have it.
pub fn sample_name(samples: SampleType) -> &'static str {
    match samples {
        SampleType::U8 => "u8",
        SampleType::U16 => "u16",
        SampleType::F32 => "sample",
    }
}

/// Resamples on a stream, with memory for a frame that is resampled along x only.
pub struct Resampler<'a> {
    pub driver: &'a Driver,
    pub stream: Stream,
    pub along_x: Ptr,
}

impl Resampler<'_> {
    /// Queues a kernel.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    unsafe fn launch(&self, name: &str, grid: Grid, args: &mut [Argument]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.launch_on(self.stream, name, grid, args) }
    }

    /// Resamples `rows` rows of `from` pixels to `to` pixels.
    pub fn along_x(&self, kind: &str, x: Ptr, table: &Table, [rows, from, to]: [usize; 3]) -> Result<()> {
        let (name, y, [starts, weights]) = (format!("resize_x_{kind}"), self.along_x, table.columns);
        // SAFETY: arguments follow kernels/resize.cu in order and type; callers have memory for these rows.
        unsafe { self.launch(&name, row_grid(rows, to), args![y, x, starts, weights, int(from), int(to)]) }
    }

    /// Resamples the result of `along_x`, of `from` rows, to `to` rows of `width` pixels.
    pub fn along_y(&self, end: &str, y: Ptr, table: &Table, [from, to, width]: [usize; 3]) -> Result<()> {
        let (name, x, [starts, weights]) = (format!("resize_y_{end}"), self.along_x, table.rows);
        let line = 3 * width;
        // SAFETY: as above; y holds as many rows.
        unsafe { self.launch(&name, row_grid(to, line), args![y, x, starts, weights, int(from), int(line)]) }
    }

    /// Resamples input samples along x for the last of several steps; `between` holds the result of the step before.
    /// Returns the number of rows.
    pub fn last_along_x(
        &self,
        kind: &str,
        (samples, input): (Ptr, Hw),
        (steps, between): (&[Table], Ptr),
        width: usize,
    ) -> Result<usize> {
        let Hw { h, w } = input;
        let [first, second, ..] = steps else {
            self.along_x(kind, samples, &steps[0], [h, w, width])?;
            return Ok(h);
        };
        let middle = first.to;
        self.along_x(kind, samples, first, [h, w, middle.w])?;
        self.along_y("plain", between, first, [h, middle.h, middle.w])?;
        self.along_x("f32", between, second, [middle.h, middle.w, width])?;
        Ok(middle.h)
    }
}

impl CudaFrames {
    fn resampler(&self) -> Resampler<'_> {
        let along_x = self.at(self.layout.scratch.resized[0]);
        Resampler { driver: self.cuda.driver(), stream: Stream::Frames, along_x }
    }

    /// The input at the size of the output, from -1 to 1.
    pub(super) fn resize_input(&self, frame: usize) -> Result<()> {
        let (input, output, samples) = (self.spec.input, self.spec.output, self.samples());
        let (kind, style) = (sample_name(self.spec.samples), self.style(frame));
        let Some(last) = self.steps.last() else {
            let (name, grid) = (format!("resize_none_{kind}"), row_grid(output.h, 3 * output.w));
            // SAFETY: as above; the output is the top left of the input.
            return unsafe { self.launch(&name, grid, args![style, samples, int(input.w), int(output.w)]) };
        };
        let (resampler, between) = (self.resampler(), self.at(self.layout.scratch.resized[1]));
        let rows = resampler.last_along_x(kind, (samples, input), (&self.steps, between), output.w)?;
        resampler.along_y("signed", style, last, [rows, output.h, output.w])
    }

    /// frame ← clamp(frame + share · up(input - down(frame))).
    pub(super) fn blend_low_band(&self, frame: usize, share: f32) -> Result<()> {
        let Some([down, up]) = &self.low_band else { return Ok(()) };
        let (Hw { h, w }, output, content) = (self.spec.input, self.spec.output, self.content(frame));
        let (resampler, residual) = (self.resampler(), self.at(self.layout.scratch.resized[1]));
        let x = resampler.along_x;
        // SAFETY: arguments follow kernels/resize.cu in order and type.
        unsafe { self.launch("clamp_f32", stride_grid(self.count()), args![content, long(self.count())]) }?;

        resampler.along_x("f32", content, down, [output.h, output.w, w])?;
        let (name, [starts, weights]) = (format!("resize_y_residual_{}", sample_name(self.spec.samples)), down.rows);
        let (from, line, samples) = (int(output.h), 3 * w, self.samples());
        let (grid, line) = (row_grid(h, line), int(line));
        // SAFETY: as above; residual and samples have the size of the input.
        unsafe { self.launch(&name, grid, args![residual, x, starts, weights, from, line, samples]) }?;

        resampler.along_x("f32", residual, up, [h, w, output.w])?;
        let (grid, [starts, weights]) = (row_grid(output.h, 3 * output.w), up.rows);
        let (from, line) = (int(h), int(3 * output.w));
        // SAFETY: as above.
        unsafe { self.launch("resize_y_add", grid, args![content, x, starts, weights, from, line, share]) }
    }
}
