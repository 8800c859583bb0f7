//! A model on its device.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reseed::media::{self, Frame, Info, Size};
use reseed::{Batching, Error, Event, Job, JobSpec, Observer, Report, Settings};

use crate::array::{Array, dlpack_device};
use crate::clip::{Clip, ClipSource};
use crate::dtype::Dtype;
use crate::errors::{Failure, Result};
use crate::frames::Frames;
use crate::job::{CancelToken, Done, Watch, run};
use crate::settings::Keywords;
use crate::store::Store;
use crate::target::{ClipSink, Target, no_result};

/// A model on its device. The class of the package wraps it.
#[pyclass(module = "reseed._reseed", frozen, name = "Session")]
pub struct PySession {
    pub engine: Arc<reseed::Session>,
    pub vae: Arc<Mutex<Option<Arc<reseed::Vae>>>>,
    device: String,
    /// The index of its GPU.
    gpu: Option<usize>,
}

#[pymethods]
impl PySession {
    /// `options` has the arguments of the package's class.
    #[new]
    fn new(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<PySession> {
        let given = Keywords(options);
        let get = |key: &str| -> PyResult<String> {
            options.get_item(key)?.ok_or_else(|| PyTypeError::new_err(format!("no `{key}`")))?.extract()
        };
        let (model, device) = (get("model")?, get("device")?);
        let builder = reseed::Session::builder().model(model).device(device);
        let builder = builder.budget(given.budget("max_vram")?).dtype(given.precision("dtype")?);
        let builder = builder.math(given.math("precision")?);
        let builder = builder.vae(given.file("vae")?).text(given.file("text")?).threads(given.threads("threads")?);
        let open = move |_: &mut dyn Observer| {
            let session = builder.open()?;
            let (device, gpu) = (session.device()?, session.gpu()?.map(|gpu| gpu.ordinal()));
            Ok((session, device, gpu))
        };
        let Done { value: (session, device, gpu), .. } = run(py, &Watch::default(), open)?;
        Ok(PySession { engine: Arc::new(session), vae: Arc::default(), device, gpu })
    }

    #[getter]
    fn model(&self) -> &str {
        self.engine.model()
    }

    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// The index of the GPU whose CUDA tensors are read in place.
    #[getter]
    fn gpu(&self) -> Option<usize> {
        self.gpu
    }

    /// Bytes in host and in GPU memory.
    #[getter]
    fn memory(&self) -> (usize, usize) {
        let held = self.engine.held();
        (held.host, held.gpu)
    }

    fn unload(&self, py: Python<'_>) -> PyResult<()> {
        let (engine, vae) = (self.engine.clone(), self.take_vae());
        let unload = move |_: &mut dyn Observer| {
            drop(vae);
            engine.unload();
            return_memory();
            Ok(())
        };
        run(py, &Watch::default(), unload)?;
        Ok(())
    }

    /// Frames of arrays. `mode` is whether frames are independent images, and whether every array is a clip of its own
    /// with a result of its own. `watch` is the callback and the token.
    fn upscale_frames<'py>(
        &self,
        py: Python<'py>,
        arrays: Vec<Bound<'py, PyAny>>,
        mode: (bool, bool),
        settings: &Bound<'py, PyDict>,
        watch: (Option<Bound<'py, PyAny>>, Option<Bound<'py, CancelToken>>),
    ) -> PyResult<Vec<Frames>> {
        let ((independent, separate), (progress, cancel), keywords) = (mode, watch, Keywords(settings));
        keywords.check("upscale_frames", false)?;
        let mut settings = keywords.settings()?;
        let arrays = self.arrays(py, &arrays)?;
        let ranks: Vec<usize> = arrays.iter().map(|array| array.shape.len()).collect();
        let clips = match separate {
            true => arrays.into_iter().map(|array| Clip::new(vec![array])).collect::<Result<Vec<Clip>>>()?,
            false => vec![Clip::new(arrays)?],
        };
        let still = clips.iter().all(|clip| clip.frames == 1);
        if independent || still {
            settings.batching = Batching { size: 1, overlap: 0, uniform: false };
            (settings.lead_in, settings.detect_shots) = (0, false);
        }
        let many = ranks.len() > 1 && !separate;
        let clips: Vec<Arc<Clip>> = clips.into_iter().map(Arc::new).collect();
        let engine = self.engine.clone();
        let job = move |observer: &mut dyn Observer| upscale_clips(&engine, &clips, &settings, observer);
        let done = run(py, &Watch { progress, cancel }, job)?;
        let shaped = |(i, Upscaled { store, shape: whole, dtype }): (usize, Upscaled)| {
            let rank = if many { 4 } else { ranks[i] };
            let shape = if rank == 2 { whole[1..3].to_vec() } else { whole[4 - rank..].to_vec() };
            Frames::of(store, shape, dtype)
        };
        Ok(done.value.into_iter().enumerate().map(shaped).collect())
    }

