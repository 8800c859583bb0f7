//! A job as clients see it.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::journal::{JobError, State};

/// How far a job is.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Progress {
    /// Frames of the input, where they are known.
    pub total: Option<usize>,
    /// Frames that are written.
    pub done: usize,
    /// Frames that are safe on disk.
    pub saved: usize,
    /// The part that is written, 0 to 100, where the number of frames is known.
    pub percent: Option<f64>,
    /// Batches that are written.
    pub batches: usize,
    /// Batches of the job, where the frames are known. Cuts between shots add some.
    pub batches_total: Option<usize>,
    /// Frames per second of this run.
    pub fps: Option<f64>,
    /// Seconds that are left.
    pub eta_seconds: Option<f64>,
    /// wait, encode, upscale or decode, while the job runs.
    pub phase: Option<&'static str>,
    /// What a user should know.
    pub warnings: Vec<String>,
}

/// A job as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct JobView {
    /// Names the job.
    pub id: String,
    /// Its state.
    pub state: State,
    /// Jobs before it in the queue, while it waits.
    pub position: Option<usize>,
    /// Whether it is still being stopped.
    pub stopping: bool,
    /// The input.
    pub input: String,
    /// Its file name.
    pub input_name: String,
    /// The output.
    pub output: String,
    /// Its file name.
    pub output_name: String,
    /// The upload that the input is.
    pub upload: Option<String>,
    /// The preset that the client chose.
    pub preset: Option<String>,
    /// The model.
    pub model: String,
    /// The device that runs it, or that it was sent to.
    pub device: Option<String>,
    /// The settings in force, those of the preset included.
    #[schema(value_type = Object)]
    pub settings: Value,
    /// Width and height of the input.
    pub input_size: [usize; 2],
    /// Width and height of the output.
    pub output_size: [usize; 2],
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Bytes of the output, when the job is done.
    pub output_bytes: Option<u64>,
    /// Frames per second of the input and of the output.
    pub frame_rate: f64,
    /// How long the result is shown, where that is known.
    pub duration_seconds: Option<f64>,
    /// Whether the input is a still image.
    pub is_still: bool,
    /// How far it is.
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<JobError>,
    /// When it was accepted, in seconds since 1970.
    pub created_at: f64,
    /// When its state changed, in seconds since 1970.
    pub changed_at: f64,
    /// When a device began with it, since the start of the server.
    pub started_at: Option<f64>,
}

impl Progress {
    /// The progress with its percentage.
    pub fn with_percent(mut self) -> Progress {
        let part = |total: usize| (100.0 * self.done as f64 / total.max(1) as f64).min(100.0);
        self.percent = self.total.map(part);
        self
    }
}
