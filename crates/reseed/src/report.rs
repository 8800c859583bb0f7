//! What a finished job reports.

use std::time::{Duration, Instant};

use reseed_ops::{Ceiling, CopyTime, Record};

use crate::planner::JobPlan;

/// Time that each stage worked, without its waits. Stages overlap, so that their sum may exceed the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Reading frames and detecting shots.
    pub read: Duration,
    /// Resizing for the networks.
    pub resize: Duration,
    /// Frames to latents.
    pub encode: Duration,
    /// The step of the transformer.
    pub upscale: Duration,
    /// Latents to frames.
    pub decode: Duration,
    /// Cross-fades, colours, alpha.
    pub post_process: Duration,
    /// Writing frames.
    pub write: Duration,
    /// Wall-clock time from start to end.
    pub total: Duration,
}

/// What a finished job reports.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Frames written.
    pub frames: usize,
    /// Batches computed.
    pub batches: usize,
    /// Shots found; one without shot detection.
    pub shots: usize,
    /// Time by stage.
    pub times: Times,
    /// Copies between host and device during the steps of the transformer, whose layers may be streamed.
    pub streaming: CopyTime,
    /// Most bytes of host memory, where the system knows.
    pub peak_memory: Option<usize>,
    /// Most bytes of host memory above those of the loaded weights.
    pub peak_above_weights: Option<usize>,
    /// Most bytes of GPU memory, with the driver's own.
    pub gpu_peak: Option<usize>,
    /// Whether an earlier job had loaded the networks.
    pub networks_reused: bool,
    /// The plan, where networks ran.
    pub plan: Option<JobPlan>,
    /// Time by op, where the session profiles.
    pub profile: Option<Profile>,
}

/// Time by op and network stage.
#[derive(Clone, Debug)]
pub struct Profile {
    /// One record per stage and op.
    pub records: Vec<Record>,
    /// The measured peak rates of the device.
    pub ceiling: Ceiling,
}

impl Report {
    /// Frames per second from start to end.
    pub fn fps(&self) -> f64 {
        self.frames as f64 / self.times.total.as_secs_f64().max(1e-9)
    }
}

/// Adds the time that `work` takes to `sum`.
pub(crate) fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *sum += start.elapsed();
    result
}
