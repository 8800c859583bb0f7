//! The machine: the instruction sets of its CPU and its memory.

pub mod buffer;
pub mod element;
pub mod level;
pub mod memory;
pub mod tile_support;
