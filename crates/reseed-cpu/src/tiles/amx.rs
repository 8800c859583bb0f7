//! The tile instructions of AMX in assembly, because stable Rust has no intrinsics for them.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use linux::{configure, multiply, release, spin};

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use missing::{configure, multiply, release, spin};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod linux {
    use std::arch::asm;

    use crate::tiles::shape::{SIDE, STEP};
    use crate::tiles::tile::Product;

    /// The operand of `ldtilecfg`.
    #[repr(C, align(64))]
    struct TileConfig {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Configures the tile registers of this thread: `rows` rows for A (tmm4, tmm5) and C (tmm0 to tmm3), 16 for B
    /// (tmm6, tmm7).
    ///
    /// # Safety
    /// [`crate::host::tile_support::available`] must hold, and `rows` must be between 1 and 16.
    pub unsafe fn configure(rows: u8) {
        let mut config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(64);
        config.rows[..6].fill(rows);
        config.rows[6..8].fill(SIDE as u8);
        // SAFETY: the caller guarantees AMX. The operand is 64 aligned bytes, and the values are a valid configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly)) }
    }

    /// Returns the tile registers to their initial state, so that a context switch need not save them.
    ///
    /// # Safety
    /// [`crate::host::tile_support::available`] must hold.
    pub unsafe fn release() {
        // SAFETY: the caller guarantees AMX.
        unsafe { asm!("tilerelease", options(nostack, nomem)) }
    }

    /// Multiplies 4 pairs of tiles `rounds` times.
    ///
    /// # Safety
    /// [`configure`] must have run on this thread since the last [`release`]. `rounds` must not be 0.
    pub unsafe fn spin(rounds: usize) {
        // SAFETY: the caller guarantees configured registers. The code touches nothing but registers.
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

    /// Addresses of the sums. The assembly below reads the fields by offset.
    #[repr(C)]
    struct Sums {
        /// 1 to add to C, 0 to overwrite it.
        accumulate: usize,
        /// First row of each tile.
        c: [*mut f32; 2],
        /// Stride between rows in bytes.
        row: usize,
    }

    /// Defines a product of one or two tiles of rows by one or two tiles of columns. Each step prefetches a part of the
    /// next product's weights into the second-level cache, because the tiles would otherwise wait for them.
    macro_rules! block {
        ($name:ident: $zero:literal, $load:literal, $step:literal, $store:literal) => {
            /// # Safety
            /// As for [`multiply`]. `a` and `sums.c` point at the first row of each tile in `p.a` and `p.c`.
            unsafe fn $name(p: &Product, a: [*const u8; 2], ahead: isize, sums: &Sums) {
                // SAFETY: the caller guarantees the addresses and the configured registers. Offsets and strides of A
                // count elements of two bytes. A prefetch may name any address.
                unsafe {
                    asm!(
                        "mov {at}, [{sums} + 8]",
                        "mov {b}, [{sums} + 16]",
                        "mov {offset}, [{sums} + 24]",
                        "cmp qword ptr [{sums}], 0",
                        "jne 2f",
                        $zero,
                        "jmp 3f",
                        "2:",
                        $load,
                        "3:",
                        "mov {offset}, [{steps}]",
                        "mov {b}, [{steps} + 8]",
                        "lea {at}, [{a0} + 2 * {offset}]",
                        "lea {offset}, [{a1} + 2 * {offset}]",
                        $step,
                        "prefetcht1 [{b} + {ahead}]",
                        "prefetcht1 [{b} + {ahead} + 64]",
                        "add {steps}, 16",
                        "dec {count}",
                        "jnz 3b",
                        "mov {at}, [{sums} + 8]",
                        "mov {b}, [{sums} + 16]",
                        "mov {offset}, [{sums} + 24]",
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
                        offset = out(reg) _,
                        at = out(reg) _,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    )
                }
            }
        };
    }

    // A core sometimes executes these instructions in order and then waits for every load. Prefetching half of the next
    // step's weights into the first-level cache avoids the wait, and costs nothing at other times.
    block!(two_by_two:
        "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3",
        "tileloadd tmm0, [{at} + {offset}]\n\
         tileloadd tmm1, [{at} + {offset} + 64]\n\
         tileloadd tmm2, [{b} + {offset}]\n\
         tileloadd tmm3, [{b} + {offset} + 64]",
        "tileloadd tmm4, [{at} + {a_row}]\nprefetcht0 [{b} + 3072]\nprefetcht0 [{b} + 3136]\n\
         tileloadd tmm6, [{b} + {b_row}]\nprefetcht0 [{b} + 3200]\nprefetcht0 [{b} + 3264]\n\
         tileloadd tmm7, [{b} + {b_row} + 1024]\nprefetcht0 [{b} + 3328]\nprefetcht0 [{b} + 3392]\n\
         tileloadd tmm5, [{offset} + {a_row}]\nprefetcht0 [{b} + 3456]\nprefetcht0 [{b} + 3520]\n\
         tdpbf16ps tmm0, tmm4, tmm6\nprefetcht0 [{b} + 3584]\nprefetcht0 [{b} + 3648]\n\
         tdpbf16ps tmm1, tmm4, tmm7\nprefetcht0 [{b} + 3712]\nprefetcht0 [{b} + 3776]\n\
         tdpbf16ps tmm2, tmm5, tmm6\nprefetcht0 [{b} + 3840]\nprefetcht0 [{b} + 3904]\n\
         tdpbf16ps tmm3, tmm5, tmm7\nprefetcht0 [{b} + 3968]\nprefetcht0 [{b} + 4032]",
        "tilestored [{at} + {offset}], tmm0\n\
         tilestored [{at} + {offset} + 64], tmm1\n\
         tilestored [{b} + {offset}], tmm2\n\
         tilestored [{b} + {offset} + 64], tmm3");

    block!(two_by_one:
        "tilezero tmm0\ntilezero tmm2",
        "tileloadd tmm0, [{at} + {offset}]\ntileloadd tmm2, [{b} + {offset}]",
        "tileloadd tmm6, [{b} + {b_row}]\n\
         tileloadd tmm4, [{at} + {a_row}]\n\
         tdpbf16ps tmm0, tmm4, tmm6\n\
         tileloadd tmm5, [{offset} + {a_row}]\n\
         tdpbf16ps tmm2, tmm5, tmm6",
        "tilestored [{at} + {offset}], tmm0\ntilestored [{b} + {offset}], tmm2");

    block!(one_by_two:
        "tilezero tmm0\ntilezero tmm1",
        "tileloadd tmm0, [{at} + {offset}]\ntileloadd tmm1, [{at} + {offset} + 64]",
        "tileloadd tmm6, [{b} + {b_row}]\n\
         tileloadd tmm4, [{at} + {a_row}]\n\
         tdpbf16ps tmm0, tmm4, tmm6\n\
         tileloadd tmm7, [{b} + {b_row} + 1024]\n\
         tdpbf16ps tmm1, tmm4, tmm7",
        "tilestored [{at} + {offset}], tmm0\ntilestored [{at} + {offset} + 64], tmm1");

    block!(one_by_one:
        "tilezero tmm0",
        "tileloadd tmm0, [{at} + {offset}]",
        "tileloadd tmm6, [{b} + {b_row}]\n\
         tileloadd tmm4, [{at} + {a_row}]\n\
         tdpbf16ps tmm0, tmm4, tmm6",
        "tilestored [{at} + {offset}], tmm0");

    /// Bytes of the next product's weights that one block of tiles prefetches at each step.
    const PREFETCH_BYTES: usize = 128;

    /// Computes a product.
    ///
    /// # Safety
    /// [`configure`] must have set the registers of this thread to `_rows` rows. That many rows of all tiles and steps
    /// must lie in `p.a` and in `p.c`. `p.steps` must not be empty.
    pub unsafe fn multiply(p: Product, _rows: usize) {
        let (wide, c) = (p.columns > SIDE, p.c.as_mut_ptr());
        for (i, tiles) in p.tiles.chunks(2).enumerate() {
            let [first, second] = [tiles[0], tiles[tiles.len() - 1]];
            let ahead = 2 * p.next + (i * PREFETCH_BYTES % (2 * STEP)) as isize;
            // SAFETY: the caller guarantees that all addresses lie in `p.a` and `p.c` and that the registers are
            // configured.
            unsafe {
                let a = [first, second].map(|tile| p.a.as_ptr().add(tile.a).cast());
                let c = [first, second].map(|tile| c.add(tile.row * p.c_row));
                let sums = Sums { accumulate: usize::from(p.accumulate), c, row: 4 * p.c_row };
                match (tiles.len(), wide) {
                    (2, true) => two_by_two(&p, a, ahead, &sums),
                    (2, false) => two_by_one(&p, a, ahead, &sums),
                    (_, true) => one_by_two(&p, a, ahead, &sums),
                    (_, false) => one_by_one(&p, a, ahead, &sums),
                }
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod missing {
    use crate::tiles::tile::Product;

    /// # Safety
    /// None: this target has no AMX, and a call panics.
    pub unsafe fn configure(_: u8) {
        unreachable!("AMX on a target without it");
    }

    /// # Safety
    /// None: this target has no AMX, and a call panics.
    pub unsafe fn release() {
        unreachable!("AMX on a target without it");
    }

    /// # Safety
    /// None: this target has no AMX, and a call panics.
    pub unsafe fn spin(_: usize) {
        unreachable!("AMX on a target without it");
    }

    /// # Safety
    /// None: this target has no AMX, and a call panics.
    pub unsafe fn multiply(Product { accumulate: _accumulate, next: _next, .. }: Product, _rows: usize) {
        unreachable!("AMX on a target without it");
    }
}
