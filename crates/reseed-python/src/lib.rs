//! The native part of the Python package `reseed`: sessions, arrays, jobs on threads of their own, and the command.
//!
//! The package's classes are written in Python, in `python/reseed`, and call this module.

mod array;
mod buffer;
mod clip;
mod dlpack;
mod dtype;
mod errors;
mod frames;
mod job;
mod machine;
mod models;
mod preview;
mod progress;
mod session;
mod settings;
mod store;
mod strided;
mod target;
mod vae;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command `reseed` with these arguments, the name of the program first, and returns its exit code.
#[pyfunction]
fn run_command(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| reseed_cli::run(args))
}

/// Where the first element of an array is, as the engine reads it, or a session that may have it on its GPU.
#[pyfunction]
#[pyo3(signature = (array, session=None))]
fn address(array: &Bound<'_, PyAny>, session: Option<&Bound<'_, session::PySession>>) -> PyResult<usize> {
    Ok(match session {
        Some(session) => session.get().array(array)?,
        None => array::Array::new(array, None)?,
    }
    .address())
}

/// A job that panics, for tests.
#[pyfunction]
fn panic(py: Python<'_>) -> PyResult<()> {
    job::run(py, &job::Watch::default(), |_| -> errors::Result<()> { panic!("on purpose") })?;
    Ok(())
}

/// The native part of `reseed`.
#[pymodule]
mod _reseed {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::frames::Frames;
    #[pymodule_export]
    use super::job::CancelToken;
    #[pymodule_export]
    use super::machine::doctor;
    #[pymodule_export]
    use super::models::{list_models, model_paths, pull_model};
    #[pymodule_export]
    use super::progress::ProgressEvent;
    #[pymodule_export]
    use super::session::{PySession, read_frames};
    #[pymodule_export]
    use super::vae::{decode, encode, extent};
    #[pymodule_export]
    use super::{address, panic, run_command};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::errors::record_panics();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
