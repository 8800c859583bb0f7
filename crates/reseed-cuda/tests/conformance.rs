//! Every op against its definition, on the first GPU of this machine.

use std::io::Write;

use reseed_cpu::{CpuOps, matmul};
use reseed_cuda::CudaOps;
use reseed_ops::{DType, Error, MathMode, Precision};
use reseed_testing::conformance::disagreements;

fn conforms(precision: Precision, math: MathMode) {
    let cuda = match CudaOps::new(0, precision, matmul) {
        Ok(cuda) => cuda.with_math(math),
        Err(Error::NoDevice { reason }) => {
            // Written to stderr directly: the test runner hides the output of passing tests.
            let _ = writeln!(std::io::stderr(), "skipped {precision} on cuda: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let found = disagreements(&cuda).expect("every op runs");
    let found: Vec<String> = found.iter().map(|d| d.to_string()).collect();
    assert!(found.is_empty(), "{precision} {math}:\n{}", found.join("\n"));
}

#[test]
fn f32_conforms() {
    conforms(Precision::F32, MathMode::Exact);
}

#[test]
fn tf32_conforms() {
    conforms(Precision::Tf32, MathMode::Exact);
}

#[test]
fn f16_conforms() {
    MathMode::ALL.into_iter().for_each(|math| conforms(Precision::F16, math));
}

#[test]
fn bf16_conforms() {
    [MathMode::Exact, MathMode::Fast].into_iter().for_each(|math| conforms(Precision::Bf16, math));
}

#[test]
#[ignore = "takes half a minute; run `just long-tests`"]
fn the_cases_hold_on_the_cpu() {
    let cpu = CpuOps::new(DType::F32, None).unwrap();
    let found = disagreements(&cpu).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
