//! Resampling of input frames, and the low band.

use reseed_ops::{Hw, Resize, Result};

use super::CudaFrames;
use super::layout::table_bytes;
use crate::driver::{Driver, Ptr};
use crate::launch::args;
use crate::ops::{row_grid, stride_grid};
use crate::params::{int, long};

/// The weights of a resampling on the GPU: starts and weights of rows, then of columns.
pub struct Table {
    rows: [Ptr; 2],
    columns: [Ptr; 2],
    to: Hw,
}

impl Table {
    /// Copies the weights to `at` and moves it to their end.
    pub fn upload(driver: &Driver, resize: &Resize, at: &mut Ptr) -> Result<Table> {
        let Resize { rows, columns, .. } = resize;
        let parts: [&[u8]; 4] = [
            bytemuck::cast_slice(&rows.starts),
            bytemuck::cast_slice(&rows.weights),
            bytemuck::cast_slice(&columns.starts),
            bytemuck::cast_slice(&columns.weights),
        ];
        let mut places = [Ptr::NULL; 4];
        for ((place, part), bytes) in places.iter_mut().zip(parts).zip(table_bytes(resize)) {
            *place = *at;
            // SAFETY: the layout has room for `bytes` bytes, at least those of the part.
            unsafe { driver.copy_in(*at, part) }?;
            *at = at.plus(bytes);
        }
        let [a, b, c, d] = places;
        Ok(Table { rows: [a, b], columns: [c, d], to: resize.to })
    }
}

impl CudaFrames {
    fn resized(&self, i: usize) -> Ptr {
        self.at(self.layout.scratch.resized[i])
    }

    /// Resamples rows of `from` pixels to `to` pixels, into the first buffer.
    fn along_x(&self, kind: &str, x: Ptr, table: &Table, [rows, from, to]: [usize; 3]) -> Result<()> {
        let (name, y, [starts, weights]) = (format!("resize_x_{kind}"), self.resized(0), table.columns);
        // SAFETY: arguments follow kernels/resize.cu in order and type; the layout has room for these rows.
        unsafe { self.launch(&name, row_grid(rows, to), args![y, x, starts, weights, int(from), int(to)]) }
    }

    /// Resamples the first buffer, of `from` rows, to `to` rows of `width` pixels.
    fn along_y(&self, end: &str, y: Ptr, table: &Table, [from, to, width]: [usize; 3]) -> Result<()> {
        let (name, x, [starts, weights]) = (format!("resize_y_{end}"), self.resized(0), table.rows);
        let line = 3 * width;
        // SAFETY: as above; y holds as many rows.
        unsafe { self.launch(&name, row_grid(to, line), args![y, x, starts, weights, int(from), int(line)]) }
    }

    /// The input at the size of the output, from -1 to 1.
    pub(super) fn resize_input(&self, frame: usize) -> Result<()> {
        let (Hw { h, w }, output) = (self.spec.input, self.spec.output);
        let (kind, style) = (self.code_type(), self.style(frame));
        match &self.steps[..] {
            [] => {
                let (name, grid) = (format!("resize_none_{kind}"), row_grid(output.h, 3 * output.w));
                // SAFETY: as above; the output is the top left of the input.
                unsafe { self.launch(&name, grid, args![style, self.codes(), int(w), int(output.w)]) }
            }
            [only] => {
                self.along_x(&kind, self.codes(), only, [h, w, output.w])?;
                self.along_y("signed", style, only, [h, output.h, output.w])
            }
            [first, second, ..] => {
                let (between, middle) = (self.resized(1), first.to);
                self.along_x(&kind, self.codes(), first, [h, w, middle.w])?;
                self.along_y("plain", between, first, [h, middle.h, middle.w])?;
                self.along_x("f32", between, second, [middle.h, middle.w, output.w])?;
                self.along_y("signed", style, second, [middle.h, output.h, output.w])
            }
        }
    }

    /// frame ← clamp(frame + strength · up(input - down(frame))).
    pub(super) fn blend_low_band(&self, frame: usize, strength: f32) -> Result<()> {
        let Some([down, up]) = &self.low_band else { return Ok(()) };
        let (Hw { h, w }, output, content) = (self.spec.input, self.spec.output, self.content(frame));
        let (residual, x) = (self.resized(1), self.resized(0));
        // SAFETY: arguments follow kernels/resize.cu in order and type.
        unsafe { self.launch("clamp_f32", stride_grid(self.count()), args![content, long(self.count())]) }?;

        self.along_x("f32", content, down, [output.h, output.w, w])?;
        let (name, [starts, weights]) = (format!("resize_y_residual_{}", self.code_type()), down.rows);
        let (from, line, codes) = (int(output.h), 3 * w, self.codes());
        // SAFETY: as above; residual and codes have the size of the input.
        unsafe { self.launch(&name, row_grid(h, line), args![residual, x, starts, weights, from, int(line), codes]) }?;

        self.along_x("f32", residual, up, [h, w, output.w])?;
        let (grid, [starts, weights]) = (row_grid(output.h, 3 * output.w), up.rows);
        let (from, line) = (int(h), int(3 * output.w));
        // SAFETY: as above.
        unsafe { self.launch("resize_y_add", grid, args![content, x, starts, weights, from, line, strength]) }
    }
}
