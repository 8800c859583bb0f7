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
    /// The output.
    pub output: String,
    /// The model.
    pub model: String,
    /// The device that runs it, or that it was sent to.
    pub device: Option<String>,
    /// The settings, as they were sent.
    #[schema(value_type = Object)]
    pub settings: Value,
    /// Width and height of the input.
    pub input_size: [usize; 2],
    /// Width and height of the output.
    pub output_size: [usize; 2],
    /// How far it is.
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<JobError>,
    /// When it was accepted, in seconds since 1970.
    pub created_at: f64,
    /// When its state changed, in seconds since 1970.
    pub changed_at: f64,
}
