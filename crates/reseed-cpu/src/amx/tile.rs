//! The tile instructions, which this compiler knows in assembly alone.
//!
//! Eight registers: four of sums (two tiles of rows by two of columns), two of rows of A, two of columns of B.

use half::bf16;

use super::{DEPTH, PANEL, SIDE};

/// Elements of B that one step reads: rows are pairs of channels, columns the outputs.
pub const STEP: usize = DEPTH * PANEL;

/// One step of a product.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step<'a> {
    /// Where it reads A, from a tile's start.
    pub run: usize,
    /// Its part of B.
    pub b: &'a [bf16; STEP],
}

impl<'a> Step<'a> {
    /// Steps that read A one behind the other; those beyond the last of B repeat it.
    pub fn in_a_row<const N: usize>(b: &'a [[bf16; STEP]]) -> [Step<'a>; N] {
        std::array::from_fn(|i| Step { run: i * DEPTH, b: &b[i.min(b.len() - 1)] })
    }
}

/// A tile of rows.
#[derive(Clone, Copy)]
pub struct Place {
    /// Where it starts in A.
    pub a: usize,
    /// Which row of C is its first.
    pub row: usize,
}

impl Place {
    /// The tiles of `count` rows that stand `a_row` apart; the last overlaps the one before it in A, not in C.
    pub fn in_a_row(count: usize, a_row: usize) -> impl Iterator<Item = Place> {
        let side = SIDE.min(count);
        (0..count).step_by(SIDE).map(move |row| Place { a: row.min(count - side) * a_row, row })
    }
}

/// Some tiles of rows against one panel: C\[row, n\] += Σ A\[row + run\] · B\[run\].
///
/// Row i of tile t at step s is the `DEPTH` elements of `a` from `tiles[t].a + steps[s].run + i · a_row` on.
pub struct Product<'a> {
    /// Left-hand values.
    pub a: &'a [bf16],
    /// Distance between rows of a tile in `a`.
    pub a_row: usize,
    /// Tiles; every two that follow each other are computed together.
    pub tiles: &'a [Place],
    /// What is multiplied and summed.
    pub steps: &'a [Step<'a>],
    /// Elements from a step's part of B to what the next product reads there, which is prefetched meanwhile.
    pub next: isize,
    /// Sums.
    pub c: &'a mut [f32],
    /// Distance between rows of C.
    pub c_row: usize,
    /// Columns wanted; half a panel is half the work.
    pub columns: usize,
    /// Whether C starts at zero instead of what it holds.
    pub fresh: bool,
}

/// This thread's tile registers, shaped; they are given back at the end, so that a switch of threads need not save them.
pub struct Tiles {
    rows: usize,
    /// Registers belong to the thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Tiles {
    /// Tiles of `rows` rows of A and C.
    pub fn shaped(rows: usize) -> Tiles {
        assert!((1..=SIDE).contains(&rows), "tiles of {rows} rows");
        assert!(available(), "tiles on a machine without AMX");
        // SAFETY: the machine has tiles, and this process may use them.
        unsafe { system::shape(rows as u8) };
        Tiles { rows, _here: std::marker::PhantomData }
    }

    /// Runs a product.
    pub fn multiply(&self, p: Product) {
        let panel = if p.columns > SIDE { PANEL } else { SIDE };
        assert!(!p.steps.is_empty() && !p.tiles.is_empty(), "an empty product");
        let farthest = |place: fn(&Place) -> usize| p.tiles.iter().map(place).max().unwrap_or(0);
        let last = farthest(|tile| tile.a) + p.steps.iter().map(|step| step.run).max().unwrap_or(0);
        assert!(p.a.len() >= last + (self.rows - 1) * p.a_row + DEPTH, "rows too short");
        let rows = farthest(|tile| tile.row) + self.rows;
        assert!(p.c.len() >= (rows - 1) * p.c_row + panel, "sums too short");
        // SAFETY: the asserts above bound every address, and the registers are shaped.
        unsafe { system::multiply(&p) }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the registers were shaped.
        unsafe { system::release() }
    }
}

