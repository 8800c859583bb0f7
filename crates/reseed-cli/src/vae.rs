//! `reseed vae encode` and `reseed vae decode`: tensors in, tensors out.

use std::collections::BTreeMap;
use std::path::Path;

use reseed::internals::memory::Watch;
use reseed::internals::model::plan::{TileInput, padded_frames, padded_plane};
use reseed::internals::model::{Coder, Config, Vae};
use reseed::internals::ops::{CopyTime, Device, ProfileOps, Shape};
use reseed::internals::{
    self, CoderClip, CoderRun, DeviceHandle, Extended, TensorInput, TensorOutput, crop, refuse_same_file, vae_weights,
};
use reseed::{Hw, Precision, Profile, Thw};
use serde_json::json;

use crate::args::{RunArgs, TensorArgs};
use crate::console;
use crate::failure::Result;
use crate::progress::Progress;
use crate::report::{self, HostMemory, bytes, merged};
use crate::shutdown;

pub fn encode(args: &TensorArgs) -> Result<()> {
    in_range(args, &args.input, |args| &mut args.run.compute.dtype, encode_once)
}

pub fn decode(args: &TensorArgs) -> Result<()> {
    in_range(args, &args.input, |args| &mut args.run.compute.dtype, decode_once)
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

fn encode_once(args: &TensorArgs) -> Result<()> {
    let device = open_device(&args.run)?;
    refuse_same_file(&args.input, &args.output)?;
    let input = TensorInput::open(&args.input)?;
    let source = vae_weights(&args.weights)?;
    let config = Config::detect(&*source)?;
    input.needs_channels(&[config.image], "frames")?;
    let (config, encoder) = Vae::load_encoder(&*device.ops, &*source)?;

    let (frames, plane) = (input.frames, input.plane);
    let total = padded_frames(frames, config.temporal_factor());
    let padded = padded_plane(plane, config.spatial_factor());
    let latent = encoder.plane_out(padded);
    let shape = Thw { t: encoder.frames_out(total, true), h: latent.h, w: latent.w };
    let metadata = [("frames", frames), ("height", plane.h), ("width", plane.w)];
    let metadata = metadata.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let shape = chw(shape, encoder.channels_out());
    let mut output = TensorOutput::create(&args.output, shape, &metadata)?;
    let _guard = shutdown::guard_file(output.partial());

    let mut i = 0;
    let next = || -> reseed::Result<Option<Vec<f32>>> {
        i += 1;
        (i <= frames).then(|| input.frame(i - 1, config.image)).transpose()
    };
    let mut source_frame = Extended::new(next, plane, config.spatial_factor(), config.temporal_factor());
    let clip = CoderClip { coder: &encoder, config: &config, input: TileInput::Frames, plane: padded, frames: total };
    let run = Run { name: "vae encode", args: &args.run, device: &device, clip, total };
    let done = run.run(
        |count| source_frame.slice(count),
        |values| {
            let frame = latent.count() * encoder.channels_out();
            values.chunks_exact(frame).try_for_each(|frame| output.frame(frame, encoder.channels_out()))
        },
    )?;
    output.finish()?;
    done.print(&args.output, shape);
    Ok(())
}

fn decode_once(args: &TensorArgs) -> Result<()> {
    let device = open_device(&args.run)?;
    refuse_same_file(&args.input, &args.output)?;
    let input = TensorInput::open(&args.input)?;
    let source = vae_weights(&args.weights)?;
    let config = Config::detect(&*source)?;
    input.needs_channels(&[config.latent, 2 * config.latent], "latents and moments")?;
    let (config, decoder) = Vae::load_decoder(&*device.ops, &*source)?;

    let whole = decoder.plane_out(input.plane);
    let total = decoder.frames_out(input.frames, true);
    let (frames, plane) = original(&input, &config, total, whole);
    let shape = chw(Thw { t: frames, h: plane.h, w: plane.w }, config.image);
    let mut output = TensorOutput::create(&args.output, shape, &BTreeMap::new())?;
    let _guard = shutdown::guard_file(output.partial());

    let (mut i, mut left) = (0, frames);
    let next = |count: usize| -> reseed::Result<Vec<f32>> {
        let end = (i + count).min(input.frames);
        let latents: reseed::Result<Vec<Vec<f32>>> = (i..end).map(|i| input.frame(i, config.latent)).collect();
        i = end;
        Ok(latents?.concat())
    };
    let clip = CoderClip {
        coder: &decoder,
        config: &config,
        input: TileInput::Latents,
        plane: input.plane,
        frames: input.frames,
    };
    let run = Run { name: "vae decode", args: &args.run, device: &device, clip, total };
    let done = run.run(next, |values| {
        for frame in values.chunks_exact(whole.count() * config.image).take(left) {
            output.frame(&crop(frame, whole, plane), config.image)?;
            left -= 1;
        }
        Ok(())
    })?;
    output.finish()?;
    done.print(&args.output, shape);
    Ok(())
}

fn chw(thw: Thw, channels: usize) -> Shape {
    Shape::from([thw.t, channels, thw.h, thw.w])
}

/// Length and size of the clip before it was source_frame and padded, where the encoder recorded them.
fn original(input: &TensorInput, config: &Config, frames: usize, plane: Hw) -> (usize, Hw) {
    let recorded = || {
        let recorded = (input.number("frames")?, Hw::new(input.number("height")?, input.number("width")?));
        let (n, size) = recorded;
        let possible = n > 0
            && padded_frames(n, config.temporal_factor()) == frames
            && padded_plane(size, config.spatial_factor()) == plane;
        possible.then_some(recorded)
    };
    recorded().unwrap_or((frames, plane))
}

/// Encoder or decoder over a whole clip.
struct Run<'a> {
    name: &'static str,
    args: &'a RunArgs,
    device: &'a DeviceHandle,
    clip: CoderClip<'a>,
    /// Frames of pixels.
    total: usize,
}

