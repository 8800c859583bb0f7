//! Kernels on AMX tiles: bf16 operands, f32 sums.
//!
//! `tile.rs` runs the tile instructions. Convolutions (`conv.rs`, `winograd.rs`), linear layers and attention lay out
//! their operands so that the rows of a tile start one cache line apart. `output.rs` and `group_norm.rs` use the
//! AVX-512 bf16 instructions that every CPU with AMX has.

pub mod attention;
pub mod conv;
pub mod group_norm;
mod layout;
pub mod linear;
pub mod output;
pub mod shape;
pub mod tile;
mod tile_asm;
pub mod weights;
pub mod winograd;
