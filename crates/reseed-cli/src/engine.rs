//! From options to a device, a model's weights and a plan.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use reseed_cuda::CudaOps;
use reseed_model::Config;
use reseed_model::plan::Tiling;
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{CpuOps, DType, Hw, Ops, TraceOps};

use crate::args::{ComputeArgs, PlanArgs};
use crate::failure::{Failure, Result};

/// Seed of formula weights.
pub const SEED: u64 = 1;

/// Where a run computes.
pub struct Device {
    /// The device.
    pub ops: Box<dyn Ops>,
    /// One that computes nothing and counts what it would take.
    pub trace: TraceOps,
    /// How many small tiles are worth running at the same time.
    pub lanes: usize,
}

/// A device of its own for the transformer, where it computes in another type: f16 costs it 15 dB, so that it takes bf16
/// there.
pub fn transformer_device(args: &ComputeArgs) -> Result<Option<Device>> {
    let f16 = args.dtype == Some(DType::F16) || args.dtype.is_none() && args.device != "cpu";
    f16.then(|| device_of(args, Some(DType::Bf16))).transpose()
}

/// The device that was asked for, in the type that was asked for or that suits it best.
pub fn device(args: &ComputeArgs) -> Result<Device> {
    device_of(args, args.dtype)
}

fn device_of(args: &ComputeArgs, dtype: Option<DType>) -> Result<Device> {
    let number = match args.device.as_str() {
        "cpu" => {
            let cpu = CpuOps::new(dtype.unwrap_or(DType::F32), args.threads.map(usize::from))?;
            return Ok(Device { trace: cpu.trace(), lanes: cpu.threads(), ops: Box::new(cpu) });
        }
        "cuda" => Some(0),
        word => word.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    let unknown = || Failure::Usage(format!("--device {}: the devices are cpu, cuda and cuda:N", args.device));
    let cuda = CudaOps::new(number.ok_or_else(unknown)?, dtype.unwrap_or(DType::F16))?;
    Ok(Device { trace: cuda.trace(), lanes: 1, ops: Box::new(cuda) })
}

/// The weights that were asked for: a file, or `formula:` and a size.
pub fn weights(name: &str) -> Result<Box<dyn Source>> {
    let config = match name.strip_prefix("formula:") {
        None => return Ok(Box::new(Safetensors::open(Path::new(name))?)),
        Some("tiny") => Config::tiny(),
        Some("full") => Config::full(),
        Some(other) => return Err(Failure::Model(format!("formula:{other}: the sizes are tiny and full"))),
    };
    Ok(Box::new(Formula::new(config.tensors(), config.groups, SEED)))
}

/// The tiles that were asked for.
pub fn tiling(args: &PlanArgs, config: &Config) -> Result<Option<Tiling>> {
    let Some(tile) = args.tile else { return Ok(None) };
    let overlap = args.overlap.unwrap_or(Hw::new(tile.h / 8, tile.w / 8));
    checked_tiling(tile, overlap, config.spatial_factor(), "--overlap").map(Some)
}

/// Tiles that can be laid; `option` is what their overlap is called.
pub fn checked_tiling(tile: Hw, overlap: Hw, factor: usize, option: &str) -> Result<Tiling> {
    if tile.h < factor || tile.w < factor {
        return Err(Failure::Usage(format!("--tile {tile}: a tile has at least {factor} pixels a side")));
    }
    if overlap.h >= tile.h || overlap.w >= tile.w {
        return Err(Failure::Usage(format!("{option} {overlap} must be smaller than --tile {tile}")));
    }
    Ok(Tiling { tile, overlap })
}

static CANCELLED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C ends the run after the slice in hand; a second one ends it at once.
pub fn catch_ctrl_c() {
    // A handler that cannot be set leaves the system's own, which ends the run at once.
    let _ = ctrlc::set_handler(|| {
        if CANCELLED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Failure::Cancelled.code()));
        }
    });
}

/// An error once Ctrl-C has been pressed.
pub fn check_cancelled() -> Result<()> {
    if CANCELLED.load(Ordering::SeqCst) { Err(Failure::Cancelled) } else { Ok(()) }
}
