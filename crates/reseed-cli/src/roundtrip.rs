//! `reseed vae roundtrip`: frames through encoder and decoder, and the loss.

use std::path::Path;

use reseed::internals::memory::Watch;
use reseed::internals::model::Vae;
use reseed::internals::ops::{Device, ProfileOps};
use reseed::internals::{Roundtrip, refuse_same_file, vae_weights};
use reseed::media::Source;
use reseed::{Error, Profile};
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{self, HostMemory, merged};
use crate::vae::{in_range, open_device};
use reseed_args::{RoundtripArgs, RunArgs};

pub fn run(args: &RoundtripArgs) -> Result<()> {
    in_range(args, &args.input, |args| &mut args.run.compute.math.dtype, run_once)
}

fn run_once(args: &RoundtripArgs) -> Result<()> {
    console::make_way_for(&args.output);
    if args.input != Path::new("-") {
        refuse_same_file(&args.input, &args.output)?;
    }
    let source = reseed::media::open(&args.input).map_err(Failure::input)?;
    roundtrip(source, args)
}

fn roundtrip(mut source: Box<dyn Source>, args: &RoundtripArgs) -> Result<()> {
    let (output, run) = (&args.output, &args.run);
    let device = open_device(run)?;
    let vae = Vae::load(&*device.ops, &*vae_weights(&args.weights)?)?;
    let profiler = run.compute.profile.then(|| ProfileOps::new(&*device.ops));
    let ops: &dyn Device = profiler.as_ref().map_or(&*device.ops, |profiler| profiler);
    let info = source.info().clone();
    let mut sink = reseed::media::create(output, &info).map_err(Failure::output)?;
    let watch = Watch::start();
    let mut progress = Progress::new("vae roundtrip", info.frames, run.compute.json);
    let roundtrip = Roundtrip { vae: &vae, device: &device, ops, settings: run.plan.settings() };
    let loss = roundtrip.run(&mut *source, &mut *sink, &mut progress)?;
    if loss.frames == 0 {
        return Err(Error::NoFrames { path: Some(args.input.clone()) }.into());
    }
    sink.finish().map_err(Failure::output)?;
    progress.finish();
    if let Some((profiler, ceiling)) = profiler.as_ref().zip(device.ceiling) {
        report::profile(&Profile { records: profiler.records()?, ceiling }, run.compute.json);
    }
    print((loss.frames, loss.mean()), &progress, HostMemory::since(&watch), output, run, &*device.ops);
    Ok(())
}

fn print(
    (frames, (psnr, ssim)): (usize, (f64, f64)),
    progress: &Progress,
    memory: HostMemory,
    output: &Path,
    args: &RunArgs,
    ops: &dyn Device,
) {
    let seconds = progress.elapsed().as_secs_f64();
    if args.compute.json {
        let done = json!({
            "event": "done", "command": "vae roundtrip", "device": ops.name(), "dtype": ops.precision().to_string(),
            "frames": frames, "seconds": seconds, "fps": progress.fps(), "psnr": psnr, "ssim": ssim,
            "output": output.to_string_lossy(),
        });
        say!("{}", merged(done, memory.json()));
    } else if !console::is_quiet() {
        say!("{}: {} frames in {seconds:.2} s ({:.2} fps) on {}", output.display(), frames, progress.fps(), ops.name());
        say!("PSNR {psnr:.2} dB, SSIM {ssim:.4}");
        say!("{}", memory.line());
    }
}
