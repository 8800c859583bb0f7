//! From sums to output, a region at a time: bias, residual, rounding, and statistics of what was stored.

use std::ops::Range;

use super::amx;
use super::blocked::{Region, Sums};
use super::level::Level;
use super::leveled::leveled;
use super::memory::Element;
use super::stats::{MEASURE, Measure};

/// Output memory that regions write side by side; no two regions share an element.
pub struct Target<E>(*mut E, usize);

// SAFETY: see the type; the borrow it was made from outlives the jobs.
unsafe impl<E: Send> Sync for Target<E> {}

impl<E> Target<E> {
    pub fn new(values: &mut [E]) -> Target<E> {
        Target(values.as_mut_ptr(), values.len())
    }

    /// # Safety
    /// No other thread may hold a piece that overlaps.
    #[expect(clippy::mut_from_ref, reason = "regions are disjoint, which the borrow checker cannot see")]
    #[inline(always)]
    pub unsafe fn piece(&self, start: usize, len: usize) -> &mut [E] {
        assert!(start + len <= self.1, "a piece beyond the output");
        // SAFETY: inside the output, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

/// How sums become output.
pub struct Finish<'a, E> {
    /// Level of the loops.
    pub level: Level,
    /// Whether sums come from tiles.
    pub tiles: bool,
    /// Where results go.
    pub out: &'a Target<E>,
    /// Channels of an output pixel.
    pub channels: usize,
    /// Whether the output already holds what is to be added.
    pub add: bool,
    /// Added to every pixel, from where `place` says on.
    pub bias: &'a [f32],
    /// Statistics of blocks of pixels, where they are wanted: `[block][channel]`.
    pub measured: Option<&'a Target<[f64; 2]>>,
}

impl<E: Element> Finish<'_, E> {
    /// Finishes some panels of a region, which is a block of the statistics. `place` tells, of a row and a column, where
    /// the pixel goes and where its bias stands.
    pub fn run(
        &self,
        region: &Region,
        panels: Range<usize>,
        sums: &mut Sums,
        block: usize,
        place: impl Fn(usize, usize) -> [usize; 2],
    ) {
        let first = panels.start * sums.width;
        let channels = (panels.len() * sums.width).min(self.channels - first);
        let row = Row {
            out: self.out,
            bias: self.bias,
            add: self.add,
            columns: region.columns.clone(),
            pixel: sums.pixel,
            first,
            channels,
        };
        let tiles = self.tiles && amx::finish::fits(channels);
        MEASURE.with_borrow_mut(|measure| {
            let mut measure = self.measured.is_some().then_some(measure);
            for (i, y) in region.rows.clone().enumerate() {
                let line = sums.row(self.level, i);
                if let (0, Some(measure)) = (i, &mut measure) {
                    row.begin(measure, line, place(y, region.columns.start));
                }
                match tiles {
                    true => amx::finish::finish_row(&row, line, |x| place(y, x), measure.as_deref_mut()),
                    false => finish_row(self.level, &row, line, |x| place(y, x), measure.as_deref_mut()),
                }
            }
            if let (Some(measured), Some(measure)) = (self.measured, measure) {
                // SAFETY: regions differ in their block or in channels.
                let to = unsafe { measured.piece(block * self.channels + first, channels) };
                measure.end(region.rows.len() * region.columns.len(), to);
            }
        });
    }
}

/// What the pixels of a row have in common.
pub struct Row<'a, E> {
    /// Where results go.
    pub out: &'a Target<E>,
    /// Added to every pixel.
    pub bias: &'a [f32],
    /// Whether the output already holds what is to be added.
    pub add: bool,
    /// Columns.
    pub columns: Range<usize>,
    /// Floats between the sums of neighbouring pixels.
    pub pixel: usize,
    /// First channel.
    pub first: usize,
    /// Number of channels.
    pub channels: usize,
}

impl<E: Element> Row<'_, E> {
    /// The sums, the bias and the output of a pixel.
    ///
    /// # Safety
    /// No other thread may hold the same channels of the pixel.
    #[expect(clippy::mut_from_ref, reason = "regions are disjoint, which the borrow checker cannot see")]
    #[inline(always)]
    pub unsafe fn pixel<'s>(&self, sums: &'s [f32], [at, bias]: [usize; 2]) -> (&'s [f32], &[f32], &mut [E]) {
        // SAFETY: the caller's promise.
        let out = unsafe { self.out.piece(at + self.first, self.channels) };
        (&sums[..self.channels], &self.bias[bias + self.first..][..self.channels], out)
    }

    /// Measures deviations from this pixel.
    fn begin(&self, measure: &mut Measure, sums: &[f32], place: [usize; 2]) {
        // SAFETY: regions differ in pixels or in channels.
        let (sums, bias, out) = unsafe { self.pixel(sums, place) };
        measure.begin(sums.iter().zip(bias).zip(out).map(|((sum, bias), out)| {
            let residual = if self.add { out.to_f32() } else { 0.0 };
            sum + bias + residual
        }));
    }
}

leveled! {
    /// One row of a region; `place` tells of each column where it goes and where its bias stands.
    fn finish_row<E: Element, P: Fn(usize) -> [usize; 2]>(
        row: &Row<E>,
        sums: &[f32],
        place: P,
        measure: Option<&mut Measure>,
    ) {
        let mut measure = measure;
        for (x, sums) in row.columns.clone().zip(sums.chunks(row.pixel)) {
            // SAFETY: regions differ in pixels or in channels.
            let (sums, bias, out) = unsafe { row.pixel(sums, place(x)) };
            finish_pixel(sums, bias, out, row.add);
            if let Some(measure) = &mut measure {
                measure.add(out);
            }
        }
    }
}

leveled! {
    /// One pixel or row: out = sums + bias, and what is there already where that is to be added.
    pub fn store<E: Element>(sums: &[f32], bias: &[f32], out: &mut [E], add: bool) {
        finish_pixel(sums, bias, out, add);
    }
}

/// Loops run over all channels, as the compiler turns only those into vectors.
#[inline(always)]
fn finish_pixel<E: Element>(sums: &[f32], bias: &[f32], out: &mut [E], add: bool) {
    for ((sum, bias), out) in sums.iter().zip(bias).zip(out) {
        let residual = if add { out.to_f32() } else { 0.0 };
        *out = E::from_f32(sum + bias + residual);
    }
}
