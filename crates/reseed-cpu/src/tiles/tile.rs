//! Products of tiles.
//!
//! With AMX a thread has eight tile registers: four hold sums (two tiles of rows by two tiles of columns), two hold
//! rows of A and two hold columns of B. The operands of `bfmmla` are SIMD registers, which need no configuration.

use std::cell::Cell;
use std::marker::PhantomData;

use half::bf16;

#[cfg(not(target_arch = "aarch64"))]
use super::amx as registers;
#[cfg(target_arch = "aarch64")]
use super::bfmmla as registers;
use super::shape::{DEPTH, PANEL, SIDE, STEP};
use crate::host::tile_support::available;

/// One step of a product.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step<'a> {
    /// Offset of the step's values of A from the start of a tile.
    pub offset: usize,
    /// The step's part of B.
    pub b: &'a [bf16; STEP],
}

impl<'a> Step<'a> {
    /// Steps that read A consecutively. Steps after the last one of B repeat it.
    pub fn consecutive<const N: usize>(b: &'a [[bf16; STEP]]) -> [Step<'a>; N] {
        std::array::from_fn(|i| Step { offset: i * DEPTH, b: &b[i.min(b.len() - 1)] })
    }
}

/// A tile of rows.
#[derive(Clone, Copy)]
pub struct RowTile {
    /// Offset of its first row in A.
    pub a: usize,
    /// Its first row of C.
    pub row: usize,
}

impl RowTile {
    /// The tiles of `count` rows with stride `a_row`. The last tile overlaps the previous one in A, not in C.
    pub fn consecutive(count: usize, a_row: usize) -> impl Iterator<Item = RowTile> {
        let side = SIDE.min(count);
        (0..count).step_by(SIDE).map(move |row| RowTile { a: row.min(count - side) * a_row, row })
    }
}

/// Some tiles of rows times one panel: C\[row, n\] += Σ A\[row, step\] · B\[step, n\].
///
/// Row i of tile t at step s is `a[tiles[t].a + steps[s].offset + i · a_row ..][..DEPTH]`.
pub struct Product<'a> {
    /// Values of A.
    pub a: &'a [bf16],
    /// Stride between rows of a tile in `a`.
    pub a_row: usize,
    /// Tiles of rows. Two consecutive tiles are computed together.
    pub tiles: &'a [RowTile],
    /// Steps to sum.
    pub steps: &'a [Step<'a>],
    /// Elements from a step's part of B to the part that the next product reads, which is prefetched.
    pub next: isize,
    /// Sums.
    pub c: &'a mut [f32],
    /// Stride between rows of C.
    pub c_row: usize,
    /// Columns needed. Half a panel is half the work.
    pub columns: usize,
    /// Whether the product is added to C. Otherwise it overwrites C.
    pub accumulate: bool,
}

/// The use of this thread's tile registers.
#[derive(Clone, Copy, PartialEq)]
struct ThreadState {
    /// Scopes that are alive.
    scopes: usize,
    /// Rows of the current configuration, 0 without one.
    rows: usize,
}

thread_local! {
    static STATE: Cell<ThreadState> = const { Cell::new(ThreadState { scopes: 0, rows: 0 }) };
}

/// Permission to use the tile registers of this thread. Scopes may nest and may end in any order.
///
/// No value stays in the registers between two products, so a product of one scope may change the configuration that
/// another scope has set. Each product sets its own configuration where the current one differs. The end of the last
/// scope releases the registers, so that a context switch need not save them.
pub struct TileScope {
    rows: usize,
    /// The registers belong to the thread, so a scope is neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

impl TileScope {
    /// A scope for tiles of `rows` rows of A and C.
    pub fn new(rows: usize) -> TileScope {
        assert!((1..=SIDE).contains(&rows), "tiles have 1 to {SIDE} rows, not {rows}");
        assert!(available(), "tiles on a machine without them");
        STATE.set(ThreadState { scopes: STATE.get().scopes + 1, ..STATE.get() });
        let scope = TileScope { rows, _thread: PhantomData };
        scope.configure();
        scope
    }

    /// Gives the registers the shape of this scope.
    fn configure(&self) {
        if STATE.get().rows != self.rows {
            // SAFETY: `new` has checked that tiles are available and have 1 to 16 rows.
            unsafe { registers::configure(self.rows as u8) };
            STATE.set(ThreadState { rows: self.rows, ..STATE.get() });
        }
    }

