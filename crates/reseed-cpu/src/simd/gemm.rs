//! The inner loop of all products: C\[row, n\] += Σ A\[row, k\] · B\[k, n\], one register tile at a time.
//!
//! The rows of A have a constant stride, so that a tile needs a single address. B is cut into panels one or two
//! registers wide that are read sequentially. C stays in registers for a whole panel.

#[cfg(target_arch = "aarch64")]
use super::vector::Neon;
#[cfg(target_arch = "x86_64")]
use super::vector::{Avx2, Avx512};
use super::vector::{Portable, Simd};
use crate::host::level::Level;

/// Most rows of a register tile over all levels.
const MOST_ROWS: usize = 14;

/// Steps by which B is prefetched from the second-level cache.
const AHEAD: usize = 16;

/// Columns of a panel of B.
pub fn panel_width(level: Level) -> usize {
    match level {
        Level::Avx512 => 32,
        _ => 16,
    }
}

/// Columns of a panel of a matrix of `columns` columns: one register where they fill no more.
pub fn narrow_width(level: Level, columns: usize) -> usize {
    match level {
        Level::Avx512 if columns <= 16 => 16,
        _ => panel_width(level),
    }
}

/// Rows of a full register tile.
pub fn tile_rows(level: Level) -> usize {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Avx512::ROWS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Avx2::ROWS,
        #[cfg(target_arch = "aarch64")]
        Level::Neon => Neon::ROWS,
        _ => Portable::ROWS,
    }
}

/// Steps of a block of [`Rows::Blocks`]: a cache line.
pub const BLOCK: usize = 16;

/// The order of A.
#[derive(Clone, Copy)]
pub enum Rows {
    /// `[k][row]`, with the stride `a_step` between steps.
    Transposed,
    /// `[block of k][row][BLOCK]`, with the stride `a_step` between blocks: pixels as they are, cut into blocks of
    /// channels.
    Blocks,
    /// `[row][STEM]`: pixels of as many channels as an image has, side by side. Steps may continue in the next rows.
    Pixels,
}

/// Channels of an image.
pub const STEM: usize = 3;

impl Rows {
    /// Stride between rows.
    const fn stride(self) -> usize {
        match self {
            Rows::Transposed => 1,
            Rows::Blocks => BLOCK,
            Rows::Pixels => STEM,
        }
    }

    /// Offset of the last value that `steps` steps read of a row.
    fn last(self, steps: usize, a_step: usize) -> usize {
        match self {
            Rows::Transposed => (steps - 1) * a_step,
            Rows::Blocks => (steps - 1) / BLOCK * a_step + (steps - 1).min(BLOCK - 1),
            Rows::Pixels => steps - 1,
        }
    }
}

/// The product of one panel: `lines` lines of `columns` rows of A, each the sum over some runs of consecutive k.
///
/// Row i of a line, at run r, starts at `a[line · a_line + runs[r] + i · rows.stride()]`.
pub struct Product<'a> {
    /// Values of A.
    pub a: &'a [f32],
    /// Order of A.
    pub rows: Rows,
    /// Stride between lines in `a`.
    pub a_line: usize,
    /// Stride between steps, or blocks of steps, in `a`.
    pub a_step: usize,
    /// Offset of each run in a line.
    pub runs: &'a [usize],
    /// Steps of a run.
    pub steps: usize,
    /// The panel: `runs · steps` rows.
    pub b: &'a [f32],
    /// Columns of the panel: one register or two.
    pub width: usize,
    /// Number of lines.
    pub lines: usize,
    /// Rows of A in a line.
    pub columns: usize,
    /// Sums; row (line, i) starts at `(line · columns + i) · c_row`.
    pub c: &'a mut [f32],
    /// Stride between rows of C.
    pub c_row: usize,
    /// Whether the product is added to C. Otherwise it overwrites C.
    pub accumulate: bool,
}

impl<'a> Product<'a> {
    /// A plain matrix product of one panel: `a` is `[k][rows]`, `b` is `[k][width]`.
    pub fn plain(
        (a, rows): (&'a [f32], usize),
        (b, width): (&'a [f32], usize),
        steps: usize,
        (c, c_row): (&'a mut [f32], usize),
    ) -> Product<'a> {
        Product {
            a,
            rows: Rows::Transposed,
            a_line: 0,
            a_step: rows,
            runs: &[0],
            steps,
            b,
            width,
            lines: 1,
            columns: rows,
            c,
            c_row,
            accumulate: false,
        }
    }
}

/// Splits `0..n` into parts of nearly equal size, none larger than `most`.
pub fn even_parts(n: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let parts = n.div_ceil(most).max(1);
    (0..parts).map(move |i| (i * n / parts, (i + 1) * n / parts))
}

/// Computes a product with the kernels of `level`.
pub fn multiply(level: Level, p: Product) {
    let width = p.width;
    assert!(
        width == panel_width(level) || width == narrow_width(level, 1),
        "gemm: a panel of {width} columns at level {level}"
    );
    assert!(p.columns > 0 && p.lines > 0 && p.steps > 0, "an empty product");
    assert!(p.b.len() >= p.runs.len() * p.steps * width, "panel too short");
    assert!(p.c.len() >= (p.lines * p.columns - 1) * p.c_row + width, "sums too short");
    let last = p.runs.iter().max().expect("a product has runs");
    let last = (p.lines - 1) * p.a_line + last + (p.columns - 1) * p.rows.stride() + p.rows.last(p.steps, p.a_step);
    assert!(last < p.a.len(), "rows too short");
    // SAFETY: the asserts above bound every address that `lines` forms. `CpuOps::at` has checked that the CPU has
    // `level`.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if width < panel_width(level) => lines_avx512::<1>(p),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => lines_avx512::<2>(p),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => lines_avx2(p),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => lines::<Neon, 2>(p),
            _ => lines::<Portable, 2>(p),
        }
    }
}

