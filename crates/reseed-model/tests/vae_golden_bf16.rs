//! The VAE in bf16 against golden tests: the error is within the bound of bf16 rounding and not below it.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::CpuOps;
use reseed_ops::{DType, Precision, relative_error};
use reseed_testing::golden::{SMALL, VaeGolden, run_all};

#[test]
fn error_in_bf16_matches_the_rounding_of_bf16() {
    let ops = CpuOps::new(DType::Bf16, Some(2)).unwrap();
    run_all(&ops, SMALL.iter().map(|name| VaeGolden::open(name)).collect(), |golden, result| {
        let (name, error) = (&golden.name, relative_error(&golden.output.values, &result));
        let allowed = golden.allowed(Precision::Bf16);
        assert!(error <= allowed, "{name}: relative error {error:.2e}, allowed {allowed:.2e}");
        // The output is rounded at least once. Values just below a power of two show half of that error. A smaller
        // error means that the run was not in bf16.
        let one_rounding = f64::from(DType::Bf16.rounding()) / 3f64.sqrt();
        assert!(error >= one_rounding / 2.0, "{name}: relative error {error:.2e} is too small for bf16");
    });
}