    /// Computes a product.
    pub fn multiply(&self, p: Product) {
        let panel = if p.columns > SIDE { PANEL } else { SIDE };
        assert!(!p.steps.is_empty() && !p.tiles.is_empty(), "an empty product");
        let largest = |of: fn(&RowTile) -> usize| p.tiles.iter().map(of).max().unwrap_or(0);
        let last = largest(|tile| tile.a) + p.steps.iter().map(|step| step.offset).max().unwrap_or(0);
        assert!(p.a.len() >= last + (self.rows - 1) * p.a_row + DEPTH, "A is too short");
        let rows = largest(|tile| tile.row) + self.rows;
        assert!(p.c.len() >= (rows - 1) * p.c_row + panel, "C is too short");
        self.configure();
        // SAFETY: the asserts above bound every address, and the registers have the shape of this scope.
        unsafe { registers::multiply(p, self.rows) }
    }
}

impl Drop for TileScope {
    fn drop(&mut self) {
        let state = ThreadState { scopes: STATE.get().scopes - 1, ..STATE.get() };
        if state.scopes > 0 {
            return STATE.set(state);
        }
        STATE.set(ThreadState { scopes: 0, rows: 0 });
        // SAFETY: a scope exists only where tiles are available. No other scope of this thread needs the registers.
        unsafe { registers::release() }
    }
}

/// Multiplies tiles `rounds` times and returns the number of floating-point operations.
pub fn spin(rounds: usize) -> usize {
    let _scope = TileScope::new(SIDE);
    // SAFETY: the scope has just configured the registers.
    unsafe { registers::spin(rounds) };
    rounds * 4 * 2 * SIDE * SIDE * DEPTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tile_support::skip_test;

    /// Small integers are exact in bf16, and so are their sums in f32.
    fn values(count: usize) -> Vec<bf16> {
        (0..count).map(|i| bf16::from_f32((i * 7 % 5) as f32 - 2.0)).collect()
    }

    /// Compares a product of `tiles` tiles with plain loops.
    fn check(scope: &TileScope, tiles: usize, columns: usize, accumulate: bool) {
        let (a_row, c_row, offsets) = (40, 48, [0, 3, 700]);
        let places: Vec<RowTile> = (0..tiles).map(|t| RowTile { a: t * SIDE * a_row, row: t * SIDE }).collect();
        let (a, b) = (values(tiles * SIDE * a_row + 800), values(offsets.len() * STEP));
        let mut c: Vec<f32> = (0..tiles * SIDE * c_row).map(|i| (i % 3) as f32).collect();
        let mut want = c.clone();
        for (i, row) in want.chunks_exact_mut(c_row).enumerate().take((tiles - 1) * SIDE + scope.rows) {
            for (n, sum) in row.iter_mut().enumerate().take(if columns > SIDE { PANEL } else { SIDE }) {
                let product = |(s, k): (usize, usize)| {
                    let a = a[i * a_row + offsets[s] + k];
                    let b = b[s * STEP + n / SIDE * DEPTH * SIDE + k / 2 * DEPTH + n % SIDE * 2 + k % 2];
                    a.to_f32() * b.to_f32()
                };
                let steps = (0..offsets.len()).flat_map(|s| (0..DEPTH).map(move |k| (s, k)));
                *sum = if accumulate { *sum } else { 0.0 } + steps.map(product).sum::<f32>();
            }
        }
        let steps: Vec<Step> = offsets.iter().zip(b.as_chunks().0).map(|(&offset, b)| Step { offset, b }).collect();
        let (tiles, steps) = (&places[..], &steps[..]);
        scope.multiply(Product { a: &a, a_row, tiles, steps, next: 0, c: &mut c, c_row, columns, accumulate });
        assert!(c == want, "{} tiles of {} rows, {columns} columns", tiles.len(), scope.rows);
    }

    #[test]
    fn every_block_shape_sums_its_products() {
        if skip_test() {
            return;
        }
        for (tiles, rows, columns, accumulate) in
            [(1, 16, 16, false), (2, 16, 32, true), (3, 16, 32, false), (3, 16, 9, true), (1, 5, 32, true)]
        {
            check(&TileScope::new(rows), tiles, columns, accumulate);
        }
    }

    #[test]
    fn the_end_of_a_nested_scope_leaves_the_outer_scope_usable() {
        if skip_test() {
            return;
        }
        for (outer_rows, inner_rows) in [(16, 5), (5, 16), (16, 16)] {
            let outer = TileScope::new(outer_rows);
            check(&outer, 1, 32, false);
            let inner = TileScope::new(inner_rows);
            check(&inner, 1, 32, false);
            check(&outer, 1, 32, true);
            drop(inner);
            check(&outer, 1, 32, false);
        }
        assert!(STATE.get() == ThreadState { scopes: 0, rows: 0 }, "the last scope releases the registers");
    }

    #[test]
    fn an_outer_scope_may_end_before_an_inner_one() {
        if skip_test() {
            return;
        }
        let (outer, inner) = (TileScope::new(16), TileScope::new(7));
        drop(outer);
        check(&inner, 1, 32, false);
    }
}
