//! The transformer against stored outputs of the published one.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop; errors are worth seeing"
)]

mod common;

use common::dit::{Golden, NAMES};
use reseed_model::Dit;
use reseed_ops::{CpuOps, DType, Level, relative_error};

/// Sums of a few hundred f32 products, a dozen times in a row.
const ALLOWED: f64 = 2e-5;

fn check(level: Level) {
    let ops = CpuOps::at(level, DType::F32, None).unwrap();
    for name in NAMES {
        let golden = Golden::open(name);
        let dit = Dit::load(&ops, &golden.source()).unwrap();
        assert_eq!(dit.config, golden.config);
        let error = relative_error(&golden.output.values, &golden.run(&ops, &dit));
        println!("{name} at {level}: {error:.2e}");
        assert!(error <= ALLOWED, "{name} at {level}: relative error {error:.2e}, allowed {ALLOWED:.2e}");
    }
}

#[test]
fn every_case_at_every_blocked_level() {
    Level::available().filter(|&level| level != Level::Reference).for_each(check);
}

#[test]
fn every_case_at_the_reference_level() {
    check(Level::Reference);
}
