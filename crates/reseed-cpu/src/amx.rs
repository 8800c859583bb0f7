//! Kernels on AMX tiles: bf16 operands, f32 sums. A tile is 16 rows of 64 bytes.
//!
//! `tile.rs` holds the instructions; around it convolutions (`sums.rs`, `pairs.rs`), linear layers and attention lay out their
//! operands so that a tile's rows stand one cache line apart.

pub mod attention;
pub mod finish;
pub mod group_norm;
mod layout;
pub mod linear;
pub mod pairs;
pub mod sums;
mod tile;
pub mod weights;

pub use tile::{available, spin};

/// Channels of one step: two for each of a tile's rows.
pub const DEPTH: usize = 32;
/// Rows of a tile, and columns of one.
pub const SIDE: usize = 16;
/// Columns that are computed together: two tiles.
pub const PANEL: usize = 2 * SIDE;

/// Says why a test of tiles has nothing to test, and whether it has.
#[cfg(test)]
fn skipped() -> bool {
    use std::io::Write;
    if !available() {
        let _ = writeln!(std::io::stderr(), "skipped: this machine has no AMX, or its system does not allow it");
    }
    !available()
}
