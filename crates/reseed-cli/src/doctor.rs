//! `reseed doctor`: the devices and tools of this machine.

use reseed::internals::cpu::{CpuOps, Level};
use reseed::internals::ops::Device;
use reseed::internals::{GpuInfo, Tuning, auto, gpus, kernel_stamp, memory, tuning};
use reseed::media::ffmpeg_path;

use crate::failure::Result;
use crate::report::bytes;

pub fn run() -> Result<()> {
    let dtype = Level::detect()?.dtype();
    let cpu = CpuOps::new(dtype, None)?;
    let levels: Vec<String> = Level::available().map(|level| level.to_string()).collect();
    let kernels = kernel_stamp().unwrap_or("none");
    say!("reseed  {}, commit {}, kernels {kernels}", env!("CARGO_PKG_VERSION"), env!("RESEED_COMMIT"));
    say!("device  {} by default (--device)", auto());
    say!("cpu     {}, {dtype} by default", cpu.name());
    say!("levels  {} (cap with RESEED_CPU)", levels.join(", "));
    match gpus() {
        Ok(gpus) => gpus.iter().for_each(gpu),
        Err(error) => say!("cuda    {error}"),
    }
    say!("tuning  {}", tuning_line(&tuning()));
    match ffmpeg_path() {
        Ok(path) => say!("ffmpeg  {}", path.display()),
        Err(error) => say!("ffmpeg  {error}"),
    }
    say!("memory  {}", memory::machine().map_or("unknown".into(), bytes));
    Ok(())
}

fn gpu(gpu: &GpuInfo) {
    let GpuInfo { ordinal, name, capability, memory, driver } = gpu;
    let (capability, driver) = (format!("{}.{}", capability.0, capability.1), format!("{}.{}", driver.0, driver.1));
    say!("cuda:{ordinal}  {name}, compute capability {capability}, {}, driver for CUDA {driver}", bytes(*memory));
}

/// cuBLASLt and the record of measured kernels.
fn tuning_line(Tuning { library, measured, record }: &Tuning) -> String {
    let measured = match measured {
        Ok((0, _)) => "nothing measured yet (--tune on)".to_string(),
        Ok((products, 1)) => format!("{products} products measured on one GPU, {}", record.display()),
        Ok((products, gpus)) => format!("{products} products measured on {gpus} GPUs, {}", record.display()),
        Err(reason) => reason.clone(),
    };
    format!("{}; {measured}", library.as_ref().unwrap_or_else(|reason| reason))
}
