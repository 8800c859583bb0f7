//! From options to a device, a model's weights and a plan.

use std::path::Path;
use std::sync::Arc;

use reseed_cpu::{CpuOps, Level};
use reseed_cuda::CudaOps;
use reseed_model::plan::Tiling;
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Coder, Config, Vae, nano};
use reseed_ops::{Ceiling, CheckOps, Hw, Precision, TraceOps};

use crate::args::{AUTO, ComputeArgs, Direction, PlanArgs};
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::report;
use crate::tuning;

/// Seed of formula weights.
pub const SEED: u64 = 1;

const CPU: &str = "cpu";
const CARD: &str = "cuda";

/// Makes devices that compute nothing and count what another would take.
pub type Trace = Box<dyn Fn() -> TraceOps + Send + Sync>;

/// Where a run computes.
pub struct Device {
    /// The device.
    pub ops: Arc<dyn reseed_ops::Device>,
    /// Makes one that computes nothing and counts what it would take.
    pub trace: Trace,
    /// Bytes that tensors may take beside the weights, where there is a limit.
    pub room: Box<dyn Fn() -> Result<Option<usize>> + Send + Sync>,
    /// Latent frames of a slice where nothing else decides.
    pub slice: Option<usize>,
    /// How many small tiles are worth running at the same time.
    pub lanes: usize,
    /// The card, if it is one.
    pub card: Option<Arc<CudaOps>>,
    /// The most that it can do, measured where a profile is asked for.
    pub ceiling: Option<Ceiling>,
}

/// The autoencoder's device and, where it computes in another type, the transformer's. A model whose decoder needs f32 has
/// the rest of its networks in what suits the processor, unless somebody asked for a type.
pub fn devices(
    args: &ComputeArgs,
    max_vram: Option<usize>,
    weights: Option<&Weights>,
) -> Result<(Device, Option<Device>)> {
    let args = &placed(args);
    let mixed = args.dtype.is_none() && args.device == CPU && weights.is_some_and(Weights::decodes_in_f32);
    if mixed && cpu_precision(None)? != Precision::F32 {
        let other = ComputeArgs { profile: false, ..args.clone() };
        let fine = ComputeArgs { dtype: Some(Precision::F32), ..args.clone() };
        return Ok((cpu(&fine, max_vram)?, Some(cpu(&other, max_vram)?)));
    }
    let device = device(args, max_vram)?;
    let other = transformer_device(args, max_vram, &device)?;
    Ok((device, other))
}

/// The encoder's device: the transformer's where the autoencoder's is f32 for the decoder's sake.
pub fn encoder<'a>(device: &'a Device, transformer: &'a Device) -> &'a Device {
    match device.ops.precision() {
        Precision::F32 => transformer,
        _ => device,
    }
}

/// The transformer's device, where it computes in another type than the autoencoder's `device`: f16 costs it 15 dB, so
/// that it takes bf16 there. On a card the two share all memory.
pub fn transformer_device(args: &ComputeArgs, max_vram: Option<usize>, device: &Device) -> Result<Option<Device>> {
    // What the autoencoder's device can do has been measured.
    let args = ComputeArgs { dtype: Some(Precision::Bf16), profile: false, ..args.clone() };
    match (&device.card, device.ops.precision()) {
        (Some(card), Precision::F16) => card_device(card.with_precision(Precision::Bf16)?, &args).map(Some),
        (None, Precision::F16) => cpu(&args, max_vram).map(Some),
        _ => Ok(None),
    }
}

/// What `auto` stands for here. A card that is there and cannot be used is for its owner to know of.
pub fn auto() -> &'static str {
    if reseed_cuda::devices().is_ok_and(|cards| !cards.is_empty()) { CARD } else { CPU }
}

fn placed(args: &ComputeArgs) -> ComputeArgs {
    let device = if args.device == AUTO { auto() } else { &args.device };
    ComputeArgs { device: device.into(), ..args.clone() }
}