/// Whether this machine has bf16 tiles and the system lets this process use them; asks once.
pub fn available() -> bool {
    static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *AVAILABLE.get_or_init(system::request)
}

/// Multiplies tiles that many times and says how many operations that were.
pub fn spin(rounds: usize) -> usize {
    let _shaped = Tiles::shaped(SIDE);
    // SAFETY: the registers are shaped.
    unsafe { system::spin(rounds) };
    rounds * 4 * 2 * SIDE * SIDE * DEPTH
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod system {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    use super::{Product, SIDE, STEP};

    /// Bits of leaf 7: bf16 products, tiles.
    const AMX: u32 = 1 << 22 | 1 << 24;
    /// Parts of a thread's state: shapes of tiles, tiles.
    const STATE: u64 = 1 << 17 | 1 << 18;

    pub fn request() -> bool {
        let vectors = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        if !vectors || __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & AMX != AMX {
            return false;
        }
        // SAFETY: machines with AVX-512 have the instruction.
        if unsafe { xcr0() } & STATE != STATE {
            return false;
        }
        const ARCH_PRCTL: usize = 158;
        const REQUEST_PERMISSION: usize = 0x1023;
        const TILE_DATA: usize = 18;
        let refused: isize;
        // SAFETY: a system call that touches no memory.
        unsafe {
            asm!(
                "syscall", inlateout("rax") ARCH_PRCTL => refused, in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
                out("rcx") _, out("r11") _, options(nostack)
            );
        }
        refused == 0
    }

    #[target_feature(enable = "xsave")]
    unsafe fn xcr0() -> u64 {
        // SAFETY: the caller's promise.
        unsafe { _xgetbv(0) }
    }

    /// What `ldtilecfg` reads.
    #[repr(C, align(64))]
    struct Shapes {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    pub unsafe fn shape(rows: u8) {
        let mut shapes = Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        shapes.row_bytes[..8].fill(64);
        shapes.rows[..6].fill(rows);
        shapes.rows[6..8].fill(SIDE as u8);
        // SAFETY: the caller has checked that the machine has tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, readonly)) }
    }

    pub unsafe fn release() {
        // SAFETY: the caller's promise.
        unsafe { asm!("tilerelease", options(nostack, nomem)) }
    }

    pub unsafe fn spin(rounds: usize) {
        // SAFETY: the caller's promise; nothing but registers is touched.
        unsafe {
            asm!(
                "tilezero tmm4\ntilezero tmm5\ntilezero tmm6\ntilezero tmm7",
                "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7",
                "dec {rounds}",
                "jnz 2b",
                rounds = inout(reg) rounds => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem),
            );
        }
    }

    /// Where sums stand; strides in bytes.
    #[repr(C)]
    struct Sums {
        keep: usize,
        c: [*mut f32; 2],
        row: usize,
    }

    /// One or two tiles of rows by one or two of columns. With every step a part of the next product's weights comes into
    /// the second-level cache, which otherwise would keep the tiles waiting.
    macro_rules! block {
        ($name:ident: $zero:literal, $load:literal, $step:literal, $store:literal) => {
            unsafe fn $name(p: &Product, a: [*const u8; 2], ahead: isize, sums: &Sums) {
                // SAFETY: `Tiles::multiply` has checked the sizes. Runs and strides are counted in elements of two bytes;
                // what is prefetched ahead need not exist.
                unsafe {
                    asm!(
                        "mov {at}, [{sums} + 8]",
                        "mov {b}, [{sums} + 16]",
                        "mov {run}, [{sums} + 24]",
                        "cmp qword ptr [{sums}], 0",
                        "jne 2f",
                        $zero,
                        "jmp 3f",
                        "2:",
                        $load,
                        "3:",
                        "mov {run}, [{steps}]",
                        "mov {b}, [{steps} + 8]",
                        "lea {at}, [{a0} + 2 * {run}]",
                        "lea {run}, [{a1} + 2 * {run}]",
                        $step,
                        "prefetcht1 [{b} + {ahead}]",
                        "prefetcht1 [{b} + {ahead} + 64]",
                        "add {steps}, 16",
                        "dec {count}",
                        "jnz 3b",
                        "mov {at}, [{sums} + 8]",
                        "mov {b}, [{sums} + 16]",
                        "mov {run}, [{sums} + 24]",
                        $store,
                        a0 = in(reg) a[0],
                        a1 = in(reg) a[1],
                        a_row = in(reg) 2 * p.a_row,
                        steps = inout(reg) p.steps.as_ptr() => _,
                        count = inout(reg) p.steps.len() => _,
                        b = out(reg) _,
                        b_row = in(reg) 64usize,
                        ahead = in(reg) ahead,
                        sums = in(reg) sums,
                        run = out(reg) _,
                        at = out(reg) _,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    )
                }
            }
        };
    }

    // Cores at times run these instructions one after the other, and then wait for every load. Fetching half of the next
    // step's weights into the first-level cache is enough against that, and costs nothing at other times.
    block!(two_by_two:
        "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3",
        "tileloadd tmm0, [{at} + {run}]\n\
         tileloadd tmm1, [{at} + {run} + 64]\n\
         tileloadd tmm2, [{b} + {run}]\n\
         tileloadd tmm3, [{b} + {run} + 64]",
        "tileloadd tmm4, [{at} + {a_row}]\nprefetcht0 [{b} + 3072]\nprefetcht0 [{b} + 3136]\n\
         tileloadd tmm6, [{b} + {b_row}]\nprefetcht0 [{b} + 3200]\nprefetcht0 [{b} + 3264]\n\
         tileloadd tmm7, [{b} + {b_row} + 1024]\nprefetcht0 [{b} + 3328]\nprefetcht0 [{b} + 3392]\n\
         tileloadd tmm5, [{run} + {a_row}]\nprefetcht0 [{b} + 3456]\nprefetcht0 [{b} + 3520]\n\
         tdpbf16ps tmm0, tmm4, tmm6\nprefetcht0 [{b} + 3584]\nprefetcht0 [{b} + 3648]\n\
         tdpbf16ps tmm1, tmm4, tmm7\nprefetcht0 [{b} + 3712]\nprefetcht0 [{b} + 3776]\n\
         tdpbf16ps tmm2, tmm5, tmm6\nprefetcht0 [{b} + 3840]\nprefetcht0 [{b} + 3904]\n\
         tdpbf16ps tmm3, tmm5, tmm7\nprefetcht0 [{b} + 3968]\nprefetcht0 [{b} + 4032]",
        "tilestored [{at} + {run}], tmm0\n\
         tilestored [{at} + {run} + 64], tmm1\n\
         tilestored [{b} + {run}], tmm2\n\
         tilestored [{b} + {run} + 64], tmm3");

    block!(two_by_one:
        "tilezero tmm0\ntilezero tmm2",
        "tileloadd tmm0, [{at} + {run}]\ntileloadd tmm2, [{b} + {run}]",
        "tileloadd tmm6, [{b} + {b_row}]\n\
         tileloadd tmm4, [{at} + {a_row}]\n\
         tdpbf16ps tmm0, tmm4, tmm6\n\
         tileloadd tmm5, [{run} + {a_row}]\n\
         tdpbf16ps tmm2, tmm5, tmm6",
        "tilestored [{at} + {run}], tmm0\ntilestored [{b} + {run}], tmm2");

    block!(one_by_two:
        "tilezero tmm0\ntilezero tmm1",
        "tileloadd tmm0, [{at} + {run}]\ntileloadd tmm1, [{at} + {run} + 64]",
        "tileloadd tmm6, [{b} + {b_row}]\n\
         tileloadd tmm4, [{at} + {a_row}]\n\
         tdpbf16ps tmm0, tmm4, tmm6\n\
         tileloadd tmm7, [{b} + {b_row} + 1024]\n\
         tdpbf16ps tmm1, tmm4, tmm7",
        "tilestored [{at} + {run}], tmm0\ntilestored [{at} + {run} + 64], tmm1");

    block!(one_by_one:
        "tilezero tmm0",
        "tileloadd tmm0, [{at} + {run}]",
        "tileloadd tmm6, [{b} + {b_row}]\n\
         tileloadd tmm4, [{at} + {a_row}]\n\
         tdpbf16ps tmm0, tmm4, tmm6",
        "tilestored [{at} + {run}], tmm0");

    /// Bytes of a step's weights that come with one block of tiles.
    const AHEAD: usize = 128;

    pub unsafe fn multiply(p: &Product) {
        let wide = p.columns > SIDE;
        for (i, tiles) in p.tiles.chunks(2).enumerate() {
            let [first, second] = [tiles[0], tiles[tiles.len() - 1]];
            let ahead = 2 * p.next + (i * AHEAD % (2 * STEP)) as isize;
            // SAFETY: `Tiles::multiply` has checked the sizes.
            unsafe {
                let a = [first, second].map(|tile| p.a.as_ptr().add(tile.a).cast());
                let c = [first, second].map(|tile| p.c.as_ptr().cast_mut().add(tile.row * p.c_row));
                let sums = Sums { keep: usize::from(!p.fresh), c, row: 4 * p.c_row };
                match (tiles.len(), wide) {
                    (2, true) => two_by_two(p, a, ahead, &sums),
                    (2, false) => two_by_one(p, a, ahead, &sums),
                    (_, true) => one_by_two(p, a, ahead, &sums),
                    (_, false) => one_by_one(p, a, ahead, &sums),
                }
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod system {
    use super::Product;

    pub fn request() -> bool {
        false
    }

    pub unsafe fn shape(_: u8) {}

    pub unsafe fn release() {}

    pub unsafe fn spin(_: usize) {}

    pub unsafe fn multiply(Product { fresh: _fresh, next: _next, .. }: &Product) {
        unreachable!("tiles on a machine without AMX");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers are exact in bf16 and their sums in f32.
    fn values(count: usize) -> Vec<bf16> {
        (0..count).map(|i| bf16::from_f32((i * 7 % 5) as f32 - 2.0)).collect()
    }

    #[test]
    fn every_shape_of_block_sums_its_products() {
        if crate::amx::skipped() {
            return;
        }
        for (tiles, rows, columns, fresh) in
            [(1, 16, 16, true), (2, 16, 32, false), (3, 16, 32, true), (3, 16, 9, false), (1, 5, 32, false)]
        {
            let (a_row, c_row, runs) = (40, 48, [0, 3, 700]);
            let places: Vec<Place> = (0..tiles).map(|t| Place { a: t * SIDE * a_row, row: t * SIDE }).collect();
            let (a, b) = (values(tiles * SIDE * a_row + 800), values(runs.len() * STEP));
            let mut c: Vec<f32> = (0..tiles * SIDE * c_row).map(|i| (i % 3) as f32).collect();
            let mut want = c.clone();
            for (i, row) in want.chunks_exact_mut(c_row).enumerate().take((tiles - 1) * SIDE + rows) {
                for (n, sum) in row.iter_mut().enumerate().take(if columns > SIDE { PANEL } else { SIDE }) {
                    let product = |(s, k): (usize, usize)| {
                        let a = a[i * a_row + runs[s] + k];
                        let b = b[s * STEP + n / SIDE * DEPTH * SIDE + k / 2 * DEPTH + n % SIDE * 2 + k % 2];
                        a.to_f32() * b.to_f32()
                    };
                    let steps = (0..runs.len()).flat_map(|s| (0..DEPTH).map(move |k| (s, k)));
                    *sum = if fresh { 0.0 } else { *sum } + steps.map(product).sum::<f32>();
                }
            }
            let steps: Vec<Step> = runs.iter().zip(b.as_chunks().0).map(|(&run, b)| Step { run, b }).collect();
            let c = &mut c;
            let product = Product { a: &a, a_row, tiles: &places, steps: &steps, next: 0, c, c_row, columns, fresh };
            Tiles::shaped(rows).multiply(product);
            assert!(*c == want, "{tiles} tiles of {rows} rows, {columns} columns, fresh {fresh}");
        }
    }
}
