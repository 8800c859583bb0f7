//! A job of the queue.

use std::path::Path;

use crate::journal::{Accepted, JobError, Record, State};
use crate::view::{JobView, Progress};

/// A job of the queue.
pub struct QueuedJob {
    pub accepted: Accepted,
    pub state: State,
    /// Whether a run has begun.
    pub started: bool,
    pub error: Option<JobError>,
    pub progress: Progress,
    /// When the state changed.
    pub at: f64,
    /// When a device began, in this run of the server.
    since: Option<f64>,
    /// Bytes of the output.
    pub bytes: Option<u64>,
    /// The device that runs it.
    device: Option<String>,
}

impl QueuedJob {
    pub fn new(accepted: Accepted) -> QueuedJob {
        let (total, batches_total) = (accepted.frames, accepted.batches);
        let progress = Progress { total, batches_total, ..Progress::default() };
        let (state, at) = (State::Queued, accepted.at);
        QueuedJob { accepted, state, started: false, error: None, progress, at, since: None, bytes: None, device: None }
    }

    /// The records that lead to this job.
    pub fn records(&self) -> Vec<Record> {
        let id = &self.accepted.id;
        let mut records = vec![Record::Accept(Box::new(self.accepted.clone()))];
        if self.started {
            records.push(Record::Start { id: id.clone() });
        }
        if !matches!(self.state, State::Queued | State::Running) {
            let frames = (self.state == State::Done).then_some(self.progress.done);
            let (state, at, bytes, error) = (self.state, self.at, self.bytes, self.error.clone());
            records.push(Record::State { id: id.clone(), state, at, frames, bytes, error });
        }
        records
    }

    /// A device begins.
    pub fn start(&mut self, device: &str) {
        self.state = State::Running;
        self.device = Some(device.to_owned());
        self.since = Some(super::now());
        self.progress.warnings.clear();
    }

    /// The device has ended.
    pub fn stand(&mut self) {
        if self.state == State::Running {
            self.state = State::Queued;
        }
        self.device = None;
        let Progress { fps, eta_seconds, phase, .. } = &mut self.progress;
        (*eta_seconds, *phase) = (None, None);
        if self.state != State::Done {
            *fps = None;
        }
    }

    /// The device that runs it.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    pub fn view(&self, position: Option<usize>, active: bool) -> JobView {
        let accepted = self.accepted.clone();
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (frame_rate, [input_size, output_size]) = (accepted.rate(), accepted.sizes);
        let Accepted { id, input, output, upload, preset, settings, model, device, still, bytes, .. } = accepted;
        let frames = self.progress.total.filter(|_| !still && frame_rate > 0.0);
        JobView {
            id,
            state: self.state,
            position,
            stopping: active && self.state != State::Running,
            input: input.to_string_lossy().into_owned(),
            input_name: name(&input),
            output: output.to_string_lossy().into_owned(),
            output_name: name(&output),
            upload,
            preset,
            model,
            device: self.device.clone().or(device),
            settings,
            input_size,
            output_size,
            input_bytes: bytes,
            output_bytes: self.bytes,
            frame_rate,
            duration_seconds: frames.map(|frames| frames as f64 / frame_rate),
            is_still: still,
            progress: self.progress.clone().with_percent(),
            error: self.error.clone(),
            created_at: self.accepted.at,
            changed_at: self.at,
            started_at: self.since,
        }
    }
}
