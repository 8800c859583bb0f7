//! The registry of public models.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use reseed::models::{self, File};
use reseed::{Event, Observer};

use crate::errors::Result;
use crate::job::{CancelToken, Watch, run};

/// One dict per model: name, about, file, bytes, path.
#[pyfunction]
pub fn list_models(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let row = |name: &str, about: &str, bytes: u64, file: Option<&File>| -> PyResult<Bound<'_, PyDict>> {
        let row = PyDict::new(py);
        row.set_item("name", name)?;
        row.set_item("about", about)?;
        row.set_item("embedded", file.is_none())?;
        row.set_item("file", file.map(|file| file.name))?;
        row.set_item("bytes", bytes)?;
        row.set_item("path", file.and_then(models::locate))?;
        Ok(row)
    };
    let embedded = models::embedded().iter().map(|model| row(model.name, model.about, model.bytes as u64, None));
    let public = models::all().iter().map(|model| row(model.name, model.about, model.dit.bytes, Some(&model.dit)));
    embedded.chain(public).collect()
}

/// The paths of a model's transformer, VAE and text embedding.
#[pyfunction]
pub fn model_paths(name: &str) -> PyResult<[PathBuf; 3]> {
    Ok(models::paths(name).map_err(crate::errors::Failure::from)?)
}

/// Downloads the files of a model that are missing. Progress counts bytes.
#[pyfunction]
#[pyo3(signature = (name, progress=None, cancel=None))]
pub fn pull_model<'py>(
    py: Python<'py>,
    name: &str,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, CancelToken>>,
) -> PyResult<[PathBuf; 3]> {
    let model = models::find(name).map_err(crate::errors::Failure::from)?;
    let files = model.files();
    let job = move |observer: &mut dyn Observer| -> Result<()> {
        let missing: Vec<&'static File> = files.into_iter().filter(|file| models::locate(file).is_none()).collect();
        let total: u64 = missing.iter().map(|file| file.bytes).sum();
        observer.event(&Event::Started { frames: Some(total as usize), done: 0 });
        let mut before = 0;
        for file in missing {
            let mut seen = 0;
            models::download(file, &mut |count| {
                observer.event(&Event::Frames((count.saturating_sub(seen)) as usize));
                seen = count;
            })?;
            before += file.bytes;
        }
        debug_assert!(before == total, "every missing file is downloaded");
        Ok(())
    };
    run(py, &Watch { progress, cancel }, job)?;
    model_paths(name)
}
