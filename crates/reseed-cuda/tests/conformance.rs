//! Every op against its definition, on the first card of this machine.

mod cases;

use std::io::Write;

use reseed_cuda::CudaOps;
use reseed_ops::{CpuOps, DType, Error, Precision};

fn conforms(precision: Precision) {
    let cuda = match CudaOps::new(0, precision) {
        Ok(cuda) => cuda,
        Err(Error::NoDevice { reason }) => {
            // Past the test runner, which would keep it to itself.
            let _ = writeln!(std::io::stderr(), "skipped {precision} on cuda: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let found = cases::disagreements(&cuda).expect("every op runs");
    let found: Vec<String> = found.iter().map(|d| d.to_string()).collect();
    assert!(found.is_empty(), "{precision}:\n{}", found.join("\n"));
}

#[test]
fn f32_conforms() {
    conforms(Precision::F32);
}

#[test]
fn tf32_conforms() {
    conforms(Precision::Tf32);
}

#[test]
fn f16_conforms() {
    conforms(Precision::F16);
}

#[test]
fn bf16_conforms() {
    conforms(Precision::Bf16);
}

#[test]
fn the_cases_hold_on_the_processor() {
    let cpu = CpuOps::new(DType::F32, None).unwrap();
    let found = cases::disagreements(&cpu).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