    /// A job on files.
    #[pyo3(signature = (paths, settings, progress=None, cancel=None))]
    fn upscale<'py>(
        &self,
        py: Python<'py>,
        paths: (PathBuf, PathBuf),
        settings: &Bound<'py, PyDict>,
        progress: Option<Bound<'py, PyAny>>,
        cancel: Option<Bound<'py, CancelToken>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let ((input, output), keywords) = (paths, Keywords(settings));
        keywords.check("upscale", true)?;
        let spec = JobSpec::new(&input, &output, keywords.settings()?);
        let (clip, video, existing) = (keywords.clip()?, keywords.options()?, keywords.existing()?);
        let spec = JobSpec { clip, video, existing, ..spec };
        let engine = self.engine.clone();
        let job = move |observer: &mut dyn Observer| {
            let job = Job::open(spec)?;
            let (complete, size) = (job.is_complete(), job.output_info()?.size);
            let report = job.run(&engine, observer)?;
            Ok((report, size, complete))
        };
        let Done { value: (report, size, complete), warnings } = run(py, &Watch { progress, cancel }, job)?;
        report_dict(py, &report, (output, size, complete), warnings)
    }

    /// What a job on a path, or on frames of a size, would need.
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        input: &Bound<'py, PyAny>,
        settings: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let keywords = Keywords(settings);
        keywords.check("estimate", true)?;
        let (chosen, clip, video) = (keywords.settings()?, keywords.clip()?, keywords.options()?);
        let given: Option<(usize, usize, usize)> = input.extract().ok();
        let path: Option<PathBuf> = if given.is_some() { None } else { Some(input.extract()?) };
        let engine = self.engine.clone();
        let job = move |_: &mut dyn Observer| {
            let info = match path {
                Some(path) => media::open_clip(&path, clip).map_err(Error::Input)?.info().clone(),
                None => {
                    let (frames, h, w) = given.unwrap_or_default();
                    let size = Size { h, w };
                    if frames == 0 || !size.is_plausible() {
                        return Err(Failure::Usage(format!("{frames} frames of {size}: give (frames, height, width)")));
                    }
                    Info { size, frames: Some(frames), ..media::sample().info().clone() }
                }
            };
            Ok(engine.estimate(&info, &chosen)?)
        };
        let estimate = run(py, &Watch::default(), job)?.value;
        let dict = PyDict::new(py);
        let sides = |size: Size| (size.w, size.h);
        dict.set_item("input_size", sides(estimate.input_size))?;
        dict.set_item("output_size", sides(estimate.output_size))?;
        dict.set_item("frames", estimate.frames)?;
        dict.set_item("batches", estimate.batches)?;
        dict.set_item("seconds", estimate.seconds)?;
        dict.set_item("host_bytes", estimate.host_bytes)?;
        dict.set_item("gpu_bytes", estimate.device_bytes)?;
        dict.set_item("disk_bytes", estimate.disk(&video).output)?;
        dict.set_item("work_bytes", estimate.disk(&video).work)?;
        dict.set_item("flops", estimate.flops)?;
        dict.set_item("exact", !estimate.plan.is_inexact())?;
        dict.set_item("based_on", estimate.based_on)?;
        Ok(dict)
    }
}

