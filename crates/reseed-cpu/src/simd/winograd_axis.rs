//! The transforms of Winograd F(4,3) along one axis, over the channels of a block.
//!
//! The outputs and the taps are polynomials, which are multiplied at the points 0, a, -a, b, -b and infinity:
//!
//! ```text
//! d  inputs 4j-1 .. 4j+4             g  the three taps      a = 5/8, b = 3/2
//! V0 = d4 - (a^2 + b^2) d2 + a^2 b^2 d0                     U0 = g0 / a^2 b^2
//! Va = (d4 - b^2 d2) + a (d3 - b^2 d1), V-a the same with -a
//! Ua = (g0 + a g1 + a^2 g2) / 2a^2 (a^2 - b^2), U-a the same with -a
//! Vb, V-b, Ub and U-b the same with a and b exchanged
//! V5 = d5 - (a^2 + b^2) d3 + a^2 b^2 d1                     U5 = g2
//! y(4j + k) = a^k (Va Ua + (-1)^k V-a U-a) + b^k (Vb Ub + (-1)^k V-b U-b), plus V0 U0 in y(4j) and V5 U5 in y(4j + 3)
//! ```
//! Squares and products of these points are exact. With independent inputs and taps the error is 1.4 times that of
//! direct sums in f32, the least of ten pairs of points that were compared.

use super::gemm::BLOCK;

/// Outputs of a transform.
pub const OUTPUTS: usize = 4;
/// Points of a transform, which are also its inputs.
pub const POINTS: usize = 6;

/// The points and their powers.
const A: f32 = 5.0 / 8.0;
const B: f32 = 3.0 / 2.0;
const A2: f32 = A * A;
const B2: f32 = B * B;
const A3: f32 = A * A2;
const B3: f32 = B * B2;
/// What the taps at 0, a and b are divided by.
const AT_0: f32 = A2 * B2;
const AT_A: f32 = 2.0 * A2 * (A2 - B2);
const AT_B: f32 = 2.0 * B2 * (B2 - A2);

/// V. A single loop over all values: the compiler does not inline a closure for each of them.
#[inline(always)]
pub fn transformed_input(d: [&[f32; BLOCK]; POINTS]) -> [[f32; BLOCK]; POINTS] {
    let mut v = [[0.0; BLOCK]; POINTS];
    for i in 0..BLOCK {
        let (even_a, odd_a) = (d[4][i] - B2 * d[2][i], A * (d[3][i] - B2 * d[1][i]));
        let (even_b, odd_b) = (d[4][i] - A2 * d[2][i], B * (d[3][i] - A2 * d[1][i]));
        v[0][i] = d[4][i] - (A2 + B2) * d[2][i] + AT_0 * d[0][i];
        v[1][i] = even_a + odd_a;
        v[2][i] = even_a - odd_a;
        v[3][i] = even_b + odd_b;
        v[4][i] = even_b - odd_b;
        v[5][i] = d[5][i] - (A2 + B2) * d[3][i] + AT_0 * d[1][i];
    }
    v
}

/// U of one weight.
#[inline(always)]
pub fn transformed_taps([g0, g1, g2]: [f32; 3]) -> [f32; POINTS] {
    let (even_a, odd_a) = (g0 * (1.0 / AT_A) + g2 * (A2 / AT_A), g1 * (A / AT_A));
    let (even_b, odd_b) = (g0 * (1.0 / AT_B) + g2 * (B2 / AT_B), g1 * (B / AT_B));
    [g0 * (1.0 / AT_0), even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g2]
}

/// y from the products. A single loop, as above.
#[inline(always)]
pub fn transformed_output(m: [&[f32; BLOCK]; POINTS]) -> [[f32; BLOCK]; OUTPUTS] {
    let mut y = [[0.0; BLOCK]; OUTPUTS];
    for i in 0..BLOCK {
        let (sum_a, difference_a) = (m[1][i] + m[2][i], m[1][i] - m[2][i]);
        let (sum_b, difference_b) = (m[3][i] + m[4][i], m[3][i] - m[4][i]);
        y[0][i] = m[0][i] + sum_a + sum_b;
        y[1][i] = A * difference_a + B * difference_b;
        y[2][i] = A2 * sum_a + B2 * sum_b;
        y[3][i] = A3 * difference_a + B3 * difference_b + m[5][i];
    }
    y
}
