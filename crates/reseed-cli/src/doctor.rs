//! `reseed doctor`: the devices and tools of this machine.

use std::path::PathBuf;

use reseed::internals::cpu::{CpuOps, Level};
use reseed::internals::ops::Device;
use reseed::internals::{GpuInfo, Tuning, auto, gpus, kernel_stamp, memory, tuning};
use reseed::media::ffmpeg_path;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::failure::Result;
use crate::report::bytes;

pub fn run(args: &DoctorArgs) -> Result<()> {
    let dtype = Level::detect()?.dtype();
    let machine = Machine {
        cpu: CpuOps::new(dtype, None)?.name(),
        dtype: dtype.to_string(),
        levels: Level::available().map(|level| level.to_string()).collect(),
        gpus: gpus().map_err(|error| error.to_string()),
        tuning: tuning_line(&tuning()),
        ffmpeg: ffmpeg_path().map_err(|error| error.to_string()),
        memory: memory::machine(),
    };
    match args.json {
        true => say!("{}", machine.json()),
        false => machine.print(),
    }
    Ok(())
}

/// What was found, or why nothing was.
struct Machine {
    cpu: String,
    dtype: String,
    levels: Vec<String>,
    gpus: std::result::Result<Vec<GpuInfo>, String>,
    tuning: String,
    ffmpeg: std::result::Result<PathBuf, String>,
    memory: Option<usize>,
}

impl Machine {
    fn print(&self) {
        let kernels = kernel_stamp().unwrap_or("none");
        say!("reseed  {}, commit {}, kernels {kernels}", env!("CARGO_PKG_VERSION"), env!("RESEED_COMMIT"));
        say!("device  {} by default (--device)", auto());
        say!("cpu     {}, {} by default", self.cpu, self.dtype);
        say!("levels  {} (cap with RESEED_CPU)", self.levels.join(", "));
        match &self.gpus {
            Ok(gpus) => gpus.iter().for_each(print_gpu),
            Err(error) => say!("cuda    {error}"),
        }
        say!("tuning  {}", self.tuning);
        match &self.ffmpeg {
            Ok(path) => say!("ffmpeg  {}", path.display()),
            Err(error) => say!("ffmpeg  {error}"),
        }
        say!("memory  {}", self.memory.map_or("unknown".into(), bytes));
    }

    fn json(&self) -> Value {
        let gpus: Vec<Value> = self.gpus.iter().flatten().map(gpu_json).collect();
        json!({
            "event": "doctor", "version": env!("CARGO_PKG_VERSION"), "commit": env!("RESEED_COMMIT"),
            "kernels": kernel_stamp(), "device": auto(), "cpu": self.cpu, "cpu_dtype": self.dtype,
            "cpu_levels": self.levels, "gpus": gpus, "gpu_error": self.gpus.as_ref().err(), "tuning": self.tuning,
            "ffmpeg": self.ffmpeg.as_ref().ok().map(|path| path.to_string_lossy()),
            "ffmpeg_error": self.ffmpeg.as_ref().err(), "memory_bytes": self.memory,
        })
    }
}

fn print_gpu(gpu: &GpuInfo) {
    let GpuInfo { ordinal, name, capability, memory, driver } = gpu;
    let (capability, driver) = (format!("{}.{}", capability.0, capability.1), format!("{}.{}", driver.0, driver.1));
    say!("cuda:{ordinal}  {name}, compute capability {capability}, {}, driver for CUDA {driver}", bytes(*memory));
}

fn gpu_json(gpu: &GpuInfo) -> Value {
    let GpuInfo { ordinal, name, capability, memory, driver } = gpu;
    json!({
        "device": format!("cuda:{ordinal}"), "name": name, "memory_bytes": memory,
        "compute_capability": format!("{}.{}", capability.0, capability.1),
        "driver_cuda": format!("{}.{}", driver.0, driver.1),
    })
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
