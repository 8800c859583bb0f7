//! A job of the queue.

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
    /// The device that runs it.
    device: Option<String>,
}

impl QueuedJob {
    pub fn new(accepted: Accepted) -> QueuedJob {
        let progress = Progress { total: accepted.frames, ..Progress::default() };
        let (state, at) = (State::Queued, accepted.at);
        QueuedJob { accepted, state, started: false, error: None, progress, at, device: None }
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
            let (state, at, error) = (self.state, self.at, self.error.clone());
            records.push(Record::State { id: id.clone(), state, at, frames, error });
        }
        records
    }

    /// A device begins.
    pub fn start(&mut self, device: &str) {
        self.state = State::Running;
        self.device = Some(device.to_owned());
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

    pub fn view(&self, position: Option<usize>, active: bool) -> JobView {
        let Accepted { id, input, output, settings, model, device, sizes: [input_size, output_size], .. } =
            self.accepted.clone();
        JobView {
            id,
            state: self.state,
            position,
            stopping: active && self.state != State::Running,
            input: input.to_string_lossy().into_owned(),
            output: output.to_string_lossy().into_owned(),
            model,
            device: self.device.clone().or(device),
            settings,
            input_size,
            output_size,
            progress: self.progress.clone(),
            error: self.error.clone(),
            created_at: self.accepted.at,
            changed_at: self.at,
        }
    }
}
