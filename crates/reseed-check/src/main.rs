//! Checks and times the CUDA device on a machine that has a GPU and no compiler.
//!
//! ```text
//! reseed-check [TYPE]... [MODE]                     every op, and the work on frames, against its reference
//! reseed-check layers [TYPE]... [MODE]              the main layers once, without a comparison, for slow tools
//! reseed-check main|bench [TYPE]... [MODE]          rates of the main layers, or of all layers
//! reseed-check library [TYPE]...                    linear layers compared with cuBLASLt
//! reseed-check quant [TYPE]...                      times of quantised linear layers
//! reseed-check int8 [TYPE]...                       linear layers with 8-bit products compared with floats
//! reseed-check goldens [cpu] FOLDER... [TYPE]... [MODE]   golden tests of networks and jobs
//! ```
//!
//! A type is f32, tf32, f16 or bf16; the default is all. A mode is exact, fast, int8 or reference, as of the option
//! `--precision` of `reseed`. Rates are effective (arithmetic of the direct algorithm)
//! and executed (arithmetic of the kernel). The last line is the number of disagreements; the exit status is 0 without
//! any.
#![allow(clippy::print_stdout, reason = "its report")]

mod arrays;
mod goldens;
mod rates;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use goldens::{Devices, Goldens};
use reseed_cpu::{CpuOps, matmul};
use reseed_cuda::{CudaOps, devices};
use reseed_media::{Depth, Frame, Size};
use reseed_ops::{Device, FrameLoader, FrameOps, MathMode, Precision, Result, Timing};
use reseed_testing::frames::{FrameDevice, Planes};

const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

/// How the GPU computes.
#[derive(Clone, Copy)]
struct Compute {
    precision: Precision,
    math: MathMode,
}

impl Compute {
    /// The first GPU.
    fn open(self) -> Result<CudaOps> {
        Ok(CudaOps::new(0, self.precision, matmul)?.with_math(self.math))
    }
}

/// A check; returns its number of disagreements.
type Check = fn(Compute) -> Result<usize>;

fn main() -> ExitCode {
    let (mut check, mut precisions, mut folders, mut cpu) = (conformance as Check, Vec::new(), None, false);
    let mut math = MathMode::default();
    for word in std::env::args().skip(1) {
        if let Ok(chosen) = word.parse() {
            math = chosen;
            continue;
        }
        match (ALL.into_iter().find(|precision| precision.to_string() == word), &mut folders) {
            (Some(precision), _) => precisions.push(precision),
            (None, None) if word == "layers" => check = layers,
            (None, None) if word == "bench" => check = rates::all_layers,
            (None, None) if word == "main" => check = rates::main_layers,
            (None, None) if word == "library" => check = rates::library,
            (None, None) if word == "quant" => check = rates::quantised,
            (None, None) if word == "int8" => check = rates::int8,
            (None, folders @ None) if word == "goldens" => *folders = Some(Vec::new()),
            (None, Some(_)) if word == "cpu" => cpu = true,
            (None, Some(folders)) => folders.push(PathBuf::from(word)),
            (None, None) => {
                println!(
                    "unknown argument {word}; use layers, main, bench, library, quant, int8, goldens, a type or a mode"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let mut disagreements = 0;
    for precision in if precisions.is_empty() { ALL.to_vec() } else { precisions } {
        let compute = Compute { precision, math };
        let result = match &folders {
            Some(folders) => golden_tests(compute, folders, cpu),
            None => check(compute),
        };
        disagreements += result.unwrap_or_else(|error| {
            println!("{precision}: {error}");
            1
        });
    }
    println!("{disagreements} disagreements");
    if disagreements == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every op against its reference.
fn conformance(compute: Compute) -> Result<usize> {
    for device in devices()? {
        println!("{device:?}");
    }
    let (cuda, precision) = (compute.open()?, compute.precision);
    println!("{precision} on {}, {}, {}", cuda.name(), cuda.kernels(), cuda.convolutions());
    let found = reseed_testing::conformance::disagreements(&cuda)?;
    for disagreement in &found {
        println!("{precision}: {disagreement}");
    }
    println!("{precision}: {} disagreements, peak {} bytes", found.len(), cuda.peak_bytes());
    Ok(found.len() + frames(&Arc::new(cuda))?)
}

/// The main layers once.
fn layers(compute: Compute) -> Result<usize> {
    let cuda = compute.open()?;
    println!("{} on {}, {}, {}", compute.precision, cuda.name(), cuda.kernels(), cuda.convolutions());
    reseed_ops::conformance::main_layers(&cuda)?;
    cuda.finish().map(|()| 0)
}

/// The work on frames against the host.
fn frames(cuda: &Arc<CudaOps>) -> Result<usize> {
    let frames = |spec| -> reseed_ops::Result<Box<dyn FrameOps>> { Ok(Box::new(cuda.frames(spec)?)) };
    let loader = |spec: &_| -> reseed_ops::Result<Box<dyn FrameLoader>> { Ok(Box::new(cuda.loader(spec)?)) };
    let samples = |frame: &Frame, planes: Planes| arrays::samples(cuda, frame, planes);
    let result = |size: Size, depth: Depth| arrays::result(cuda, size, depth);
    let device = FrameDevice { ops: &**cuda, frames: &frames, loader: &loader, samples: &samples, result: &result };
    let found = reseed_testing::frames::disagreements(&device)?;
    for disagreement in &found {
        println!("frames: {disagreement}");
    }
    println!("{} frames: {} disagreements", cuda.dtype(), found.len());
    Ok(found.len())
}

/// Golden tests in the folders, on the first GPU or on the CPU.
fn golden_tests(compute: Compute, folders: &[PathBuf], cpu: bool) -> Result<usize> {
    let (goldens, precision) = (Goldens::find(folders)?, compute.precision);
    if goldens.is_empty() {
        println!("golden {precision}: no golden files in {folders:?}");
        return Ok(1);
    }
    // As in jobs: the transformer computes in bf16 where the VAE computes in f16.
    let other = if precision == Precision::F16 { Precision::Bf16 } else { precision };
    match (cpu, precision) {
        (false, _) => {
            let cuda = compute.open()?;
            let networks = goldens.networks(&cuda)?;
            Ok(networks + goldens.jobs(Devices { vae: &cuda, transformer: &cuda.with_precision(other)? }))
        }
        // The CPU has no tf32.
        (true, Precision::Tf32) => Ok(0),
        (true, _) => {
            let [vae, transformer] = [precision, other].map(|precision| CpuOps::new(precision.dtype(), None));
            let (vae, transformer) = (&vae?, &transformer?);
            Ok(goldens.networks(vae)? + goldens.jobs(Devices { vae, transformer }))
        }
    }
}
