//! `reseed vae encode` and `reseed vae decode`: tensors in, tensors out.

use std::path::Path;

use reseed::internals::memory::Watch;
use reseed::internals::ops::{Device, ProfileOps};
use reseed::internals::{self, DeviceHandle, Direction, TensorClip, refuse_same_file, vae_weights};
use reseed::{Precision, Profile};
use serde_json::json;

use crate::console;
use crate::failure::Result;
use crate::progress::Progress;
use crate::report::{self, HostMemory, bytes, merged};
use crate::shutdown;
use reseed_args::{RunArgs, TensorArgs};

pub fn encode(args: &TensorArgs) -> Result<()> {
    let encode = |args: &TensorArgs| convert(args, Direction::Encode, "vae encode");
    in_range(args, &args.input, |args| &mut args.run.compute.math.dtype, encode)
}

pub fn decode(args: &TensorArgs) -> Result<()> {
    let decode = |args: &TensorArgs| convert(args, Direction::Decode, "vae decode");
    in_range(args, &args.input, |args| &mut args.run.compute.math.dtype, decode)
}

/// Runs `job`. Where values leave the range of f16, no type was chosen and the input can be read again, runs it again
/// in bf16.
pub fn in_range<A: Clone>(
    args: &A,
    input: &Path,
    dtype: fn(&mut A) -> &mut Option<Precision>,
    job: impl Fn(&A) -> Result<()>,
) -> Result<()> {
    match job(args) {
        Err(failure) if failure.is_out_of_range() => {
            let mut args = args.clone();
            if dtype(&mut args).is_some() || input == Path::new("-") {
                return Err(failure);
            }
            console::warn("rerun", &format_args!("{failure}: running again in bf16"));
            *dtype(&mut args) = Some(Precision::Bf16);
            job(&args)
        }
        done => done,
    }
}

/// Opens the device of a command, and shows its remarks.
pub fn open_device(args: &RunArgs) -> Result<DeviceHandle> {
    let device = internals::open(&args.compute.options(args.plan.max_vram)?)?;
    device.warnings.iter().for_each(|warning| console::warn("device", warning));
    Ok(device)
}

/// Converts a clip and prints how long it took.
fn convert(args: &TensorArgs, direction: Direction, name: &'static str) -> Result<()> {
    let device = open_device(&args.run)?;
    refuse_same_file(&args.input, &args.output)?;
    let weights = vae_weights(&args.weights)?;
    let clip = TensorClip::open(direction, &device, &*weights, [&args.input, &args.output])?;
    let (frames, shape) = (clip.frames(), clip.shape());
    let _guard = shutdown::guard_file(clip.partial());
    let watch = Watch::start();
    let profiler = args.run.compute.profile.then(|| ProfileOps::new(&*device.ops));
    let ops: &dyn Device = profiler.as_ref().map_or(&*device.ops, |profiler| profiler);
    device.ops.copy_time()?;
    let mut progress = Progress::new(name, Some(frames), args.run.compute.json);
    clip.run(&device, ops, args.run.plan.settings(), &mut progress)?;
    progress.finish();
    if let Some((profiler, ceiling)) = profiler.as_ref().zip(device.ceiling) {
        report::profile(&Profile { records: profiler.records()?, ceiling }, args.run.compute.json);
    }
    print(name, args, &device, frames, (&progress, HostMemory::since(&watch)))?;
    if !args.run.compute.json && !console::is_quiet() {
        say!("{}: output {shape}", args.output.display());
    }
    Ok(())
}

fn print(
    name: &str,
    args: &TensorArgs,
    device: &DeviceHandle,
    frames: usize,
    (progress, memory): (&Progress, HostMemory),
) -> Result<()> {
    let (seconds, fps, copies) = (progress.elapsed().as_secs_f64(), progress.fps(), device.ops.copy_time()?);
    let peak = device.gpu.as_ref().map(|gpu| gpu.peak_bytes());
    if args.run.compute.json {
        let done = json!({
            "event": "done", "command": name, "device": device.ops.name(),
            "dtype": device.ops.precision().to_string(), "frames": frames, "seconds": seconds, "fps": fps,
            "gpu_peak_bytes": peak, "copy_seconds": copies.copying, "copy_hidden": copies.hidden(),
        });
        say!("{}", merged(done, memory.json()));
    } else if !console::is_quiet() {
        say!("{frames} frames in {seconds:.2} s ({fps:.2} fps) on {}", device.ops.name());
        say!("{}", memory.line());
        if let Some(peak) = peak {
            let (peak, hidden) = (bytes(peak), 100.0 * copies.hidden());
            say!("peak GPU memory {peak}; copies {:.3} s, {hidden:.0}% hidden", copies.copying);
        }
    }
    Ok(())
}
