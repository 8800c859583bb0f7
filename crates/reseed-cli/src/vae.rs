//! `reseed vae encode` and `reseed vae decode`: tensors in, tensors out.

use std::collections::BTreeMap;
use std::path::Path;

use reseed_model::plan::{TileInput, padded_frames, padded_plane};
use reseed_model::{Coder, Config, Vae};
use reseed_ops::{CopyTime, Hw, PendingDownload, ProfileOps, Record, Shape, Thw};
use serde_json::json;

use crate::args::{RunArgs, TensorArgs};
use crate::budget::{self, Clip};
use crate::clip::{Extended, crop};
use crate::ending;
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{self, MemoryWatch, bytes};
use crate::tensor_file::{TensorInput, TensorOutput};

pub fn encode(args: &TensorArgs) -> Result<()> {
    engine::in_range(args, &args.input, |args| &mut args.run.compute.dtype, encode_once)
}

pub fn decode(args: &TensorArgs) -> Result<()> {
    engine::in_range(args, &args.input, |args| &mut args.run.compute.dtype, decode_once)
}

fn encode_once(args: &TensorArgs) -> Result<()> {
    ending::catch_ctrl_c();
    let device = engine::device(&args.run.compute, args.run.plan.max_vram)?;
    refuse_same_file(&args.input, &args.output)?;
    let input = TensorInput::open(&args.input)?;
    let source = engine::weights(&args.weights)?;
    let config = Config::detect(&*source)?;
    input.needs_channels(&[config.image], "pictures")?;
    let (config, encoder) = Vae::load_encoder(&*device.ops, &*source)?;

    let (frames, plane) = (input.frames, input.plane);
    let total = padded_frames(frames, config.temporal_factor());
    let padded = padded_plane(plane, config.spatial_factor());
    let latent = encoder.plane_out(padded);
    let shape = Thw { t: encoder.frames_out(total, true), h: latent.h, w: latent.w };
    let metadata = [("frames", frames), ("height", plane.h), ("width", plane.w)];
    let metadata = metadata.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let mut output = TensorOutput::create(&args.output, chw(shape, encoder.channels_out()), &metadata)?;

    let mut i = 0;
    let next = || -> Result<Option<Vec<f32>>> {
        i += 1;
        (i <= frames).then(|| input.picture(i - 1, config.image)).transpose()
    };
    let mut clip = Extended::new(next, plane, config.spatial_factor(), config.temporal_factor());
    let run = Run { name: "vae encode", args: &args.run, device: &device, half: &encoder, config: &config };
    let done = run.clip(
        padded,
        TileInput::Frames,
        total,
        |count| clip.slice(count),
        |values| {
            let picture = latent.count() * encoder.channels_out();
            values.chunks_exact(picture).try_for_each(|p| output.picture(p, encoder.channels_out()))
        },
    )?;
    output.finish()?;
    done.tell(&args.output, chw(shape, encoder.channels_out()));
    Ok(())
}

fn decode_once(args: &TensorArgs) -> Result<()> {
    ending::catch_ctrl_c();
    let device = engine::device(&args.run.compute, args.run.plan.max_vram)?;
    refuse_same_file(&args.input, &args.output)?;
    let input = TensorInput::open(&args.input)?;
    let source = engine::weights(&args.weights)?;
    let config = Config::detect(&*source)?;
    input.needs_channels(&[config.latent, 2 * config.latent], "latents and moments")?;
    let (config, decoder) = Vae::load_decoder(&*device.ops, &*source)?;

    let whole = decoder.plane_out(input.plane);
    let total = decoder.frames_out(input.frames, true);
    let (frames, plane) = original(&input, &config, total, whole);
    let shape = Thw { t: frames, h: plane.h, w: plane.w };
    let mut output = TensorOutput::create(&args.output, chw(shape, config.image), &BTreeMap::new())?;

    let (mut i, mut left) = (0, frames);
    let next = |count: usize| -> Result<Vec<f32>> {
        let end = (i + count).min(input.frames);
        let pictures: Result<Vec<Vec<f32>>> = (i..end).map(|i| input.picture(i, config.latent)).collect();
        i = end;
        Ok(pictures?.concat())
    };
    let run = Run { name: "vae decode", args: &args.run, device: &device, half: &decoder, config: &config };
    let done = run.clip(input.plane, TileInput::Latents, total, next, |values| {
        for picture in values.chunks_exact(whole.count() * config.image).take(left) {
            output.picture(&crop(picture, whole, plane), config.image)?;
            left -= 1;
        }
        Ok(())
    })?;
    output.finish()?;
    done.tell(&args.output, chw(shape, config.image));
    Ok(())
}

fn chw(thw: Thw, channels: usize) -> Shape {
    Shape::from([thw.t, channels, thw.h, thw.w])
}

/// An error where a result would replace what it is made from.
pub fn refuse_same_file(input: &Path, output: &Path) -> Result<()> {
    let same = match (std::fs::canonicalize(input), std::fs::canonicalize(output)) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    };
    match same {
        true => Err(Failure::Usage(format!("{} is both input and output", input.display()))),
        false => Ok(()),
    }
}

