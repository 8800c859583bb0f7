//! The inner loop of all products: C\[row, n\] += Σ A\[row, k\] · B\[k, n\], one register tile at a time.
//!
//! A is transposed: the rows of one k are contiguous, so that a tile needs a single address. B is cut into panels one
//! or two registers wide that are read sequentially. C stays in registers for a whole panel.

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

/// How the tiles of a line lie in A.
#[derive(Clone, Copy)]
pub enum TileLayout {
    /// The rows of all tiles are contiguous.
    Contiguous,
    /// The tiles have this stride.
    Strided(usize),
}

impl TileLayout {
    fn start(self, tile: usize, first: usize) -> usize {
        match self {
            TileLayout::Contiguous => first,
            TileLayout::Strided(distance) => tile * distance,
        }
    }
}

/// The product of one panel: `lines` lines of `columns` rows of A, each the sum over some runs of consecutive k.
///
/// The rows of a line are cut into tiles. Row i of the tile at offset `start`, at run r and step s, is
/// `a[start + line · a_line + runs[r] + s · a_step + i]`.
pub struct Product<'a> {
    /// Values of A, transposed.
    pub a: &'a [f32],
    /// Layout of the tiles of a line.
    pub tiles: TileLayout,
    /// Stride between lines in `a`.
    pub a_line: usize,
    /// Stride between steps in `a`.
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
        let (tiles, a_line, a_step, runs) = (TileLayout::Contiguous, 0, rows, &[0]);
        Product {
            a,
            tiles,
            a_line,
            a_step,
            runs,
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
    let inner = (p.lines - 1) * p.a_line + last + (p.steps - 1) * p.a_step;
    for (tile, (start, end)) in even_parts(p.columns, tile_rows(level)).enumerate() {
        assert!(p.a.len() >= p.tiles.start(tile, start) + inner + end - start, "rows too short");
    }
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
    const { assert!(S::ROWS <= MOST_ROWS) };
    for (i, (start, end)) in even_parts(p.columns, S::ROWS).enumerate() {
        for line in 0..p.lines {
            // SAFETY: the sizes that the caller guarantees contain this tile of this line.
            unsafe {
                let a = p.a.as_ptr().add(p.tiles.start(i, start) + line * p.a_line);
                let c = p.c.as_mut_ptr().add((line * p.columns + start) * p.c_row);
                match end - start {
                    1 => tile::<S, N, 1>(&p, a, c),
                    2 => tile::<S, N, 2>(&p, a, c),
                    3 => tile::<S, N, 3>(&p, a, c),
                    4 => tile::<S, N, 4>(&p, a, c),
                    5 => tile::<S, N, 5>(&p, a, c),
                    6 => tile::<S, N, 6>(&p, a, c),
                    7 => tile::<S, N, 7>(&p, a, c),
                    8 => tile::<S, N, 8>(&p, a, c),
                    9 => tile::<S, N, 9>(&p, a, c),
                    10 => tile::<S, N, 10>(&p, a, c),
                    11 => tile::<S, N, 11>(&p, a, c),
                    12 => tile::<S, N, 12>(&p, a, c),
                    13 => tile::<S, N, 13>(&p, a, c),
                    _ => tile::<S, N, 14>(&p, a, c),
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
unsafe fn tile<S: Simd, const N: usize, const M: usize>(p: &Product, a: *const f32, c: *mut f32) {
    if M > S::ROWS {
        return;
    }
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
            let mut a = a.add(run);
            for _ in 0..p.steps {
                let row = registers(b);
                let ahead = b.wrapping_add(AHEAD * N * S::LANES);
                for n in 0..N {
                    S::prefetch(ahead.wrapping_add(n * S::LANES));
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let v = S::splat(a.add(i));
                    for n in 0..N {
                        acc[n] = S::mul_add(v, row[n], acc[n]);
                    }
                }
                a = a.add(p.a_step);
                b = b.add(N * S::LANES);
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            for (n, &sums) in acc.iter().enumerate() {
                S::store(c.add(i * p.c_row + n * S::LANES), sums);
            }
        }
    }
}
