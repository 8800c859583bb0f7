//! Errors of the engine as Python exceptions.

use std::any::Any;
use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use reseed::{Error, Kind};

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The engine's reason.
    Engine(Error),
    /// An argument cannot be used.
    Usage(String),
    /// A frame or an array cannot be used.
    Input(String),
    /// The engine or the system failed, or a bug.
    Failed(String),
    /// An exception of Python.
    Python(PyErr),
}

pub type Result<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        let (kind, message) = match &failure {
            Failure::Engine(error) => (error.kind(), error.to_string()),
            Failure::Usage(message) => (Kind::Usage, message.clone()),
            Failure::Input(message) => (Kind::Input, message.clone()),
            Failure::Failed(message) => (Kind::Failed, message.clone()),
            Failure::Python(_) => (Kind::Failed, String::new()),
        };
        match failure {
            Failure::Python(error) => error,
            Failure::Engine(error) => Python::attach(|py| exception(py, kind, &message, Some(&error))),
            _ => Python::attach(|py| exception(py, kind, &message, None)),
        }
    }
}

/// The exception of a kind, whose class is written in Python.
fn exception(py: Python<'_>, kind: Kind, message: &str, error: Option<&Error>) -> PyErr {
    let name = match kind {
        Kind::Failed => "ReseedError",
        Kind::Usage => "UsageError",
        Kind::Input => "InputError",
        Kind::Model => "ModelError",
        Kind::Memory => "MemoryError",
        Kind::Device => "DeviceError",
        Kind::Cancelled => "Cancelled",
    };
    let build = || -> PyResult<PyErr> {
        let data = PyDict::new(py);
        if let Some(error) = error {
            fields(error, &data)?;
        }
        let class = py.import("reseed._errors")?.getattr(name)?;
        Ok(PyErr::from_value(class.call((message,), Some(&data))?))
    };
    build().unwrap_or_else(|error| error)
}

/// The data of an error that a program can use.
fn fields(error: &Error, data: &Bound<'_, PyDict>) -> PyResult<()> {
    let path = |path: &Path| data.set_item("path", path);
    match error {
        Error::Kept { frames, error } => {
            data.set_item("frames_kept", frames)?;
            fields(error, data)
        }
        Error::NotANumber { frame, at } => {
            data.set_item("frame", frame)?;
            data.set_item("position", (at[0], at[1], at[2]))
        }
        Error::OverBudget { device, available, needed, .. } => {
            data.set_item("device", device)?;
            data.set_item("available", available)?;
            data.set_item("needed", needed)
        }
        Error::OutOfHostMemory { bytes, .. } | Error::SliceTooLarge { bytes } => data.set_item("needed", bytes),
        Error::ModelMissing { file, model, folder } => {
            data.set_item("file", file)?;
            data.set_item("model", model)?;
            data.set_item("folder", folder)
        }
        Error::UnknownModel { name, known } => {
            data.set_item("model", name)?;
            data.set_item("known", known)
        }
        Error::UnknownDevice { name } | Error::NotBuilt { name, .. } => data.set_item("device", name),
        Error::SettingChanged { path: output, setting, before, now } => {
            path(output)?;
            data.set_item("setting", setting)?;
            data.set_item("before", before)?;
            data.set_item("now", now)
        }
        Error::Unfinished { path: output, frames } => {
            path(output)?;
            data.set_item("frames", frames)
        }
        Error::PartMissing { model: file, .. }
        | Error::Read { path: file, .. }
        | Error::Write { path: file, .. }
        | Error::OtherVae { path: file }
        | Error::ModelFile { path: file, .. }
        | Error::SameFile { path: file }
        | Error::OutputExists { path: file }
        | Error::NothingToResume { path: file }
        | Error::Busy { path: file }
        | Error::Unusable { path: file, .. }
        | Error::JournalDamaged { path: file } => path(file),
        _ => Ok(()),
    }
}

/// The message and the place of the last panic.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From here on a panic of the engine prints nothing: it becomes an exception.
pub fn record_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| panic::set_hook(Box::new(record)));
}

fn record(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or(String::new(), |at| format!(" ({}:{})", at.file(), at.line()));
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
}

/// The failure for a panic.
pub fn panicked(payload: &(dyn Any + Send)) -> Failure {
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("unknown").split_whitespace().collect::<Vec<_>>().join(" ");
    let place = LAST.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    Failure::Failed(format!("internal error: {message}{place}, please report it with the output of reseed.doctor()"))
}
