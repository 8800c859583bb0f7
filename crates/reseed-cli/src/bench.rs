//! `reseed bench vae`: the speed of the VAE from 8-bit frames to latents, and from latents to 8-bit frames.

pub mod accuracy;
pub mod color;
pub mod conv;
pub mod dit;
pub mod quality;
pub mod upscale;

use std::ops::Range;
use std::time::Instant;

use reseed::Profile;
use reseed::internals::memory::Watch;
use reseed::internals::model::plan::{TileInput, padded_frames, slices};
use reseed::internals::model::weights::formula::uniform;
use reseed::internals::model::{SliceData, Stream};
use reseed::internals::ops::{Code, CopyTime, Cost, Depth, Device, PendingDownload, Pixels, ProfileOps, Record};
use reseed::internals::{self, ClipPlan, CoderClip, DeviceHandle, load_coder, vae_weights};
use serde_json::json;

use crate::failure::Result;
use crate::report::{self, HostMemory, bytes};
use crate::vae::open_device;
use crate::warning;
use reseed_args::{BenchArgs, Direction};

pub fn run(args: &BenchArgs) -> Result<()> {
    let device = &open_device(&args.run)?;
    let source = vae_weights(&args.weights)?;
    // Each alone on the device, as the commands load them.
    for direction in args.direction.map_or(vec![Direction::Encode, Direction::Decode], |only| vec![only]) {
        let (config, coder) = load_coder(&*device.ops, &*source, direction.into())?;
        let clip = CoderClip::new(direction.into(), &*coder, &config, args.size, args.frames as usize);
        Case { device, args, clip, frames: padded_frames(args.frames as usize, config.temporal_factor()) }.time()?;
    }
    Ok(())
}

/// Figures of a GPU.
struct GpuFigures {
    /// From its first kernel to its last.
    seconds: f64,
    copies: CopyTime,
    peak: usize,
}

/// Seconds by the wall clock and by the GPU's clock.
type Seconds = (f64, Option<f64>);

/// Encoder or decoder over a clip.
struct Case<'a> {
    device: &'a DeviceHandle,
    args: &'a BenchArgs,
    clip: CoderClip<'a>,
    /// Frames of pixels.
    frames: usize,
}

