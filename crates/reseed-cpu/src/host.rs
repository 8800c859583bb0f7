//! The machine: the instruction sets of its CPU and its memory.

pub mod amx_support;
pub mod buffer;
pub mod element;
pub mod level;
pub mod memory;
