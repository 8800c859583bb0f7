//! Every level of the CPU device against the reference level.
#![allow(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::io::Write;

use reseed_cpu::{CpuOps, Level};
use reseed_ops::{DType, MathMode, conformance};

fn check(dtype: DType, math: MathMode) {
    let reference = CpuOps::at(Level::Reference, dtype, Some(2)).unwrap().with_math(math);
    // Tiles are products of bf16 alone.
    let levels = Level::ALL
        .iter()
        .copied()
        .filter(|&level| dtype == DType::Bf16 || ![Level::Amx, Level::NeonBf16].contains(&level));
    for level in levels.filter(|&level| level != Level::Reference) {
        if !Level::available().any(|have| have == level) {
            let why = "this CPU does not have it, or the operating system does not allow it";
            let _ = writeln!(std::io::stderr(), "skipped {level} {dtype}: {why}");
            continue;
        }
        let device = CpuOps::at(level, dtype, Some(2)).unwrap().with_math(math);
        let found = conformance::run(&reference, &device).unwrap();
        let found: Vec<String> = found.iter().map(|d| d.to_string()).collect();
        assert!(found.is_empty(), "{level} {dtype}:\n{}", found.join("\n"));
    }
}

#[test]
fn every_level_conforms_in_f32() {
    check(DType::F32, MathMode::Exact);
}

#[test]
fn every_level_conforms_in_bf16() {
    // The mode concerns layers that may multiply in 8 bits alone.
    check(DType::Bf16, MathMode::Fast);
}

#[test]
fn the_layers_for_slow_tools_run() {
    conformance::main_layers(&CpuOps::new(DType::F32, Some(2)).unwrap()).unwrap();
}
