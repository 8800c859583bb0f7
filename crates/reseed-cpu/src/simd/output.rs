//! From sums to output: bias, residual, rounding, and statistics of the stored values.

use std::marker::PhantomData;
use std::ops::Range;

use super::blocks::prefetch;
use super::dispatch::dispatch;
use super::stats::{Accumulator, WIDE};
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
    /// Elements from a pixel to that of the next row, which is prefetched.
    pub ahead: usize,
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
        let mut stats = stats;
        let pixels = || row.columns.clone().map(&offsets).zip(sums.chunks(row.pixel));
        for chunk in 0..row.channels / WIDE {
            let mut wide = stats.as_deref().map(|stats| stats.wide(chunk));
            for (at, sums) in pixels() {
                // SAFETY: regions differ in pixels or in channels, and this thread uses one pixel at a time.
                let (sums, bias, out) = unsafe { row.pixel(sums, at) };
                let [sums, bias] = [sums, bias].map(|values| &values.as_chunks().0[chunk]);
                let out: &mut [E; WIDE] = &mut out.as_chunks_mut().0[chunk];
                prefetch(out.as_ptr().wrapping_add(row.ahead));
                finish_wide(sums, bias, out, row.add);
                if let Some(wide) = &mut wide {
                    wide.add(out);
                }
            }
            if let (Some(stats), Some(wide)) = (&mut stats, &wide) {
                stats.set_wide(chunk, wide);
            }
        }
        let first = row.channels / WIDE * WIDE;
        if first == row.channels {
            return;
        }
        for (at, sums) in pixels() {
            // SAFETY: as above.
            let (sums, bias, out) = unsafe { row.pixel(sums, at) };
            let out = &mut out[first..];
            finish_pixel(&sums[first..], &bias[first..], out, row.add);
            if let Some(stats) = &mut stats {
                stats.add_last(out);
            }
        }
    }
}

dispatch! {
    /// out = sums + bias, plus the values of `out` where `add` is set.
    pub fn store<E: Element>(sums: &[f32], bias: &[f32], out: &mut [E], add: bool) {
        finish_pixel(sums, bias, out, add);
    }
}

/// As many channels as the widest register has lanes. The compiler vectorises each of these loops as a whole only if it
/// has no branch and reads all values before it writes the first one.
#[inline(always)]
fn finish_wide<E: Element>(sums: &[f32; WIDE], bias: &[f32; WIDE], out: &mut [E; WIDE], add: bool) {
    let (sums, bias, mut y) = (*sums, *bias, [0.0; WIDE]);
    for i in 0..WIDE {
        y[i] = sums[i] + bias[i];
    }
    if add {
        let residual = out.map(E::to_f32);
        for i in 0..WIDE {
            y[i] += residual[i];
        }
    } else {
        // Negative zeros become positive, as they do where a residual of zeros is added.
        y.iter_mut().for_each(|y| *y += 0.0);
    }
    *out = y.map(E::from_f32);
}

/// A single loop over all channels, because the compiler vectorises only this form.
#[inline(always)]
fn finish_pixel<E: Element>(sums: &[f32], bias: &[f32], out: &mut [E], add: bool) {
    for ((sum, bias), out) in sums.iter().zip(bias).zip(out) {
        let residual = if add { out.to_f32() } else { 0.0 };
        *out = E::from_f32(sum + bias + residual);
    }
}