/// # Safety
/// The CPU must have AVX-512 F and VL; otherwise as for [`lines`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn lines_avx512<const N: usize>(p: Product) {
    // SAFETY: the caller gives the same guarantees.
    unsafe { lines::<Avx512, N>(p) }
}

/// # Safety
/// The CPU must have AVX2 and FMA; otherwise as for [`lines`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn lines_avx2(p: Product) {
    // SAFETY: the caller gives the same guarantees.
    unsafe { lines::<Avx2, 2>(p) }
}

/// All lines, N registers of columns.
///
/// # Safety
/// The CPU must have the instruction set of `S`. The operands must have the sizes that [`multiply`] asserts.
#[inline(always)]
unsafe fn lines<S: Simd, const N: usize>(p: Product) {
    // SAFETY: the caller gives the same guarantees.
    unsafe {
        match p.rows {
            Rows::Transposed => lines_of::<S, N, { Rows::Transposed.stride() }>(p),
            Rows::Blocks => lines_of::<S, N, { Rows::Blocks.stride() }>(p),
            Rows::Pixels => lines_of::<S, N, { Rows::Pixels.stride() }>(p),
        }
    }
}

/// All lines, with the stride ROW between rows of A.
///
/// # Safety
/// As for [`lines`].
#[inline(always)]
unsafe fn lines_of<S: Simd, const N: usize, const ROW: usize>(p: Product) {
    const { assert!(S::ROWS <= MOST_ROWS) };
    for (start, end) in even_parts(p.columns, S::ROWS) {
        for line in 0..p.lines {
            // SAFETY: the sizes that the caller guarantees contain this tile of this line.
            unsafe {
                let a = p.a.as_ptr().add(start * ROW + line * p.a_line);
                let c = p.c.as_mut_ptr().add((line * p.columns + start) * p.c_row);
                match end - start {
                    1 => tile::<S, N, ROW, 1>(&p, a, c),
                    2 => tile::<S, N, ROW, 2>(&p, a, c),
                    3 => tile::<S, N, ROW, 3>(&p, a, c),
                    4 => tile::<S, N, ROW, 4>(&p, a, c),
                    5 => tile::<S, N, ROW, 5>(&p, a, c),
                    6 => tile::<S, N, ROW, 6>(&p, a, c),
                    7 => tile::<S, N, ROW, 7>(&p, a, c),
                    8 => tile::<S, N, ROW, 8>(&p, a, c),
                    9 => tile::<S, N, ROW, 9>(&p, a, c),
                    10 => tile::<S, N, ROW, 10>(&p, a, c),
                    11 => tile::<S, N, ROW, 11>(&p, a, c),
                    12 => tile::<S, N, ROW, 12>(&p, a, c),
                    13 => tile::<S, N, ROW, 13>(&p, a, c),
                    _ => tile::<S, N, ROW, 14>(&p, a, c),
                }
            }
        }
    }
}

/// M rows by N registers of the tile whose first row is at `a` and at `c`.
///
/// # Safety
/// As for [`lines`]. `a` and `c` must be in bounds for M rows and all steps.
#[inline(always)]
unsafe fn tile<S: Simd, const N: usize, const ROW: usize, const M: usize>(p: &Product, a: *const f32, c: *mut f32) {
    if M > S::ROWS {
        return;
    }
    // Steps of a block, and the stride between them.
    let (block, step) = match ROW {
        1 => (p.steps, p.a_step),
        BLOCK => (BLOCK, 1),
        _ => (p.steps, 1),
    };
    // SAFETY: the caller guarantees the bounds. A prefetch may name any address.
    unsafe {
        let registers = |from: *const f32| -> [S::V; N] { std::array::from_fn(|n| S::load(from.add(n * S::LANES))) };
        let mut acc = [[S::zero(); N]; M];
        if p.accumulate {
            for (i, acc) in acc.iter_mut().enumerate() {
                *acc = registers(c.add(i * p.c_row));
            }
        }
        let mut b = p.b.as_ptr();
        for &run in p.runs {
            for (i, first) in (0..p.steps).step_by(block).enumerate() {
                let mut a = a.add(run + i * p.a_step);
                let mut next = a.wrapping_add(p.a_step);
                for _ in first..p.steps.min(first + block) {
                    let row = registers(b);
                    // The loads of a tile one register wide leave no time for prefetches.
                    if N > 1 {
                        let ahead = b.wrapping_add(AHEAD * N * S::LANES);
                        (0..N).for_each(|n| S::prefetch(ahead.wrapping_add(n * S::LANES)));
                    }
                    // One row of the next block in each step: the largest tile has nearly as many rows as a block has
                    // steps.
                    if N > 1 && ROW == BLOCK && S::ROWS == MOST_ROWS {
                        S::prefetch(next);
                        next = next.wrapping_add(ROW);
                    }
                    for (i, acc) in acc.iter_mut().enumerate() {
                        let v = S::splat(a.add(i * ROW));
                        for n in 0..N {
                            acc[n] = S::mul_add(v, row[n], acc[n]);
                        }
                    }
                    a = a.wrapping_add(step);
                    b = b.add(N * S::LANES);
                }
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            for (n, &sums) in acc.iter().enumerate() {
                S::store(c.add(i * p.c_row + n * S::LANES), sums);
            }
        }
    }
}
