//! `reseed doctor`: what this machine offers.

use reseed_ops::{CpuOps, DType, Level, Ops};

use crate::failure::Result;
use crate::memory;
use crate::report::bytes;

pub fn run() -> Result<()> {
    let cpu = CpuOps::new(DType::F32, None)?;
    let levels: Vec<String> = Level::available().map(|level| level.to_string()).collect();
    say!("reseed  {}", env!("CARGO_PKG_VERSION"));
    say!("device  {}", cpu.device());
    say!("levels  {} (cap with RESEED_CPU)", levels.join(", "));
    say!("memory  {}", memory::machine().map_or("unknown".into(), bytes));
    Ok(())
}
