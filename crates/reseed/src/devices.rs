//! Devices by name, opened through a table of constructors.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
mod no_cuda;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use reseed_cpu::CpuOps;
use reseed_ops::{Ceiling, CheckOps, Device, MathMode, Precision, TraceOps};

use crate::error::{Error, Result};
pub use cpu::precision as cpu_precision;
pub use cuda::{Gpu, GpuInfo, gpu_free_bytes, gpus, kernel_stamp, tuning};
#[cfg(not(feature = "cuda"))]
use no_cuda as cuda;

/// The GPU where there is one, else the CPU.
pub const AUTO: &str = "auto";
const CPU: &str = "cpu";
const CUDA: &str = "cuda";

/// Opens the device of a request.
type Open = fn(&ComputeOptions) -> Result<DeviceHandle>;

/// The constructors, by the part of a name before the colon.
const CONSTRUCTORS: &[(&str, Open)] = &[(CPU, cpu::open), (CUDA, cuda::open)];

/// Makes tracing devices, which compute nothing and count the memory and the time that this device would take.
pub type Tracer = Box<dyn Fn() -> TraceOps + Send + Sync>;

/// Receives a line for every op that disagrees with the reference.
pub type CheckReport = Arc<dyn Fn(&dyn fmt::Display) + Send + Sync>;

/// Which device computes, and how.
#[derive(Clone)]
pub struct ComputeOptions {
    /// `auto`, `cpu`, `cuda` or `cuda:N`; a session has its own list.
    pub device: String,
    /// Type of the activations; what suits the device unless given.
    pub dtype: Option<Precision>,
    /// Savings that the products of a GPU may use.
    pub math: MathMode,
    /// Threads of the CPU; one per core unless given.
    pub threads: Option<usize>,
    /// Bytes of GPU memory; what is free less a margin unless given.
    pub budget: Option<usize>,
    /// Whether new linear layers are measured with cuBLASLt.
    pub tune: bool,
    /// Whether kernels that were measured on this machine are used.
    pub measured_kernels: bool,
    /// Whether the peak rates of the device are measured, for profiles.
    pub profile: bool,
    /// Compares every op with the reference level of the CPU, and receives disagreements.
    pub check: Option<CheckReport>,
}

impl Default for ComputeOptions {
    fn default() -> ComputeOptions {
        let (device, dtype, math, threads, budget) = (AUTO.into(), None, MathMode::default(), None, None);
        let (tune, measured_kernels, profile, check) = (false, true, false, None);
        ComputeOptions { device, dtype, math, threads, budget, tune, measured_kernels, profile, check }
    }
}

/// A device and what a planner needs to know of it.
pub struct DeviceHandle {
    /// Computes.
    pub ops: Arc<dyn Device>,
    /// Makes tracing devices.
    pub trace: Tracer,
    /// Bytes for tensors beside the loaded weights, where they are limited.
    pub room: Box<dyn Fn() -> Result<Option<usize>> + Send + Sync>,
    /// Latent frames per slice, where no budget decides.
    pub slice: Option<usize>,
    /// Small tiles that are worth running at the same time.
    pub lanes: usize,
    /// The GPU, if it is one.
    pub gpu: Option<Gpu>,
    /// Measured peak rates, for profiles.
    pub ceiling: Option<Ceiling>,
    /// What results depend on: the level of a CPU, whatever its threads, or the name of a GPU.
    pub class: String,
    /// Remarks for the user.
    pub warnings: Vec<String>,
}

/// The state of kernels that were measured on this machine.
pub struct Tuning {
    /// The version and file of cuBLASLt, or why it is not available.
    pub library: std::result::Result<String, String>,
    /// Products and GPUs in the record, or why it is ignored.
    pub measured: std::result::Result<(usize, usize), String>,
    /// The record.
    pub record: PathBuf,
}

/// The devices of a model.
pub struct Devices {
    /// The VAE's, or the decoder's alone.
    pub vae: DeviceHandle,
    /// The transformer's, where it computes in another type.
    other: Option<DeviceHandle>,
}

impl Devices {
    /// Opens the devices. A model whose decoder needs f32 has its other networks in the type that suits the CPU, unless
    /// a type was chosen.
    pub fn open(options: &ComputeOptions, decodes_in_f32: bool) -> Result<Devices> {
        let options = &resolved(options);
        let mixed = options.dtype.is_none() && options.device == CPU && decodes_in_f32;
        if mixed && cpu_precision(None)? != Precision::F32 {
            let vae = cpu::open(&ComputeOptions { dtype: Some(Precision::F32), ..options.clone() })?;
            let other = Some(cpu::open(&ComputeOptions { profile: false, ..options.clone() })?);
            return Ok(Devices { vae, other });
        }
        let mut vae = open(options)?;
        let other = transformer(options, &vae)?;
        if other.is_none() && vae.ops.precision() == Precision::F16 {
            vae.warnings.push(format!("{} has no bf16: the transformer runs in f16, less precisely", vae.ops.name()));
        }
        Ok(Devices { vae, other })
    }

    /// The transformer's, often the VAE's.
    pub fn transformer(&self) -> &DeviceHandle {
        self.other.as_ref().unwrap_or(&self.vae)
    }

