//! The transforms of [`super::winograd_planes`]: those of one axis, first over columns and then over rows.

use super::blocks::prefetch;
use super::dispatch::dispatch;
use super::gemm::BLOCK;
use super::winograd_axis::{OUTPUTS, POINTS, transformed_input, transformed_output, transformed_taps};
use super::winograd_planes::POSITIONS;

/// Values that are aligned to cache lines, so that a register is never stored across two of them.
#[repr(align(64))]
struct Lines<const N: usize>([[f32; BLOCK]; N]);

/// Six rows of pixels.
#[derive(Clone, Copy)]
pub struct InputRows<'a> {
    /// The rows, from the first pixel of the first group on.
    pub rows: [&'a [f32]; POINTS],
    /// Stride between pixels.
    pub pixel: usize,
    /// Floats from a pixel to the one that the next row of groups reads in its place, which is prefetched.
    pub ahead: usize,
}

dispatch! {
    /// V of a row of groups, of one block of channels: to `[position][block][group][BLOCK]`.
    pub fn transform_input(from: InputRows, v: &mut [f32], block: usize, groups: usize) {
        let position = v.len() / BLOCK / POSITIONS;
        let v = v.as_chunks_mut::<BLOCK>().0;
        for group in 0..groups {
            let line = |i: usize| &from.rows[i][OUTPUTS * group * from.pixel..];
            let [Lines(l0), Lines(l1), Lines(l2), Lines(l3), Lines(l4), Lines(l5)] = &[
                transformed_row(line(0), from.pixel),
                transformed_row(line(1), from.pixel),
                transformed_row(line(2), from.pixel),
                transformed_row(line(3), from.pixel),
                transformed_row(line(4), from.pixel),
                transformed_row(line(5), from.pixel),
            ];
            // The next group reads two of the columns again, and the next row of groups two of the rows.
            for row in &from.rows[POINTS - OUTPUTS..] {
                let next = row.as_ptr().wrapping_add(OUTPUTS * group * from.pixel + from.ahead);
                (POINTS - OUTPUTS..POINTS).for_each(|x| prefetch(next.wrapping_add(x * from.pixel)));
            }
            for x in 0..POINTS {
                let transformed = transformed_input([&l0[x], &l1[x], &l2[x], &l3[x], &l4[x], &l5[x]]);
                for (y, values) in transformed.iter().enumerate() {
                    v[(y * POINTS + x) * position + block * groups + group] = *values;
                }
            }
        }
    }
}

/// V of a row of a group along one axis.
#[inline(always)]
fn transformed_row(row: &[f32], pixel: usize) -> Lines<POINTS> {
    let d = |x: usize| row[x * pixel..].first_chunk().expect("a block of a pixel");
    Lines(transformed_input([d(0), d(1), d(2), d(3), d(4), d(5)]))
}

dispatch! {
    /// U of some rows of a panel, `[position][row][channel]` with the stride `position`, from the nine taps of a
    /// temporal tap.
    pub fn transform_kernel(taps: &[f32], u: &mut [f32], position: usize) {
        let size = taps.len() / 9;
        for first in (0..size).step_by(BLOCK) {
            let mut to = [[0.0; BLOCK]; POSITIONS];
            for i in 0..BLOCK {
                let tap = |tap: usize| taps[tap * size + first + i];
                let row = |row: usize| transformed_taps([tap(3 * row), tap(3 * row + 1), tap(3 * row + 2)]);
                let (above, at, below) = (row(0), row(1), row(2));
                for x in 0..POINTS {
                    let u = transformed_taps([above[x], at[x], below[x]]);
                    (0..POINTS).for_each(|y| to[y * POINTS + x][i] = u[y]);
                }
            }
            let u = u[first..].chunks_mut(position);
            u.zip(&to).for_each(|(u, to)| u[..BLOCK].copy_from_slice(to));
        }
    }
}

dispatch! {
    /// y from the products of a panel: `[position][row][group][channel]` to `[row][column][channel]`.
    pub fn transform_output(products: &[f32], sums: &mut [f32], groups: usize, width: usize) {
        let plane = products.len() / POSITIONS;
        let line = OUTPUTS * groups * width;
        for (i, first) in (0..plane).step_by(width).enumerate() {
            let at = OUTPUTS * (i / groups * line + i % groups * width);
            for j in (0..width).step_by(BLOCK) {
                let m = &products[first + j..];
                let [Lines(c0), Lines(c1), Lines(c2), Lines(c3), Lines(c4), Lines(c5)] = &[
                    transformed_column(m, plane),
                    transformed_column(&m[plane..], plane),
                    transformed_column(&m[2 * plane..], plane),
                    transformed_column(&m[3 * plane..], plane),
                    transformed_column(&m[4 * plane..], plane),
                    transformed_column(&m[5 * plane..], plane),
                ];
                for y in 0..OUTPUTS {
                    let row = transformed_output([&c0[y], &c1[y], &c2[y], &c3[y], &c4[y], &c5[y]]);
                    for (x, values) in row.iter().enumerate() {
                        sums[at + y * line + x * width + j..][..BLOCK].copy_from_slice(values);
                    }
                }
            }
        }
    }
}

/// y of a column of the products of a group along one axis.
#[inline(always)]
fn transformed_column(products: &[f32], plane: usize) -> Lines<OUTPUTS> {
    let m = |y: usize| products[y * POINTS * plane..].first_chunk().expect("a product");
    Lines(transformed_output([m(0), m(1), m(2), m(3), m(4), m(5)]))
}