/// The device that was asked for, in the type that was asked for or that suits it best.
pub fn device(args: &ComputeArgs, max_vram: Option<usize>) -> Result<Device> {
    let args = &placed(args);
    let number = match args.device.as_str() {
        CPU => return cpu(args, max_vram),
        CARD => Some(0),
        word => word.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    let unknown = || Failure::Usage(format!("--device {}: the devices are auto, cpu, cuda and cuda:N", args.device));
    let cuda = CudaOps::new(number.ok_or_else(unknown)?, args.dtype.unwrap_or(Precision::F16), reseed_cpu::matmul)?;
    let mut cuda = cuda.within(max_vram);
    cuda.tune(&tuning::record(), args.tune)?.iter().for_each(|line| report::warn(line));
    card_device(cuda, args)
}

fn card_device(cuda: CudaOps, args: &ComputeArgs) -> Result<Device> {
    let cuda = Arc::new(cuda);
    let card = cuda.clone();
    let room = move || Ok(Some(card.room_for_tensors()?));
    let trace = cuda.tracer();
    let ceiling = args.profile.then(|| Ceiling::measure(&*cuda)).transpose()?;
    let ops: Arc<dyn reseed_ops::Device> = match check()? {
        true => checked(CpuOps::new(reseed_ops::Device::dtype(&*cuda), args.threads.map(usize::from))?, cuda.clone()),
        false => cuda.clone(),
    };
    Ok(Device { trace, room: Box::new(room), slice: None, lanes: 1, card: Some(cuda), ceiling, ops })
}

fn cpu(args: &ComputeArgs, max_vram: Option<usize>) -> Result<Device> {
    if max_vram.is_some() {
        return Err(Failure::Usage(
            "--max-vram is for --device cuda; on the cpu --slice and --tile save memory".into(),
        ));
    }
    let (precision, threads) = (cpu_precision(args.dtype)?, args.threads.map(usize::from));
    let cpu = Arc::new(CpuOps::new(precision.dtype(), threads)?);
    let (lanes, tracer) = (cpu.threads(), cpu.clone());
    let ceiling = args.profile.then(|| Ceiling::measure(&*cpu)).transpose()?;
    let trace = Box::new(move || tracer.trace());
    let ops: Arc<dyn reseed_ops::Device> = match check()? {
        true => checked(CpuOps::at(Level::Reference, precision.dtype(), threads)?, cpu),
        false => cpu,
    };
    Ok(Device { trace, room: Box::new(|| Ok(None)), slice: Some(1), lanes, card: None, ceiling, ops })
}

/// What was asked for, or what suits the processor.
pub fn cpu_precision(asked: Option<Precision>) -> Result<Precision> {
    match asked {
        Some(Precision::Tf32) => {
            let reason = "--dtype tf32 needs tensor cores; use --device cuda, or --dtype f32, f16 or bf16";
            Err(Failure::Usage(reason.into()))
        }
        Some(precision) => Ok(precision),
        None => Ok(Level::detect()?.dtype().into()),
    }
}

/// Whether `RESEED_CHECK` asks for every op to be compared.
fn check() -> Result<bool> {
    match std::env::var("RESEED_CHECK").as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(word) => Err(Failure::Usage(format!("RESEED_CHECK={word}: 1 compares every op with the processor's"))),
    }
}

/// `device` with every op held against `reference`, and a line on stderr for each that disagrees. Both live as long as
/// the program.
fn checked(reference: CpuOps, device: Arc<impl reseed_ops::Device + 'static>) -> Arc<dyn reseed_ops::Device> {
    let (reference, device) = (Box::leak(Box::new(reference)), Box::leak(Box::new(device)));
    Arc::new(CheckOps::reporting(reference, &**device, |found| eprintln!("reseed: check: {found}")))
}

/// Runs `job`; where values leave the range of f16, which nobody asked for, once more in bf16, if the input is still there.
pub fn in_range<A: Clone>(
    args: &A,
    input: &Path,
    dtype: fn(&mut A) -> &mut Option<Precision>,
    mut job: impl FnMut(&A) -> Result<()>,
) -> Result<()> {
    match job(args) {
        Err(Failure::OutOfRange(line)) if dtype(&mut args.clone()).is_none() && input != Path::new("-") => {
            report::warn(&format!("{line}: running again in bf16"));
            let mut args = args.clone();
            *dtype(&mut args) = Some(Precision::Bf16);
            job(&args)
        }
        done => done,
    }
}

/// The weights that were asked for: a file, the ones inside this program, or `formula:` and a size.
pub fn weights(name: &str) -> Result<Box<dyn Source>> {
    let config = match name.strip_prefix("formula:") {
        None if name == nano::NAME => return Ok(Box::new(nano::vae()?)),
        None => return Ok(Box::new(Safetensors::open(Path::new(name))?)),
        Some("tiny") => Config::tiny(),
        Some("full") => Config::full(),
        Some(other) => return Err(Failure::Model(format!("formula:{other}: the sizes are tiny and full"))),
    };
    Ok(Box::new(Formula::new(config.tensors(), config.groups, SEED)))
}

/// One half of the VAE alone.
pub fn half(
    ops: &dyn reseed_ops::Device,
    source: &dyn Source,
    direction: Direction,
) -> Result<(Config, Box<dyn Coder>)> {
    Ok(match direction {
        Direction::Encode => {
            let (config, encoder) = Vae::load_encoder(ops, source)?;
            (config, Box::new(encoder))
        }
        Direction::Decode => {
            let (config, decoder) = Vae::load_decoder(ops, source)?;
            (config, Box::new(decoder))
        }
    })
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
