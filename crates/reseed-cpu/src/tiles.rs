//! Kernels on tiles: bf16 operands, f32 sums. A tile is a small matrix that the CPU multiplies by another: in the
//! registers of AMX, or with `bfmmla` of 64-bit ARM.
//!
//! `tile.rs` multiplies tiles, by `amx.rs` or `bfmmla.rs`. Convolutions (`conv.rs`, `winograd.rs`), linear layers and
//! attention lay out their operands so that the rows of a tile start one cache line apart. `output.rs` and
//! `group_norm.rs` use the AVX-512 bf16 instructions that every CPU with AMX has; other CPUs use the plain loops of
//! `simd`.

#[cfg(not(target_arch = "aarch64"))]
mod amx;
pub mod attention;
#[cfg(target_arch = "aarch64")]
mod bfmmla;
pub mod conv;
pub mod group_norm;
mod layout;
pub mod linear;
pub mod output;
pub mod shape;
pub mod tile;
pub mod weights;
pub mod winograd;
