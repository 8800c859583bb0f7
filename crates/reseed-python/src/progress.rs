//! Progress of a job, as callbacks see it.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reseed::{Event, Phase};

use crate::frames::Frames;

/// Something that happened in a job, with its progress up to now.
#[pyclass(module = "reseed", frozen, get_all, name = "Event")]
#[derive(Clone)]
pub struct ProgressEvent {
    /// `started`, `phase`, `frames`, `batch`, `saved`, `replanned` or `warning`.
    pub kind: &'static str,
    /// Finished frames.
    pub frames: usize,
    /// Frames of the input, where it knows.
    pub total: Option<usize>,
    /// What the networks are doing: `wait`, `encode`, `upscale` or `decode`.
    pub phase: &'static str,
    /// Finished batches.
    pub batches: usize,
    /// Frames that are safe on disk.
    pub saved: usize,
    /// The text of a warning.
    pub message: Option<String>,
    /// A small copy of the newest frame, RGB in 8 bits; only a few events have one.
    pub preview: Option<Frames>,
}

impl ProgressEvent {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        fields.set_item("kind", self.kind)?;
        fields.set_item("frames", self.frames)?;
        fields.set_item("total", self.total)?;
        fields.set_item("phase", self.phase)?;
        fields.set_item("batches", self.batches)?;
        fields.set_item("saved", self.saved)?;
        fields.set_item("message", &self.message)?;
        fields.set_item("preview", self.preview.clone())?;
        Ok(fields)
    }
}

#[pymethods]
impl ProgressEvent {
    fn __getitem__<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        self.fields(py)?.get_item(key)?.ok_or_else(|| PyKeyError::new_err(key.to_owned()))
    }

    /// The names of the fields.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.fields(py)?.keys().into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let fields = self.fields(py)?;
        let shown: PyResult<Vec<String>> =
            fields.iter().map(|(key, value)| Ok(format!("{key}={}", value.repr()?))).collect();
        Ok(format!("Event({})", shown?.join(", ")))
    }
}

/// The progress of a job up to now.
#[derive(Default)]
pub struct Progress {
    frames: usize,
    total: Option<usize>,
    phase: Option<Phase>,
    batches: usize,
    saved: usize,
    pub warnings: Vec<String>,
}

impl Progress {
    /// Counts an event; `None` for one that callbacks do not see.
    pub fn add(&mut self, event: Event, preview: Option<Frames>) -> Option<ProgressEvent> {
        let mut message = None;
        let kind = match event {
            Event::Started { frames, done } => {
                (self.total, self.frames, self.saved) = (frames, done, done);
                "started"
            }
            Event::Phase(phase) => {
                self.phase = Some(phase);
                "phase"
            }
            Event::Frames(more) => {
                self.frames += more;
                "frames"
            }
            Event::Batch { batches } => {
                self.batches = batches;
                "batch"
            }
            Event::Saved { frames } => {
                self.saved = frames;
                "saved"
            }
            Event::Replanned { device, bytes } => {
                message = Some(format!("{device}: continues with {} MiB", bytes >> 20));
                "replanned"
            }
            Event::Warning(warning) => {
                self.warnings.push(warning.to_string());
                message = Some(warning.to_string());
                "warning"
            }
            _ => return None,
        };
        let phase = match self.phase.unwrap_or(Phase::Wait) {
            Phase::Wait => "wait",
            Phase::Encode => "encode",
            Phase::Upscale => "upscale",
            Phase::Decode => "decode",
        };
        let Progress { frames, total, batches, saved, .. } = *self;
        Some(ProgressEvent { kind, frames, total, phase, batches, saved, message, preview })
    }
}
