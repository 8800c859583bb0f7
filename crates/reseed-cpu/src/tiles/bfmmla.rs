//! Products of tiles with `bfmmla` of 64-bit ARM: two rows of four bf16 values by two columns of four, added to four
//! sums of f32. In assembly, because stable Rust has no intrinsic for it.
//!
//! The operands have the layout of AMX tiles. Registers bring two rows or two columns together: rows by halves of eight
//! channels, columns by pairs of channels.

use std::arch::aarch64::*;
use std::arch::asm;
use std::array::from_fn;

use super::shape::{DEPTH, PANEL, SIDE};
use super::tile::{Product, RowTile};

/// Rows and columns of a block, whose sums stay in registers.
const BLOCK: usize = 8;
/// Pairs of rows or columns of a block.
const PAIRS: usize = BLOCK / 2;

/// Sums of a block: those of two rows and two columns in a register, row by row.
type Sums = [[float32x4_t; PAIRS]; PAIRS];

/// Nothing: SIMD registers have one shape.
///
/// # Safety
/// None.
pub unsafe fn configure(_: u8) {}

/// Nothing: SIMD registers need no release.
///
/// # Safety
/// None.
pub unsafe fn release() {}

/// c + a · bᵀ
///
/// # Safety
/// The CPU must have bf16.
#[inline]
#[target_feature(enable = "neon,bf16")]
unsafe fn bfmmla(mut c: float32x4_t, a: uint16x8_t, b: uint16x8_t) -> float32x4_t {
    // SAFETY: the caller guarantees the instruction, which touches registers alone.
    unsafe {
        asm!(
            "bfmmla {c:v}.4s, {a:v}.8h, {b:v}.8h",
            c = inout(vreg) c, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    c
}

/// As many products as four pairs of tiles have, `rounds` times.
///
/// # Safety
/// The CPU must have bf16.
#[target_feature(enable = "neon,bf16")]
pub unsafe fn spin(rounds: usize) {
    const PRODUCTS: usize = 4 * SIDE * SIDE * DEPTH / 16;
    // SAFETY: the caller guarantees the instruction set.
    unsafe {
        let (operand, mut sums) = (vdupq_n_u16(0), [vdupq_n_f32(0.0); PAIRS * PAIRS]);
        for _ in 0..rounds * PRODUCTS / sums.len() {
            for sum in &mut sums {
                *sum = bfmmla(*sum, operand, operand);
            }
        }
        std::hint::black_box(sums);
    }
}

/// Computes a product.
///
/// # Safety
/// The CPU must have bf16. `rows` rows of all tiles and steps must lie in `p.a` and in `p.c`.
#[target_feature(enable = "neon,bf16")]
pub unsafe fn multiply(p: Product, rows: usize) {
    let Product { next: _next, .. } = p;
    let columns = if p.columns > SIDE { PANEL } else { SIDE };
    let c = p.c.as_mut_ptr();
    for tile in p.tiles {
        for first in (0..rows).step_by(BLOCK) {
            let count = BLOCK.min(rows - first);
            for column in (0..columns).step_by(BLOCK) {
                // SAFETY: the caller guarantees the instruction set and the rows of the block.
                unsafe {
                    let c = c.add((tile.row + first) * p.c_row + column);
                    let mut sums =
                        if p.accumulate { load(c, p.c_row, count) } else { [[vdupq_n_f32(0.0); PAIRS]; PAIRS] };
                    sum_steps(&p, tile, (first, count), column, &mut sums);
                    store(c, p.c_row, count, &sums);
                }
            }
        }
    }
}

/// Adds the products of a block over all steps.
///
/// # Safety
/// As for [`multiply`]. The block has `count` rows from `first` on.
#[inline]
#[target_feature(enable = "neon,bf16")]
unsafe fn sum_steps(p: &Product, tile: &RowTile, (first, count): (usize, usize), column: usize, sums: &mut Sums) {
    // SAFETY: the caller guarantees the instruction set and the rows. A step of B has all columns of a panel.
    unsafe {
        // Rows after the last one repeat it, and their sums are not stored.
        let row = |i: usize| p.a.as_ptr().add(tile.a + (first + i.min(count - 1)) * p.a_row);
        let a: [*const u16; BLOCK] = from_fn(|i| row(i).cast());
        for step in p.steps {
            let b: *const u32 = step.b.as_ptr().add(column / SIDE * DEPTH * SIDE + column % SIDE * 2).cast();
            for channel in (0..DEPTH).step_by(8) {
                let rows: [uint64x2_t; BLOCK] =
                    from_fn(|i| vreinterpretq_u64_u16(vld1q_u16(a[i].add(step.offset + channel))));
                let low = from_fn(|i| vreinterpretq_u16_u64(vzip1q_u64(rows[2 * i], rows[2 * i + 1])));
                let high = from_fn(|i| vreinterpretq_u16_u64(vzip2q_u64(rows[2 * i], rows[2 * i + 1])));
                add_products(sums, low, column_pairs(b.add(channel / 2 * SIDE)));
                add_products(sums, high, column_pairs(b.add((channel / 2 + 2) * SIDE)));
            }
        }
    }
}

/// Four channels of the columns of a block, two columns in a register, from two rows of pairs of channels.
///
/// # Safety
/// The CPU must have NEON. `b` points at pairs of channels of [`BLOCK`] columns, with the next pairs [`SIDE`] further.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn column_pairs(b: *const u32) -> [uint16x8_t; PAIRS] {
    // SAFETY: the caller guarantees the instruction set and the addresses.
    unsafe {
        let [even, odd] = [b, b.add(SIDE)].map(|b| [vld1q_u32(b), vld1q_u32(b.add(4))]);
        let pairs = [
            vzip1q_u32(even[0], odd[0]),
            vzip2q_u32(even[0], odd[0]),
            vzip1q_u32(even[1], odd[1]),
            vzip2q_u32(even[1], odd[1]),
        ];
        pairs.map(|pair| vreinterpretq_u16_u32(pair))
    }
}

/// sums += a · bᵀ for four channels of a block.
///
/// # Safety
/// The CPU must have bf16.
#[inline]
#[target_feature(enable = "neon,bf16")]
unsafe fn add_products(sums: &mut Sums, a: [uint16x8_t; PAIRS], b: [uint16x8_t; PAIRS]) {
    for (sums, a) in sums.iter_mut().zip(a) {
        for (sum, b) in sums.iter_mut().zip(b) {
            // SAFETY: the caller guarantees the instruction.
            *sum = unsafe { bfmmla(*sum, a, b) };
        }
    }
}

/// The sums in memory.
///
/// # Safety
/// The CPU must have NEON. `c` points at `count` rows of [`BLOCK`] columns.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load(c: *const f32, c_row: usize, count: usize) -> Sums {
    // SAFETY: the caller guarantees the instruction set and the addresses.
    unsafe {
        let part = |row: usize, pair: usize| vld1_f32(c.add(row.min(count - 1) * c_row + 2 * pair));
        from_fn(|i| from_fn(|j| vcombine_f32(part(2 * i, j), part(2 * i + 1, j))))
    }
}

/// Writes the sums of `count` rows to memory.
///
/// # Safety
/// As for [`load`].
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store(c: *mut f32, c_row: usize, count: usize, sums: &Sums) {
    for row in 0..count {
        for (pair, sum) in sums[row / 2].iter().enumerate() {
            // SAFETY: the caller guarantees the instruction set and the addresses.
            unsafe {
                let part = if row % 2 == 0 { vget_low_f32(*sum) } else { vget_high_f32(*sum) };
                vst1_f32(c.add(row * c_row + 2 * pair), part);
            }
        }
    }
}
