//! The transforms of [`super::winograd_phases`]: loops over the channels of a block.

use super::dispatch::dispatch;
use super::gemm::BLOCK;
use super::winograd_phases::{OUTPUTS, POINTS, POSITIONS};

dispatch! {
    /// U of a row of two taps.
    pub fn transform_kernel(g: [&[f32]; 2], u: [&mut [f32]; POINTS]) {
        let ([g0, g1], [u0, u1, u2, u3]) = (g, u);
        let u = u0.iter_mut().zip(u1).zip(u2.iter_mut().zip(u3));
        for (((u0, u1), (u2, u3)), (g0, g1)) in u.zip(g0.iter().zip(g1)) {
            (*u0, *u1, *u2, *u3) = (*g0, 0.5 * (g0 + g1), 0.5 * (g0 - g1), *g1);
        }
    }
}

dispatch! {
    /// U of half the sum of two rows of two taps, or of their difference with the sign -1.
    pub fn transform_kernel_sums(g: [&[f32]; 4], sign: f32, u: [&mut [f32]; POINTS]) {
        let ([g0, g1, h0, h1], [u0, u1, u2, u3]) = (g, u);
        let u = u0.iter_mut().zip(u1).zip(u2.iter_mut().zip(u3));
        for (((u0, u1), (u2, u3)), ((g0, g1), (h0, h1))) in u.zip(g0.iter().zip(g1).zip(h0.iter().zip(h1))) {
            let (g0, g1) = (0.5 * (g0 + sign * h0), 0.5 * (g1 + sign * h1));
            (*u0, *u1, *u2, *u3) = (g0, 0.5 * (g0 + g1), 0.5 * (g0 - g1), g1);
        }
    }
}

dispatch! {
    /// V of a row of groups, of one block of channels: from `[row][pixel][BLOCK]` to `[position][block][group][BLOCK]`.
    pub fn transform_input(pixels: &[f32], v: &mut [f32], block: usize, groups: usize) {
        let pixels = pixels.as_chunks::<BLOCK>().0;
        let position = v.len() / BLOCK / POSITIONS;
        let v = v.as_chunks_mut::<BLOCK>().0;
        let count = OUTPUTS * groups + 1;
        for group in 0..groups {
            let row = |i: usize| pixels[i * count + OUTPUTS * group..].first_chunk().expect("a group of pixels");
            let transformed = transformed_input([row(0), row(1), row(2), row(3)]);
            let to = v[block * groups + group..].iter_mut().step_by(position);
            to.zip(&transformed).for_each(|(to, from)| *to = *from);
        }
    }
}

/// A single loop over all values: the compiler does not inline a closure for each of them.
#[inline(always)]
fn transformed_input(d: [&[[f32; BLOCK]; POINTS]; POINTS]) -> [[f32; BLOCK]; POSITIONS] {
    let mut v = [[0.0; BLOCK]; POSITIONS];
    for i in 0..BLOCK {
        let mut rows = [[0.0; POINTS]; POINTS];
        for x in 0..POINTS {
            let [d0, d1, d2, d3] = [d[0][x][i], d[1][x][i], d[2][x][i], d[3][x][i]];
            [rows[0][x], rows[1][x], rows[2][x], rows[3][x]] = [d0 - d2, d1 + d2, d2 - d1, d3 - d1];
        }
        for (y, [d0, d1, d2, d3]) in rows.into_iter().enumerate() {
            let y = POINTS * y;
            [v[y][i], v[y + 1][i], v[y + 2][i], v[y + 3][i]] = [d0 - d2, d1 + d2, d2 - d1, d3 - d1];
        }
    }
    v
}

dispatch! {
    /// y from the products of a panel: `[position][row][group][channel]` to `[row][column][channel]`.
    pub fn transform_output(products: &[f32], sums: &mut [f32], groups: usize, width: usize) {
        let plane = products.len() / POSITIONS;
        let line = OUTPUTS * groups * width;
        for (i, first) in (0..plane).step_by(width).enumerate() {
            let at = OUTPUTS * (i / groups * line + i % groups * width);
            for j in (0..width).step_by(BLOCK) {
                let m = |position: usize| products[position * plane + first + j..].first_chunk().expect("a product");
                let y = transformed_output(std::array::from_fn(m));
                for (k, y) in y.iter().enumerate() {
                    sums[at + k / OUTPUTS * line + k % OUTPUTS * width + j..][..BLOCK].copy_from_slice(y);
                }
            }
        }
    }
}

/// A single loop, as above.
#[inline(always)]
fn transformed_output(m: [&[f32; BLOCK]; POSITIONS]) -> [[f32; BLOCK]; OUTPUTS * OUTPUTS] {
    let mut y = [[0.0; BLOCK]; OUTPUTS * OUTPUTS];
    for i in 0..BLOCK {
        let mut rows = [[0.0; POINTS]; OUTPUTS];
        for x in 0..POINTS {
            let [m0, m1, m2, m3] = [m[x][i], m[POINTS + x][i], m[2 * POINTS + x][i], m[3 * POINTS + x][i]];
            [rows[0][x], rows[1][x], rows[2][x]] = [m0 + (m1 + m2), m1 - m2, (m1 + m2) + m3];
        }
        for (k, [m0, m1, m2, m3]) in rows.into_iter().enumerate() {
            let k = OUTPUTS * k;
            [y[k][i], y[k + 1][i], y[k + 2][i]] = [m0 + (m1 + m2), m1 - m2, (m1 + m2) + m3];
        }
    }
    y
}