impl Run<'_> {
    fn run(
        &self,
        next: impl FnMut(usize) -> reseed::Result<Vec<f32>>,
        write: impl FnMut(&[f32]) -> reseed::Result<()>,
    ) -> Result<Done<'_>> {
        let watch = Watch::start();
        let device = self.device;
        let profiler = self.args.compute.profile.then(|| ProfileOps::new(&*device.ops));
        let ops: &dyn Device = profiler.as_ref().map_or(&*device.ops, |profiler| profiler);
        device.ops.copy_time()?;
        let mut progress = Progress::new(self.name, Some(self.total), self.args.compute.json);
        let coder = CoderRun { device, ops, clip: self.clip, settings: self.args.plan.settings() };
        coder.run(next, write, &mut progress)?;
        progress.finish();
        let profile = match profiler.zip(device.ceiling) {
            Some((profiler, ceiling)) => Some(Profile { records: profiler.records()?, ceiling }),
            None => None,
        };
        let (copies, seconds) = (device.ops.copy_time()?, progress.elapsed().as_secs_f64());
        Ok(Done { run: self, seconds, fps: progress.fps(), memory: HostMemory::since(&watch), copies, profile })
    }
}

/// A finished run.
struct Done<'a> {
    run: &'a Run<'a>,
    seconds: f64,
    fps: f64,
    memory: HostMemory,
    copies: CopyTime,
    profile: Option<Profile>,
}

impl Done<'_> {
    fn print(&self, output: &Path, shape: Shape) {
        let Done { run: Run { name, args, device, total, .. }, seconds, fps, memory, copies, profile } = self;
        let peak = device.gpu.as_ref().map(|gpu| gpu.peak_bytes());
        if let Some(profile) = profile {
            report::profile(profile, args.compute.json);
        }
        if args.compute.json {
            let done = json!({
                "event": "done", "command": name, "device": device.ops.name(),
                "dtype": device.ops.precision().to_string(), "frames": total, "seconds": seconds, "fps": fps,
                "gpu_peak_bytes": peak, "copy_seconds": copies.copying, "copy_hidden": copies.hidden(),
            });
            say!("{}", merged(done, memory.json()));
        } else if !console::is_quiet() {
            say!("{total} frames in {seconds:.2} s ({fps:.2} fps) on {}", device.ops.name());
            say!("{}", memory.line());
            if let Some(peak) = peak {
                let (peak, hidden) = (bytes(peak), 100.0 * copies.hidden());
                say!("peak GPU memory {peak}; copies {:.3} s, {hidden:.0}% hidden", copies.copying);
            }
            say!("{}: output {shape}", output.display());
        }
    }
}
