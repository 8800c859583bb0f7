//! Not part of the public interface: what the benchmarks of the command line, the golden tests and the test support of
//! this workspace need beyond it. May change in any version.

// The crates below, so that the command line depends on this crate alone.
pub use reseed_cpu as cpu;
pub use reseed_model as model;
pub use reseed_ops as ops;

// Stages of the pipeline and their parts, for golden tests.
pub use crate::batch_store::{BatchStore, Turn};
pub use crate::checkpoint::{Checkpoint, Recorder};
pub use crate::fallback::{Fallback, VaeFallback, WideVae};
pub use crate::finish::{Finisher, frame_spec};
pub use crate::input_frame::{DeviceInput, InputFrame};
pub use crate::networks::{NetworkResidency, Networks, Transformer};
pub use crate::part::{ClipInput, Part};
pub use crate::run_plan::{Replan, Replanner, RunPlan, VaePlan};
pub use crate::step::{Model, Step};
pub use crate::upscaler::{Lane, Upscaler};
pub use crate::view::View;

// Devices and plans of one network, for benchmarks.
pub use crate::bytes::Bytes;
pub use crate::devices::{
    AUTO, ComputeOptions, DeviceHandle, Gpu, GpuInfo, Tuning, auto, cpu_precision, gpu_free_bytes, gpus, kernel_stamp,
    open, transformer, tuning,
};
pub use crate::job::refuse_same_file;
pub use crate::machine::{Machine, features};
pub use crate::models::weights::{Parts, Weights, vae_weights};
pub use crate::paths::data as data_folder;
pub use crate::planner::clip::{ClipPlan, CoderClip, Direction, MARGIN, reserve};
pub use crate::session::{ClipEstimate, Roundtrip, TensorClip, load_coder};
pub use crate::threads::most_threads;

/// Reads the journal in a folder as `--resume` does, with frames of so many values, for fuzzing. Returns the finished
/// frames.
pub fn read_journal(folder: &std::path::Path, values: usize) -> crate::Result<usize> {
    let Some((_, earlier)) = crate::job::journal::Journal::open(folder)? else { return Ok(0) };
    // Settings that cannot be parsed are `None`.
    let _ = (earlier.record.settings(None), earlier.record.video(), earlier.has_work());
    Ok(earlier.point(folder, values)?.frames)
}

// Modules of stages, by their names.
/// The alpha channel.
pub mod alpha {
    pub use crate::alpha::*;
}
/// Batches.
pub mod batch {
    pub use crate::batch::*;
}
/// Cross-fades.
pub mod join {
    pub use crate::join::*;
}
/// The low band.
pub mod low_band {
    pub use crate::low_band::*;
}
/// Memory of the process.
pub mod memory {
    pub use crate::memory::*;
}
/// Noise.
pub mod noise {
    pub use crate::noise::*;
}
/// Quality of results.
pub mod quality {
    pub use crate::quality::*;
}
/// Resampling.
pub mod resize {
    pub use crate::resize::*;
}