/// Length and size of the clip before it was extended and padded, where the encoder noted them.
fn original(input: &TensorInput, config: &Config, frames: usize, plane: Hw) -> (usize, Hw) {
    let noted = || {
        let noted = (input.number("frames")?, Hw::new(input.number("height")?, input.number("width")?));
        let (n, size) = noted;
        let possible = n > 0
            && padded_frames(n, config.temporal_factor()) == frames
            && padded_plane(size, config.spatial_factor()) == plane;
        possible.then_some(noted)
    };
    noted().unwrap_or((frames, plane))
}

/// One half of the VAE over a whole clip.
pub struct Run<'a> {
    pub name: &'static str,
    pub args: &'a RunArgs,
    pub device: &'a Device,
    pub half: &'a dyn Coder,
    pub config: &'a Config,
}

impl Run<'_> {
    /// Pulls slices from `next` until it has none and pushes results to `write`. `total` counts pictures.
    fn clip(
        &self,
        plane: Hw,
        cut: TileInput,
        total: usize,
        mut next: impl FnMut(usize) -> Result<Vec<f32>>,
        mut write: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<Done<'_>> {
        let watch = MemoryWatch::start();
        let profiler = self.args.compute.profile.then(|| ProfileOps::new(&*self.device.ops));
        let ops: &dyn reseed_ops::Device = profiler.as_ref().map_or(&*self.device.ops, |p| p);
        let frames = if cut == TileInput::Frames { total } else { 1 + (total - 1) / self.config.temporal_factor() };
        let clip = Clip { half: self.half, config: self.config, cut, plane, frames };
        let mut planned = budget::reserve(self.device, &self.args.plan, &[clip])?.swap_remove(0);
        let (mut stream, step) = (planned.stream(ops, self.half, plane), planned.step());
        let mut smaller = || budget::shrink(self.device, &self.args.plan, &clip, &mut planned);
        self.device.ops.copy_time()?;
        let mut progress = Progress::new(self.name, Some(total), self.args.compute.json);
        let mut slice = next(step + 1)?;
        let mut first = true;
        // The result of a slice is prefetched and written while the next one runs.
        let mut values = Vec::new();
        let mut running: Option<(Box<dyn PendingDownload>, usize)> = None;
        while !slice.is_empty() {
            ending::check_cancelled()?;
            let ahead = next(step)?;
            let frames = slice.len() / (plane.count() * self.half.channels_in());
            let pictures = if cut == TileInput::Frames { frames } else { self.half.frames_out(frames, first) };
            // A card's memory may be gone when it is wanted; to go on then, the first slices are held.
            let started = match self.device.card {
                Some(_) => stream.start_or_replan(&slice, ahead.is_empty(), &mut smaller)?,
                None => stream.start(&slice, ahead.is_empty())?,
            };
            let started = (started, pictures);
            if let Some((result, pictures)) = running.replace(started) {
                result.wait(&mut values)?;
                write(&values)?;
                progress.advance(pictures);
            }
            slice = ahead;
            first = false;
        }
        if let Some((result, pictures)) = running {
            result.wait(&mut values)?;
            write(&values)?;
            progress.advance(pictures);
        }
        progress.finish();
        let records = profiler.map(|profiler| profiler.records()).transpose()?;
        let (copies, seconds) = (self.device.ops.copy_time()?, progress.elapsed().as_secs_f64());
        Ok(Done { run: self, total, seconds, fps: progress.fps(), watch, copies, records })
    }
}

/// What there is to tell of a run, once its result is in place.
struct Done<'a> {
    run: &'a Run<'a>,
    total: usize,
    seconds: f64,
    fps: f64,
    watch: MemoryWatch,
    copies: CopyTime,
    records: Option<Vec<Record>>,
}

impl Done<'_> {
    fn tell(&self, output: &Path, shape: Shape) {
        let Done { run, total, seconds, fps, watch, copies, records } = self;
        if let Some((records, ceiling)) = records.as_ref().zip(run.device.ceiling.as_ref()) {
            report::profile(records, ceiling, run.args.compute.json);
        }
        if run.args.compute.json {
            let mut done = json!({
                "event": "done", "command": run.name, "device": run.device.ops.name(), "dtype": run.device.ops.precision().to_string(),
                "frames": total, "seconds": seconds, "fps": fps,
                "card_peak_bytes": run.device.card.as_ref().map(|card| card.peak_bytes()),
                "copy_seconds": copies.copying, "copy_hidden": copies.hidden(),
            });
            done.as_object_mut().expect("an object").extend(watch.json().as_object().expect("an object").clone());
            say!("{done}");
        } else {
            say!("{total} frames in {seconds:.2} s ({fps:.2} fps) on {}", run.device.ops.name());
            say!("{}", watch.line());
            if let Some(card) = &run.device.card {
                let hidden = 100.0 * copies.hidden();
                say!(
                    "card memory {}; copies {:.3} s, of which {hidden:.0}% hidden",
                    bytes(card.peak_bytes()),
                    copies.copying
                );
            }
            say!("{}: output {shape}", output.display());
        }
    }
}
