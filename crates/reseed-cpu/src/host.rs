//! The machine: the instruction sets of its CPU and its memory.

use rayon::prelude::*;

pub mod buffer;
pub mod element;
pub mod level;
pub mod memory;
pub mod tile_support;

/// Calls `work` with every index below `count`, on the threads of the pool that runs this. One type for all work: the
/// code that divides it is compiled once.
pub fn for_each(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(work);
}
