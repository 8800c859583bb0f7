//! Every op against its definition, for a machine that has a card and no compiler.
#![allow(clippy::print_stdout, reason = "its report")]

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::process::ExitCode;

use reseed_cuda::{CudaOps, devices};
use reseed_ops::{DType, Ops, Result};

fn main() -> ExitCode {
    let mut wrong = 0;
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        match check(dtype) {
            Ok(count) => wrong += count,
            Err(error) => {
                println!("{dtype}: {error}");
                wrong += 1;
            }
        }
    }
    println!("{wrong} disagreements");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(dtype: DType) -> Result<usize> {
    for device in devices()? {
        println!("{device:?}");
    }
    let cuda = CudaOps::new(0, dtype)?;
    println!("{dtype} on {}", cuda.device());
    let found = cases::disagreements(&cuda, dtype)?;
    for disagreement in &found {
        println!("{dtype}: {disagreement}");
    }
    println!("{dtype}: {} disagreements, peak {} bytes", found.len(), cuda.peak_bytes());
    Ok(found.len())
}
