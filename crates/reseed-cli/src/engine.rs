//! From options to a device, a model's weights and a plan.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use reseed_model::Config;
use reseed_model::plan::Tiling;
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{CpuOps, Hw};

use crate::args::{PlanArgs, RunArgs};
use crate::failure::{Failure, Result};

/// Seed of formula weights.
const SEED: u64 = 1;

/// The device that was asked for.
pub fn device(args: &RunArgs) -> Result<CpuOps> {
    match args.device.as_str() {
        "cpu" => Ok(CpuOps::new(args.dtype, args.threads.map(usize::from))?),
        other => {
            Err(Failure::Device(format!("--device {other}: this build computes on the cpu only; use --device cpu")))
        }
    }
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
    let factor = config.spatial_factor();
    let overlap = args.overlap.unwrap_or(Hw::new(tile.h / 8, tile.w / 8));
    if tile.h < factor || tile.w < factor {
        return Err(Failure::Usage(format!("--tile {tile}: a tile has at least {factor} pixels a side")));
    }
    if overlap.h >= tile.h || overlap.w >= tile.w {
        return Err(Failure::Usage(format!("--overlap {overlap} must be smaller than --tile {tile}")));
    }
    Ok(Some(Tiling { tile, overlap }))
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
