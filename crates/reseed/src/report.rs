//! What a job has to tell when it is done.

use std::time::{Duration, Instant};

use reseed_ops::CopyTime;

/// Time that each stage worked, not counting its waits. Stages run at the same time, so their sum may exceed the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Reading frames and looking for cuts.
    pub read: Duration,
    /// Resizing for the networks.
    pub resize: Duration,
    /// Pictures to latents.
    pub encode: Duration,
    /// The transformer's step.
    pub upscale: Duration,
    /// Latents to pictures.
    pub decode: Duration,
    /// Joining batches, colours, alpha.
    pub post_process: Duration,
    /// Writing frames.
    pub write: Duration,
    /// From start to end, as a clock on the wall sees it.
    pub total: Duration,
}

/// What a finished job has to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Frames written.
    pub frames: usize,
    /// Batches run.
    pub batches: usize,
    /// Shots found; one where nobody looked.
    pub shots: usize,
    /// Where the time went.
    pub times: Times,
    /// Copies between host and device during the transformer's steps: its layers, where they do not stay on the device.
    pub streaming: CopyTime,
    /// Most bytes of host memory that the process has taken, where the system tells.
    pub peak_memory: Option<usize>,
}

impl Report {
    /// Frames a second, from start to end.
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
