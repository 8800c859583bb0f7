//! The devices and tools of this machine.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use reseed::Observer;
use reseed::internals::{GpuInfo, Machine};

use crate::job::{Watch, run};

/// What `reseed doctor` prints, as a dict.
#[pyfunction]
pub fn doctor(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let machine = run(py, &Watch::default(), |_: &mut dyn Observer| Ok(Machine::detect()?))?.value;
    let dict = PyDict::new(py);
    dict.set_item("version", env!("CARGO_PKG_VERSION"))?;
    dict.set_item("kernels", machine.kernels)?;
    dict.set_item("device", machine.device)?;
    dict.set_item("cpu", &machine.cpu)?;
    dict.set_item("cpu_dtype", machine.dtype.to_string())?;
    dict.set_item("cpu_levels", &machine.levels)?;
    let gpus: PyResult<Vec<_>> = machine.gpus.iter().flatten().map(|gpu| gpu_dict(py, gpu)).collect();
    dict.set_item("gpus", gpus?)?;
    dict.set_item("gpu_error", machine.gpus.as_ref().err())?;
    dict.set_item("tuning", machine.tuning())?;
    dict.set_item("ffmpeg", machine.ffmpeg.as_ref().ok())?;
    dict.set_item("ffmpeg_error", machine.ffmpeg.as_ref().err())?;
    dict.set_item("memory_bytes", machine.memory)?;
    Ok(dict)
}

fn gpu_dict<'py>(py: Python<'py>, gpu: &GpuInfo) -> PyResult<Bound<'py, PyDict>> {
    let GpuInfo { ordinal, name, capability, memory, driver, budget } = gpu;
    let dict = PyDict::new(py);
    dict.set_item("device", format!("cuda:{ordinal}"))?;
    dict.set_item("name", name)?;
    dict.set_item("memory_bytes", memory)?;
    if let Some(budget) = budget {
        dict.set_item("budget_bytes", budget)?;
    }
    dict.set_item("compute_capability", format!("{}.{}", capability.0, capability.1))?;
    dict.set_item("driver_cuda", format!("{}.{}", driver.0, driver.1))?;
    Ok(dict)
}