impl Case<'_> {
    fn time(&self) -> Result<()> {
        let planned = internals::reserve(self.device, &self.args.run.plan.settings(), &[self.clip])?.swap_remove(0);
        planned.warning().iter().for_each(|warning| warning::show(warning));
        let parts = slices(self.clip.frames, planned.step());
        if self.clip.input == TileInput::Frames {
            let input = self.draw(&parts, |drawn| Pixels::U8(drawn.iter().map(|&v| u8::nearest(v as f32)).collect()));
            self.measure(&planned, &input, |ops, stream, codes, last| {
                Ok(ops.start_download(&stream.run(SliceData::Pixels(codes), last)?)?)
            })
        } else {
            // Unit variance, as latents have.
            let input: Vec<Vec<f32>> =
                self.draw(&parts, |drawn| drawn.iter().map(|v| (v * 3f64.sqrt()) as f32).collect());
            self.measure(&planned, &input, |ops, stream, values, last| {
                Ok(ops.start_download_pixels(&stream.run(SliceData::Values(values), last)?, Depth::Eight)?)
            })
        }
    }

    /// The slices of a clip of numbers in [-1, 1); zeros would be faster than real data.
    fn draw<S>(&self, parts: &[Range<usize>], slice: impl Fn(&[f64]) -> S) -> Vec<S> {
        let frame = self.clip.plane.count() * self.clip.coder.channels_in();
        let drawn = uniform("bench", self.clip.frames * frame, 1);
        parts.iter().map(|part| slice(&drawn[part.start * frame..part.end * frame])).collect()
    }

    /// Times runs in which `start` starts each slice and gives its pending result.
    fn measure<S, T: Default>(
        &self,
        planned: &ClipPlan,
        input: &[S],
        start: impl Fn(&dyn Device, &mut Stream, &S, bool) -> Result<Box<dyn PendingDownload<T>>>,
    ) -> Result<()> {
        let mut result = T::default();
        let mut once = |ops: &dyn Device| -> Result<Seconds> {
            let moment = || self.device.gpu.as_ref().map(|gpu| gpu.timestamp()).transpose();
            let (first, clock) = (moment()?, Instant::now());
            let mut stream = planned.stream(ops, self.clip.coder, self.clip.plane);
            let mut running: Option<Box<dyn PendingDownload<T>>> = None;
            for (i, slice) in input.iter().enumerate() {
                let started = start(ops, &mut stream, slice, i + 1 == input.len())?;
                running.replace(started).map(|before| before.wait(&mut result)).transpose()?;
            }
            let last = moment()?;
            running.map(|before| before.wait(&mut result)).transpose()?;
            let wall = clock.elapsed().as_secs_f64();
            Ok((wall, first.zip(last).map(|(first, last)| first.seconds_to(&last)).transpose()?))
        };
        let (watch, ops) = (Watch::start(), &*self.device.ops);
        let profiler = ProfileOps::new(ops);
        if self.device.ceiling.is_some() {
            once(ops)?; // loads the kernels before they are profiled
        }
        once(&profiler)?;
        let copy_time = || self.device.gpu.as_ref().map(|_| ops.copy_time()).transpose();
        copy_time()?;
        let mut times = (0..self.args.repeat).map(|_| once(ops)).collect::<Result<Vec<_>>>()?;
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let gpu = copy_time()?.map(|copies| self.gpu_figures(&times, copies));
        let walls: Vec<f64> = times.into_iter().map(|(wall, _)| wall).collect();
        self.print(&walls, profiler.records()?, HostMemory::since(&watch), gpu);
        Ok(())
    }

    fn gpu_figures(&self, times: &[Seconds], copies: CopyTime) -> GpuFigures {
        GpuFigures {
            seconds: times[times.len() / 2].1.unwrap_or_default(),
            copies: copies.of_one(times.len()),
            peak: self.device.gpu.as_ref().map_or(0, |gpu| gpu.peak_bytes()),
        }
    }

    fn print(&self, times: &[f64], records: Vec<Record>, memory: HostMemory, gpu: Option<GpuFigures>) {
        let (median, frames, ops) = (times[times.len() / 2], self.frames, &self.device.ops);
        let name = if self.clip.input == TileInput::Frames { "encode" } else { "decode" };
        let mut cost = Cost::default();
        records.iter().for_each(|r| cost += r.cost);
        let gflops = cost.flops as f64 / median / 1e9;
        let size = format!("{}x{}", self.args.size.w, self.args.size.h);
        if self.args.run.compute.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": format!("vae {name}"), "device": ops.name(), "size": size,
                    "dtype": ops.precision().to_string(), "frames": frames, "picture_bits": 8,
                    "seconds": times, "median": median, "fps": frames as f64 / median,
                    "gflops_per_second": gflops, "peak_above_weights_bytes": memory.above_weights(),
                    "gpu_seconds": gpu.as_ref().map(|gpu| gpu.seconds),
                    "gpu_peak_bytes": gpu.as_ref().map(|gpu| gpu.peak),
                    "copy_in_seconds": gpu.as_ref().map(|gpu| gpu.copies.inward),
                    "copy_out_seconds": gpu.as_ref().map(|gpu| gpu.copies.outward),
                    "copy_seconds": gpu.as_ref().map(|gpu| gpu.copies.copying),
                    "copy_waiting_seconds": gpu.as_ref().map(|gpu| gpu.copies.waiting),
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "vae {name} {frames} frames {size} of 8 bits, {} on {}: median {median:.3} s \
                 ({first:.3} to {last:.3}), {:.3} fps, {gflops:.1} effective GFLOP/s",
                ops.precision(),
                ops.name(),
                frames as f64 / median,
            );
            say!("{}", memory.line());
            if let Some(GpuFigures { seconds, copies, peak }) = gpu {
                say!(
                    "GPU: {seconds:.3} s, {} of memory; copies {:.3} s ({:.3} in, {:.3} out), {:.0}% hidden",
                    bytes(peak),
                    copies.copying,
                    copies.inward,
                    copies.outward,
                    100.0 * copies.hidden(),
                );
            }
        }
        if let Some(ceiling) = self.device.ceiling {
            report::profile(&Profile { records, ceiling }, self.args.run.compute.json);
        }
    }
}
