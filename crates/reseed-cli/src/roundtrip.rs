//! `reseed vae roundtrip`: frames through encoder and decoder, and the loss.

use std::collections::VecDeque;
use std::path::Path;

use reseed::internals::memory::Watch;
use reseed::internals::model::plan::{TileInput, padded_frames};
use reseed::internals::model::{Coder, SliceData, Vae};
use reseed::internals::ops::{Pixels, ProfileOps};
use reseed::internals::{self, Clip, Device, Extended, crop, refuse_same_file, vae_weights};
use reseed::media::{Depth, Frame, Info, Samples, Sink, Size, Source, metrics};
use reseed::{Error, Hw, Profile};
use serde_json::json;

use crate::args::{RoundtripArgs, RunArgs};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{self, HostMemory, merged};
use crate::shutdown;
use crate::vae::{in_range, open_device};

/// Frames that a clip of unknown length is planned for: more would not change the plan.
const UNKNOWN: usize = 33;

pub fn run(args: &RoundtripArgs) -> Result<()> {
    in_range(args, &args.input, |args| &mut args.run.compute.dtype, run_once)
}

fn run_once(args: &RoundtripArgs) -> Result<()> {
    report::make_way_for(&args.output);
    if args.input != Path::new("-") {
        refuse_same_file(&args.input, &args.output)?;
    }
    let source = reseed::media::open(&args.input).map_err(Failure::input)?;
    roundtrip(source, args)
}

/// Sums over frames.
#[derive(Default)]
struct Quality {
    frames: usize,
    psnr: f64,
    ssim: f64,
}

impl Quality {
    fn add(&mut self, before: &Frame, after: &Frame) {
        self.frames += 1;
        // Identical frames have no finite PSNR; 100 dB is more than 16 bits can show.
        self.psnr += metrics::psnr(before, after).min(100.0);
        self.ssim += metrics::ssim(before, after);
    }

    fn mean(&self) -> (f64, f64) {
        (self.psnr / self.frames as f64, self.ssim / self.frames as f64)
    }
}

