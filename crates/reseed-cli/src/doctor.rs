//! `reseed doctor`: what this machine offers.

use reseed_cpu::{CpuOps, Level};
use reseed_cuda::DeviceInfo;
use reseed_ops::Device;

use crate::engine;
use crate::failure::Result;
use crate::report::bytes;
use crate::tuning;
use reseed::memory;

pub fn run() -> Result<()> {
    let dtype = Level::detect()?.dtype();
    let cpu = CpuOps::new(dtype, None)?;
    let levels: Vec<String> = Level::available().map(|level| level.to_string()).collect();
    say!("reseed  {}", env!("CARGO_PKG_VERSION"));
    say!("device  {} unless told otherwise (--device)", engine::auto());
    say!("cpu     {}, {dtype} unless told otherwise", cpu.name());
    say!("levels  {} (cap with RESEED_CPU)", levels.join(", "));
    match reseed_cuda::devices() {
        Ok(cards) => cards.iter().for_each(card),
        Err(error) => say!("cuda    {error}"),
    }
    say!("tuning  {}", tuning::summary());
    match reseed_media::ffmpeg_path() {
        Ok(path) => say!("ffmpeg  {}", path.display()),
        Err(error) => say!("ffmpeg  {error}"),
    }
    say!("memory  {}", memory::machine().map_or("unknown".into(), bytes));
    Ok(())
}

fn card(card: &DeviceInfo) {
    let DeviceInfo { ordinal, name, capability, memory, driver } = card;
    let (capability, driver) = (format!("{}.{}", capability.0, capability.1), format!("{}.{}", driver.0, driver.1));
    say!("cuda:{ordinal}  {name}, compute capability {capability}, {}, driver for CUDA {driver}", bytes(*memory));
}
