//! Every op against its definition, on the first card of this machine.

mod cases;

use std::io::Write;

use reseed_cuda::CudaOps;
use reseed_ops::{CpuOps, DType, Error};

fn conforms(dtype: DType) {
    let cuda = match CudaOps::new(0, dtype) {
        Ok(cuda) => cuda,
        Err(Error::NoDevice { reason }) => {
            // Past the test runner, which would keep it to itself.
            let _ = writeln!(std::io::stderr(), "skipped {dtype} on cuda: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let found = cases::disagreements(&cuda, dtype).expect("every op runs");
    let found: Vec<String> = found.iter().map(|d| d.to_string()).collect();
    assert!(found.is_empty(), "{dtype}:\n{}", found.join("\n"));
}

#[test]
fn f32_conforms() {
    conforms(DType::F32);
}

#[test]
fn f16_conforms() {
    conforms(DType::F16);
}

#[test]
fn bf16_conforms() {
    conforms(DType::Bf16);
}

#[test]
fn the_cases_hold_on_the_processor() {
    let cpu = CpuOps::new(DType::F32, None).unwrap();
    let found = cases::disagreements(&cpu, DType::F32).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