impl PySession {
    /// The arrays behind objects, read in place on the host and on the GPU of the session.
    pub fn arrays(&self, py: Python<'_>, objects: &[Bound<'_, PyAny>]) -> Result<Vec<Array>> {
        let on_gpu = |object: &Bound<'_, PyAny>| -> PyResult<bool> {
            let may_be = self.gpu.is_some() && object.hasattr("__dlpack__")?;
            Ok(may_be && !object.hasattr("__array_interface__")? && dlpack_device(object)? == self.gpu)
        };
        let needed = objects.iter().map(on_gpu).collect::<PyResult<Vec<bool>>>()?.contains(&true);
        let engine = self.engine.clone();
        // Waits for a running job, and opens the device after `unload`.
        let gpu = if needed { run(py, &Watch::default(), move |_| Ok(engine.gpu()?))?.value } else { None };
        objects.iter().map(|object| Array::new(object, gpu.as_ref())).collect()
    }

    /// One array.
    pub fn array(&self, object: &Bound<'_, PyAny>) -> Result<Array> {
        let mut arrays = self.arrays(object.py(), std::slice::from_ref(object))?;
        Ok(arrays.swap_remove(0))
    }

    pub fn take_vae(&self) -> Option<Arc<reseed::Vae>> {
        self.vae.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An upscaled clip: frames, rows, columns and channels.
struct Upscaled {
    store: Store,
    shape: [usize; 4],
    dtype: Dtype,
}

/// Upscales clips one after the other; events count the frames of all.
fn upscale_clips(
    engine: &reseed::Session,
    clips: &[Arc<Clip>],
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Vec<Upscaled>> {
    let total = clips.iter().map(|clip| clip.frames).sum();
    let mut all = Several { observer, total, started: false, batches: 0, finished: 0 };
    let (mut upscaled, mut first) = (Vec::new(), 0);
    for clip in clips {
        let moved = |failure| match failure {
            Failure::Engine(Error::NotANumber { frame, at }) => Error::NotANumber { frame: first + frame, at }.into(),
            failure => failure,
        };
        upscaled.push(upscale_clip(engine, clip, settings, &mut all).map_err(moved)?);
        all.finished = all.batches;
        first += clip.frames;
    }
    Ok(upscaled)
}

/// Upscales a clip. RGB in GPU memory stays there.
fn upscale_clip(
    engine: &reseed::Session,
    clip: &Arc<Clip>,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Upscaled> {
    let (size, Clip { channels, dtype, frames, .. }) = (settings.output(&clip.info())?.size, &**clip);
    let store = match clip.gpu_arrays().filter(|_| *channels == 3) {
        Some(arrays) => Store::Gpu(engine.upscale_arrays(&arrays, settings, observer)?.0),
        None => {
            let target = Arc::new(Target::new(size, *channels, *dtype, *frames, clip.gpu())?);
            let (mut source, sink) = (ClipSource::new(clip.clone()), ClipSink::new(target.clone(), 0));
            engine.upscale(&mut source, Box::new(sink), settings, observer)?;
            target.take().ok_or_else(no_result)?
        }
    };
    Ok(Upscaled { store, shape: [*frames, size.h, size.w, *channels], dtype: *dtype })
}

/// Makes the events of several jobs those of one.
struct Several<'a> {
    observer: &'a mut dyn Observer,
    total: usize,
    started: bool,
    batches: usize,
    /// Batches of the finished jobs.
    finished: usize,
}

impl Observer for Several<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { .. } if self.started => {}
            Event::Started { done, .. } => {
                self.started = true;
                self.observer.event(&Event::Started { frames: Some(self.total), done: *done });
            }
            Event::Batch { batches } => {
                self.batches = self.finished + batches;
                self.observer.event(&Event::Batch { batches: self.batches });
            }
            event => self.observer.event(event),
        }
    }

    fn frame(&mut self, frame: &Frame) {
        self.observer.frame(frame);
    }

    fn watches_frames(&mut self) -> bool {
        self.observer.watches_frames()
    }

    fn cancelled(&mut self) -> bool {
        self.observer.cancelled()
    }
}

fn report_dict<'py>(
    py: Python<'py>,
    report: &Report,
    (output, size, complete): (PathBuf, Size, bool),
    warnings: Vec<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("output", output.to_string_lossy())?;
    dict.set_item("size", (size.w, size.h))?;
    dict.set_item("frames", report.frames)?;
    dict.set_item("batches", report.batches)?;
    dict.set_item("shots", report.shots)?;
    dict.set_item("seconds", report.times.total.as_secs_f64())?;
    dict.set_item("complete", complete)?;
    dict.set_item("host_peak", report.peak_memory)?;
    dict.set_item("gpu_peak", report.gpu_peak)?;
    dict.set_item("warnings", warnings)?;
    Ok(dict)
}

/// The frames of a file in memory.
#[pyfunction]
#[pyo3(signature = (path, progress=None, cancel=None))]
pub fn read_frames<'py>(
    py: Python<'py>,
    path: PathBuf,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<Bound<'py, CancelToken>>,
) -> PyResult<Frames> {
    let job = move |observer: &mut dyn Observer| {
        let mut source = media::open(&path).map_err(Error::Input)?;
        let info = source.info().clone();
        let mut frames = Vec::new();
        while let Some(frame) = source.next().map_err(Error::Input)? {
            if observer.cancelled() {
                return Err(Error::Cancelled.into());
            }
            frames.push(frame);
        }
        let channels = if frames.iter().any(|frame| frame.alpha.is_some()) { 4 } else { 3 };
        let dtype = Dtype::of_depth(info.depth);
        let target = Target::new(info.size, channels, dtype, frames.len(), None)?;
        for (i, frame) in frames.into_iter().enumerate() {
            let (samples, alpha) = (frame.samples.to_depth(info.depth), frame.alpha);
            let alpha = alpha.map(|alpha| alpha.to_depth(info.depth));
            target.write(i, &Frame { samples, alpha, ..frame })?;
        }
        Ok((target, info.kind.is_still()))
    };
    let (target, still) = run(py, &Watch { progress, cancel }, job)?.value;
    let Target { size, channels, dtype, frames, .. } = target;
    let shape = [frames, size.h, size.w, channels];
    let shape = if still && frames == 1 { shape[1..].to_vec() } else { shape.to_vec() };
    Ok(Frames::of(target.take().ok_or_else(no_result)?, shape, dtype))
}

/// Gives free memory back to the system, where the allocator keeps it.
fn return_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: trims the heap; no block in use moves.
    unsafe {
        libc::malloc_trim(0);
    }
}
