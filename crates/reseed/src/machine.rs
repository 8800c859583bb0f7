//! The devices and tools of this machine.

use std::path::PathBuf;

use reseed_cpu::{CpuOps, Level};
use reseed_ops::{DType, Device};

use crate::devices::{GpuInfo, Tuning, auto, gpus, kernel_stamp, tuning};
use crate::error::Result;
use crate::memory;

/// The optional parts of this library that the build has, by the names of their features.
pub fn features() -> Vec<&'static str> {
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        ("download", cfg!(feature = "download")),
        ("ffmpeg", cfg!(feature = "ffmpeg")),
    ];
    all.iter().filter(|(_, present)| *present).map(|(name, _)| *name).collect()
}

/// What this machine has, or why something was not found.
pub struct Machine {
    /// What `auto` stands for.
    pub device: &'static str,
    /// The CPU, in words.
    pub cpu: String,
    /// The type that suits the CPU.
    pub dtype: DType,
    /// The levels of its kernels.
    pub levels: Vec<String>,
    /// The GPUs.
    pub gpus: std::result::Result<Vec<GpuInfo>, String>,
    /// Identifies the embedded kernels.
    pub kernels: Option<&'static str>,
    /// The state of measured kernels.
    pub tuning: Tuning,
    /// ffmpeg.
    pub ffmpeg: std::result::Result<PathBuf, String>,
    /// Bytes of host memory.
    pub memory: Option<usize>,
}

impl Machine {
    /// Looks at this machine.
    pub fn detect() -> Result<Machine> {
        let dtype = Level::detect()?.dtype();
        Ok(Machine {
            device: auto(),
            cpu: CpuOps::new(dtype, None)?.name(),
            dtype,
            levels: Level::available().map(|level| level.to_string()).collect(),
            gpus: gpus().map_err(|error| error.to_string()),
            kernels: kernel_stamp(),
            tuning: tuning(),
            ffmpeg: reseed_media::ffmpeg_path().map_err(|error| error.to_string()),
            memory: memory::machine(),
        })
    }

    /// cuBLASLt and the record of measured kernels, in words.
    pub fn tuning(&self) -> String {
        let Tuning { library, measured, record } = &self.tuning;
        let measured = match measured {
            Ok((0, _)) => "nothing measured yet".to_string(),
            Ok((products, 1)) => format!("{products} products measured on one GPU, {}", record.display()),
            Ok((products, gpus)) => format!("{products} products measured on {gpus} GPUs, {}", record.display()),
            Err(reason) => reason.clone(),
        };
        format!("{}; {measured}", library.as_ref().unwrap_or_else(|reason| reason))
    }
}