fn roundtrip(mut source: Box<dyn Source>, args: &RoundtripArgs) -> Result<()> {
    shutdown::catch_ctrl_c();
    let (output, run) = (&args.output, &args.run);
    let device = open_device(run)?;
    let vae = Vae::load(&*device.ops, &*vae_weights(&args.weights)?)?;
    let profiler = run.compute.profile.then(|| ProfileOps::new(&*device.ops));
    let ops: &dyn reseed::internals::ops::Device = profiler.as_ref().map_or(&*device.ops, |profiler| profiler);
    let info = source.info().clone();
    let mut sink = reseed::media::create(output, &info).map_err(Failure::output)?;
    let watch = Watch::start();
    let mut progress = Progress::new("vae roundtrip", info.frames, run.compute.json);
    let quality = pump(&vae, ops, &device, &mut *source, &mut *sink, &mut progress, run)?;
    if quality.frames == 0 {
        return Err(Error::NoFrames { path: Some(args.input.clone()) }.into());
    }
    sink.finish().map_err(Failure::output)?;
    progress.finish();
    if let Some((profiler, ceiling)) = profiler.as_ref().zip(device.ceiling) {
        report::profile(&Profile { records: profiler.records()?, ceiling }, run.compute.json);
    }
    print(&quality, &progress, HostMemory::since(&watch), output, run, &*device.ops);
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "both ends of the pipe and all between them")]
fn pump(
    vae: &Vae,
    ops: &dyn reseed::internals::ops::Device,
    device: &Device,
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    progress: &mut Progress,
    args: &RunArgs,
) -> Result<Quality> {
    let config = &vae.config;
    let info: Info = source.info().clone();
    let plane = Hw::new(info.size.h, info.size.w);
    let originals = std::cell::RefCell::new(VecDeque::new());
    let next = || -> Result<Option<Pixels>> {
        let Some(frame) = source.next().map_err(Failure::input)? else { return Ok(None) };
        let pixels = pixels(&frame, info.depth);
        originals.borrow_mut().push_back(frame);
        Ok(Some(pixels))
    };
    let mut clip = Extended::new(next, plane, config.spatial_factor(), config.temporal_factor());
    let padded = clip.padded();
    let latent = vae.encoder.plane_out(padded);
    let frames = padded_frames(info.frames.unwrap_or(UNKNOWN).max(1), config.temporal_factor());
    let latents = vae.encoder.frames_out(frames, true);
    let encode = Clip { coder: &vae.encoder, config, cut: TileInput::Frames, plane: padded, frames };
    let decode = Clip { coder: &vae.decoder, config, cut: TileInput::Latents, plane: latent, frames: latents };
    let plans = internals::reserve(device, &args.plan.settings(), &[encode, decode])?;
    plans.iter().filter_map(|plan| plan.warning()).for_each(|warning| report::warn(warning));
    let [encode, decode] = &plans[..] else { unreachable!("two plans") };
    let mut encoder = encode.stream(ops, &vae.encoder, padded);
    let mut decoder = decode.stream(ops, &vae.decoder, latent);
    let step = encode.step();
    let (mut quality, mut decoded) = (Quality::default(), Pixels::default());
    let mut slice = clip.slice(step + 1)?;
    while !slice.is_empty() {
        if shutdown::is_cancelled() {
            return Err(Error::Cancelled.into());
        }
        let ahead = clip.slice(step)?;
        let last = ahead.is_empty();
        let moments = ops.download(&encoder.run(SliceData::Pixels(&slice), last)?)?;
        let mean: Vec<f32> =
            moments.chunks_exact(2 * config.latent).flat_map(|m| &m[..config.latent]).copied().collect();
        ops.start_download_pixels(&decoder.run(SliceData::Values(&mean), last)?, slice.depth())?.wait(&mut decoded)?;
        for i in 0..decoded.len() / (padded.count() * config.image) {
            // Frames that only extend the clip have no original.
            let Some(before) = originals.borrow_mut().pop_front() else { break };
            let after = frame(&decoded, i, padded, info.size);
            sink.write(&after).map_err(Failure::output)?;
            quality.add(&before, &after);
            progress.advance(1);
        }
        slice = ahead;
    }
    Ok(quality)
}

/// The samples of a frame in the depth of its clip; images of a folder may have another depth.
fn pixels(frame: &Frame, depth: Depth) -> Pixels {
    let samples = match frame.depth() == depth {
        true => frame.samples.clone(),
        false => Samples::from_unit(&frame.to_unit(), depth),
    };
    match samples {
        Samples::U8(samples) => Pixels::U8(samples),
        Samples::U16(samples) => Pixels::U16(samples),
    }
}

/// Frame `i` of a slice without its padding.
fn frame(decoded: &Pixels, i: usize, padded: Hw, size: Size) -> Frame {
    let (plane, whole) = (Hw::new(size.h, size.w), 3 * padded.count());
    let samples = match decoded {
        Pixels::U8(codes) => Samples::U8(crop(&codes[i * whole..][..whole], padded, plane)),
        Pixels::U16(codes) => Samples::U16(crop(&codes[i * whole..][..whole], padded, plane)),
    };
    Frame { size, samples, alpha: None }
}

fn print(
    quality: &Quality,
    progress: &Progress,
    memory: HostMemory,
    output: &Path,
    args: &RunArgs,
    ops: &dyn reseed::internals::ops::Device,
) {
    let (psnr, ssim) = quality.mean();
    let seconds = progress.elapsed().as_secs_f64();
    if args.compute.json {
        let done = json!({
            "event": "done", "command": "vae roundtrip", "device": ops.name(), "dtype": ops.precision().to_string(),
            "frames": quality.frames, "seconds": seconds, "fps": progress.fps(), "psnr": psnr, "ssim": ssim,
            "output": output.to_string_lossy(),
        });
        say!("{}", merged(done, memory.json()));
    } else if !report::is_quiet() {
        say!(
            "{}: {} frames in {seconds:.2} s ({:.2} fps) on {}",
            output.display(),
            quality.frames,
            progress.fps(),
            ops.name()
        );
        say!("PSNR {psnr:.2} dB, SSIM {ssim:.4}");
        say!("{}", memory.line());
    }
}