    /// The encoder's: the transformer's where the VAE's is f32 for the sake of the decoder.
    pub fn encoder(&self) -> &DeviceHandle {
        match self.vae.ops.precision() {
            Precision::F32 => self.transformer(),
            _ => &self.vae,
        }
    }

    /// The device for values that leave the range of f16, where the VAE computes in that: in bf16, or in f32 on a GPU
    /// without bf16.
    pub fn with_wider_range(&self, options: &ComputeOptions) -> Result<Option<Arc<dyn Device>>> {
        match (self.vae.ops.precision(), &self.other, &self.vae.gpu) {
            (Precision::F16, Some(other), _) => Ok(Some(other.ops.clone())),
            (Precision::F16, None, Some(gpu)) => {
                let options = ComputeOptions { profile: false, ..options.clone() };
                Ok(Some(gpu.with_precision(Precision::F32, &options)?.ops))
            }
            _ => Ok(None),
        }
    }

    /// The same devices with measured rates for their plans. The rates of GPUs are known; a CPU is measured.
    pub fn with_measured_speed(self) -> Result<Devices> {
        let other = self.other.map(DeviceHandle::with_measured_speed).transpose()?;
        Ok(Devices { vae: self.vae.with_measured_speed()?, other })
    }
}

/// The devices that names stand for: several may be in one name, with commas between them, and `cuda` is all GPUs.
pub fn names(given: &[String]) -> Vec<String> {
    let gpu = |number: usize| format!("{CUDA}:{number}");
    let all = |name: &str| match name.trim() {
        AUTO if auto() == CUDA => vec![gpu(0)],
        AUTO => vec![CPU.into()],
        CUDA => (0..gpus().map_or(1, |gpus| gpus.len()).max(1)).map(gpu).collect(),
        name => vec![name.into()],
    };
    let given = if given.is_empty() { &[AUTO.into()][..] } else { given };
    given.iter().flat_map(|names| names.split(',')).flat_map(all).collect()
}

/// Opens the devices of several lanes, which must compute alike. Lanes of one GPU share its memory.
pub fn open_lanes(names: &[String], options: &ComputeOptions, decodes_in_f32: bool) -> Result<Vec<Devices>> {
    let open = |name: &String| {
        let options = ComputeOptions { device: name.clone(), ..options.clone() };
        let sharing = names.iter().filter(|other| *other == name).count();
        let budget = match options.budget {
            _ if sharing == 1 => options.budget,
            Some(bytes) => Some(bytes / sharing),
            None => (self::open(&options)?.room)()?.map(|bytes| bytes / sharing),
        };
        Devices::open(&ComputeOptions { budget, ..options }, decodes_in_f32)
    };
    let lanes: Vec<Devices> = names.iter().map(open).collect::<Result<_>>()?;
    let first = &lanes[0].vae.class;
    match lanes.iter().find(|lane| lane.vae.class != *first) {
        Some(other) => Err(Error::MixedDevices { first: first.clone(), other: other.vae.class.clone() }),
        None => Ok(lanes),
    }
}

/// What `auto` stands for on this machine. A GPU that fails to open is an error, never a reason to take the CPU.
pub fn auto() -> &'static str {
    if gpus().is_ok_and(|gpus| !gpus.is_empty()) { CUDA } else { CPU }
}

fn resolved(options: &ComputeOptions) -> ComputeOptions {
    let device = if options.device == AUTO { auto() } else { &options.device };
    ComputeOptions { device: device.into(), ..options.clone() }
}

/// Opens a device in the chosen type, or in the one that suits it.
pub fn open(options: &ComputeOptions) -> Result<DeviceHandle> {
    let options = resolved(options);
    let family = options.device.split(':').next().unwrap_or_default();
    let constructor = CONSTRUCTORS.iter().find(|(name, _)| *name == family);
    let (_, open) = constructor.ok_or_else(|| unknown(&options))?;
    let device = open(&options)?;
    tracing::debug!(device = device.ops.name(), dtype = %device.ops.precision(), "opened");
    Ok(device)
}

fn unknown(options: &ComputeOptions) -> Error {
    Error::UnknownDevice { name: options.device.clone() }
}

/// The transformer's device, where it differs from the VAE's: f16 costs the transformer 15 dB, so that it computes in
/// bf16. On a GPU the two share all memory. A GPU without bf16 runs both in f16: f32 is far slower there.
pub fn transformer(options: &ComputeOptions, vae: &DeviceHandle) -> Result<Option<DeviceHandle>> {
    if vae.ops.precision() != Precision::F16 {
        return Ok(None);
    }
    // The peak rates of the VAE's device stand for both.
    let options = ComputeOptions { dtype: Some(Precision::Bf16), profile: false, ..options.clone() };
    match &vae.gpu {
        Some(gpu) if !gpu.has_bf16() => Ok(None),
        Some(gpu) => gpu.with_precision(Precision::Bf16, &options).map(Some),
        None => cpu::open(&options).map(Some),
    }
}

/// `device` with every op compared with `reference`. Both live as long as the program.
fn checked(reference: CpuOps, device: Arc<impl Device + 'static>, report: CheckReport) -> Arc<dyn Device> {
    let (reference, device) = (Box::leak(Box::new(reference)), Box::leak(Box::new(device)));
    Arc::new(CheckOps::reporting(reference, &**device, move |found| report(found)))
}
