//! What a server can do: its devices and their memory, its tools and its limits.

use std::collections::HashMap;

use reseed::internals::{Machine, gpu_free_bytes, memory};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

/// What a server can do.
#[derive(Debug, Serialize, ToSchema)]
pub struct Capabilities {
    /// The version of the program.
    version: &'static str,
    /// Whether clients need a token.
    sign_in: bool,
    /// The model of jobs that choose none.
    model: String,
    /// Folders that clients may name files in.
    roots: Vec<String>,
    /// Whether the server can show the folder of a result on the desktop of its machine.
    opens_folders: bool,
    /// Free bytes of the disk with uploads and results.
    data_free_bytes: Option<u64>,
    /// The program that reads and writes video files.
    ffmpeg: ToolView,
    /// Each runs one job at a time.
    devices: Vec<DeviceView>,
    /// The CPU.
    cpu: CpuView,
    /// Why no GPU is used.
    gpu_error: Option<String>,
    /// Bytes of the machine's memory.
    memory_bytes: Option<usize>,
    /// Bytes of it that are free.
    memory_free_bytes: Option<usize>,
    /// Seconds since the start.
    uptime_seconds: f64,
    /// Limits for clients.
    limits: LimitsView,
}

/// A program.
#[derive(Debug, Serialize, ToSchema)]
struct ToolView {
    /// Whether it was found.
    found: bool,
    /// Where.
    path: Option<String>,
    /// Why it cannot be used.
    error: Option<String>,
}

/// A device.
#[derive(Debug, Serialize, ToSchema)]
struct DeviceView {
    /// Its name for requests.
    name: String,
    /// In words.
    description: String,
    /// cpu or gpu.
    kind: &'static str,
    /// Bytes of its memory.
    memory_bytes: Option<usize>,
    /// Bytes of it that are free.
    free_bytes: Option<usize>,
    /// idle or busy.
    state: &'static str,
    /// The job that it runs.
    job: Option<String>,
}

/// The CPU.
#[derive(Debug, Serialize, ToSchema)]
struct CpuView {
    /// In words.
    description: String,
    /// The type that suits it.
    dtype: String,
    /// The levels of its kernels.
    levels: Vec<String>,
}

/// Limits for clients.
#[derive(Debug, Serialize, ToSchema)]
struct LimitsView {
    /// Jobs that wait or run.
    jobs: usize,
    /// Frames of an input.
    frames: usize,
    /// Bytes of a request's body.
    body_bytes: usize,
    /// Incomplete uploads.
    uploads: usize,
    /// Bytes of an upload.
    upload_bytes: u64,
}

impl Capabilities {
    /// Those of a server now.
    pub fn of(app: &App) -> Capabilities {
        let (limits, machine) = (&app.config.limits, app.machine.as_ref());
        let ffmpeg = reseed::media::ffmpeg_path();
        Capabilities {
            version: env!("CARGO_PKG_VERSION"),
            sign_in: app.keys.is_some(),
            opens_folders: app.config.opener.is_some(),
            model: app.config.model.clone(),
            roots: app.roots.folders().iter().map(|root| root.to_string_lossy().into_owned()).collect(),
            data_free_bytes: reseed::media::free_bytes(&app.config.data),
            ffmpeg: ToolView {
                found: ffmpeg.is_ok(),
                error: ffmpeg.as_ref().err().map(ToString::to_string),
                path: ffmpeg.ok().map(|path| path.to_string_lossy().into_owned()),
            },
            devices: devices(app),
            cpu: CpuView {
                description: machine.map_or(String::new(), |machine| machine.cpu.clone()),
                dtype: machine.map_or(String::new(), |machine| machine.dtype.to_string()),
                levels: machine.map_or(Vec::new(), |machine| machine.levels.clone()),
            },
            gpu_error: machine.and_then(|machine| machine.gpus.as_ref().err().cloned()),
            memory_bytes: memory::machine(),
            memory_free_bytes: memory::available(),
            uptime_seconds: app.started.elapsed().as_secs_f64(),
            limits: LimitsView {
                jobs: limits.jobs,
                frames: limits.frames,
                body_bytes: limits.body,
                uploads: limits.uploads,
                upload_bytes: limits.upload,
            },
        }
    }
}

fn devices(app: &App) -> Vec<DeviceView> {
    let mut running: HashMap<String, Vec<String>> = HashMap::new();
    for (device, job) in app.queue.running() {
        running.entry(device).or_default().push(job);
    }
    let view = |name: &String| {
        let job = running.get_mut(name).and_then(Vec::pop);
        let state = if job.is_some() { "busy" } else { "idle" };
        let name = name.clone();
        match ordinal(&name) {
            Some(ordinal) => {
                let gpus = app.machine.as_ref().and_then(|machine| machine.gpus.as_ref().ok());
                let gpu = gpus.and_then(|gpus| described(gpus, ordinal));
                let (description, memory_bytes) =
                    gpu.map_or((String::new(), None), |(name, bytes)| (name, Some(bytes)));
                let free_bytes = gpu_free_bytes(ordinal);
                DeviceView { name, description, kind: "gpu", memory_bytes, free_bytes, state, job }
            }
            None => {
                let description = app.machine.as_ref().map_or(String::new(), |machine| machine.cpu.clone());
                let (memory_bytes, free_bytes) = (memory::machine(), memory::available());
                DeviceView { name, description, kind: "cpu", memory_bytes, free_bytes, state, job }
            }
        }
    };
    app.devices().iter().map(view).collect()
}

/// The index of a GPU by the name of a device.
pub fn ordinal(device: &str) -> Option<usize> {
    match device.split_once(':') {
        None => (device == "cuda").then_some(0),
        Some((_, number)) => number.parse().ok(),
    }
}

/// Name and bytes of a GPU.
fn described(gpus: &[reseed::internals::GpuInfo], ordinal: usize) -> Option<(String, usize)> {
    gpus.iter().find(|gpu| gpu.ordinal == ordinal).map(|gpu| (gpu.name.clone(), gpu.memory))
}

/// What the machine has, found once: it does not change.
pub fn machine() -> Option<Machine> {
    Machine::detect().map_err(|error| tracing::warn!(%error, "the machine cannot be described")).ok()
}
