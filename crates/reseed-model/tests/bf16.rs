//! In bf16 the model is off by what its roundings explain, no more and no less.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use reseed_cpu::CpuOps;
use reseed_ops::{DType, Precision, relative_error};
use reseed_testing::golden::{SMALL, VaeGolden, run_all};

#[test]
fn goldens_in_bf16_are_off_by_their_roundings() {
    let ops = CpuOps::new(DType::Bf16, Some(2)).unwrap();
    run_all(&ops, SMALL.iter().map(|name| VaeGolden::open(name)).collect(), |golden, result| {
        let (name, error) = (&golden.name, relative_error(&golden.output.values, &result));
        let allowed = golden.allowed(Precision::Bf16);
        assert!(error <= allowed, "{name}: relative error {error:.2e}, allowed {allowed:.2e}");
        // The output alone was rounded once, which values just below a power of two show half as much; a run that shows
        // less was not in bf16.
        let once = f64::from(DType::Bf16.rounding()) / 3f64.sqrt();
        assert!(error >= once / 2.0, "{name}: relative error {error:.2e} is too good for bf16");
    });
}
