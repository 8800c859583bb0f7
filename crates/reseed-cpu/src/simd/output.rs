//! From sums to output: bias, residual, rounding, and statistics of the stored values.

use std::marker::PhantomData;
use std::ops::Range;

use super::dispatch::dispatch;
use super::stats::Accumulator;
use crate::host::element::Element;

/// A slice that several threads write at the same time, each its own elements.
pub struct DisjointSlice<'a, E> {
    start: *mut E,
    len: usize,
    _borrow: PhantomData<&'a mut [E]>,
}

// SAFETY: the slice is borrowed mutably for 'a, and `slice_mut` requires that threads use disjoint elements. A thread
// may therefore get `&mut E` of an element that another thread owns, which `E: Send` allows.
unsafe impl<E: Send> Sync for DisjointSlice<'_, E> {}

impl<'a, E> DisjointSlice<'a, E> {
    /// Borrows `values` for all threads.
    pub fn new(values: &'a mut [E]) -> DisjointSlice<'a, E> {
        DisjointSlice { start: values.as_mut_ptr(), len: values.len(), _borrow: PhantomData }
    }

    /// The elements `start .. start + len`. Panics where they are outside the slice.
    ///
    /// # Safety
    /// No other slice that overlaps these elements may exist while the result is in use.
    #[expect(clippy::mut_from_ref, reason = "threads use disjoint elements, which the borrow checker cannot see")]
    #[inline(always)]
    pub unsafe fn slice_mut(&self, start: usize, len: usize) -> &mut [E] {
        assert!(start <= self.len && len <= self.len - start, "elements outside the output");
        // SAFETY: the elements are inside the borrowed slice, and the caller guarantees that nothing else refers to
        // them.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }

    /// The same elements, to be read.
    ///
    /// # Safety
    /// No mutable slice that overlaps these elements may exist while the result is in use.
    #[inline(always)]
    pub unsafe fn slice(&self, start: usize, len: usize) -> &[E] {
        assert!(start <= self.len && len <= self.len - start, "elements outside the output");
        // SAFETY: the elements are inside the borrowed slice, and the caller guarantees that nothing writes them.
        unsafe { std::slice::from_raw_parts(self.start.add(start), len) }
    }
}

/// Offsets of a pixel in the output and in the bias.
#[derive(Clone, Copy)]
pub struct PixelOffsets {
    /// First channel of the pixel in the output.
    pub output: usize,
    /// First channel of its bias.
    pub bias: usize,
}

/// One row of a region.
pub struct OutputRow<'a, E> {
    /// The whole output.
    pub out: &'a DisjointSlice<'a, E>,
    /// The whole bias.
    pub bias: &'a [f32],
    /// Whether the output holds a residual that is added.
    pub add: bool,
    /// Output columns.
    pub columns: Range<usize>,
    /// Stride between the sums of neighbouring pixels.
    pub pixel: usize,
    /// First channel.
    pub first: usize,
    /// Number of channels.
    pub channels: usize,
}

impl<E: Element> OutputRow<'_, E> {
    /// The sums, the bias and the output of a pixel.
    ///
    /// # Safety
    /// No other slice of the same channels of the pixel may exist while the result is in use.
    #[expect(clippy::mut_from_ref, reason = "regions are disjoint, which the borrow checker cannot see")]
    #[inline(always)]
    pub unsafe fn pixel<'s>(&self, sums: &'s [f32], at: PixelOffsets) -> (&'s [f32], &[f32], &mut [E]) {
        // SAFETY: the caller's guarantee is the one that `slice_mut` requires.
        let out = unsafe { self.out.slice_mut(at.output + self.first, self.channels) };
        (&sums[..self.channels], &self.bias[at.bias + self.first..][..self.channels], out)
    }

    /// Begins statistics with the pixel at `at` as their origin.
    pub fn begin_stats(&self, stats: &mut Accumulator, sums: &[f32], at: PixelOffsets) {
        // SAFETY: regions differ in pixels or in channels, and this thread holds no other slice of the output.
        let (sums, bias, out) = unsafe { self.pixel(sums, at) };
        stats.begin(sums.iter().zip(bias).zip(out).map(|((sum, bias), out)| {
            let residual = if self.add { out.to_f32() } else { 0.0 };
            sum + bias + residual
        }));
    }
}

dispatch! {
    /// Writes one row of a region. `offsets` maps a column to its offsets in the output and in the bias.
    pub fn finish_row<E: Element, P: Fn(usize) -> PixelOffsets>(
        row: &OutputRow<E>,
        sums: &[f32],
        offsets: P,
        stats: Option<&mut Accumulator>,
    ) {
        for (x, sums) in row.columns.clone().zip(sums.chunks(row.pixel)) {
            // SAFETY: regions differ in pixels or in channels, and this thread uses one pixel at a time.
            let (sums, bias, out) = unsafe { row.pixel(sums, offsets(x)) };
            finish_pixel(sums, bias, out, row.add);
        }
        if let Some(stats) = stats {
            let start = |i: usize| offsets(row.columns.start + i).output + row.first;
            // SAFETY: as above, and the slices of the loop are gone.
            stats.add_pixels(row.columns.len(), |i| unsafe { row.out.slice(start(i), row.channels) });
        }
    }
}

dispatch! {
    /// out = sums + bias, plus the values of `out` where `add` is set.
    pub fn store<E: Element>(sums: &[f32], bias: &[f32], out: &mut [E], add: bool) {
        finish_pixel(sums, bias, out, add);
    }
}

/// A single loop over all channels, because the compiler vectorises only this form.
#[inline(always)]
fn finish_pixel<E: Element>(sums: &[f32], bias: &[f32], out: &mut [E], add: bool) {
    for ((sum, bias), out) in sums.iter().zip(bias).zip(out) {
        let residual = if add { out.to_f32() } else { 0.0 };
        *out = E::from_f32(sum + bias + residual);
    }
}
