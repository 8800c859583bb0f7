//! Building blocks on SIMD registers. The kernels on tiles and the ops use them.

pub mod blocked;
pub mod blocks;
pub mod convert;
pub mod dispatch;
pub mod gemm;
pub mod heads;
pub mod input_cache;
pub mod output;
pub mod panels;
pub mod region;
pub mod region_sums;
pub mod stats;
pub mod transpose;
pub mod vector;
pub mod winograd;
mod winograd_axis;
pub mod winograd_phases;
mod winograd_phases_transforms;
pub mod winograd_planes;
mod winograd_planes_transforms;
