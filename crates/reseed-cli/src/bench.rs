//! `reseed bench vae`: how fast this machine is, from pictures of 8 bits to latents and back to pictures of 8 bits.

pub mod color;
pub mod conv;
pub mod dit;
pub mod quality;
pub mod upscale;

use std::ops::Range;
use std::time::Instant;

use reseed_model::plan::{TileInput, padded_frames, slices};
use reseed_model::weights::formula::uniform;
use reseed_model::{SliceData, Stream};
use reseed_ops::{Code, CopyTime, Cost, Depth, PendingDownload, Pixels, ProfileOps, Record};
use serde_json::json;

use crate::args::{BenchArgs, Direction};
use crate::budget::{self, Clip, Planned};
use crate::engine::{self, Device};
use crate::failure::Result;
use crate::report::{self, MemoryWatch, bytes};

pub fn run(args: &BenchArgs) -> Result<()> {
    let device = &engine::device(&args.run.compute, args.run.plan.max_vram)?;
    let source = engine::weights(&args.weights)?;
    // Each alone on the device, as commands load them.
    for direction in args.direction.map_or(vec![Direction::Encode, Direction::Decode], |only| vec![only]) {
        let (config, half) = engine::half(&*device.ops, &*source, direction)?;
        let clip = Clip::of(direction, &*half, &config, args.size, args.frames as usize);
        Case { device, args, clip, pictures: padded_frames(args.frames as usize, config.temporal_factor()) }.time()?;
    }
    Ok(())
}

/// What a card says of a run.
struct Card {
    /// From its first kernel to its last.
    seconds: f64,
    copies: CopyTime,
    peak: usize,
}

/// Seconds by the clock and by the card's.
type Seconds = (f64, Option<f64>);

/// One half of the VAE over a clip.
struct Case<'a> {
    device: &'a Device,
    args: &'a BenchArgs,
    clip: Clip<'a>,
    pictures: usize,
}

impl Case<'_> {
    fn time(&self) -> Result<()> {
        let planned = budget::reserve(self.device, &self.args.run.plan, &[self.clip])?.swap_remove(0);
        let parts = slices(self.clip.frames, planned.step());
        if self.clip.cut == TileInput::Frames {
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

    /// Each slice of a clip, made of numbers in [-1, 1); never zeros, which are faster than real data.
    fn draw<S>(&self, parts: &[Range<usize>], slice: impl Fn(&[f64]) -> S) -> Vec<S> {
        let frame = self.clip.plane.count() * self.clip.half.channels_in();
        let drawn = uniform("bench", self.clip.frames * frame, 1);
        parts.iter().map(|part| slice(&drawn[part.start * frame..part.end * frame])).collect()
    }

    /// Times runs in which `start` starts each slice and gives what is to be waited for.
    fn measure<S, T: Default>(
        &self,
        planned: &Planned,
        input: &[S],
        start: impl Fn(&dyn reseed_ops::Device, &mut Stream, &S, bool) -> Result<Box<dyn PendingDownload<T>>>,
    ) -> Result<()> {
        let mut result = T::default();
        let mut once = |ops: &dyn reseed_ops::Device| -> Result<Seconds> {
            let moment = || self.device.card.as_ref().map(|card| card.timestamp()).transpose();
            let (first, clock) = (moment()?, Instant::now());
            let mut stream = planned.stream(ops, self.clip.half, self.clip.plane);
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
        let (watch, ops) = (MemoryWatch::start(), &*self.device.ops);
        let profiler = ProfileOps::new(ops);
        if self.device.ceiling.is_some() {
            once(ops)?; // a profile is of kernels that are loaded
        }
        once(&profiler)?;
        let copy_time = || self.device.card.as_ref().map(|card| reseed_ops::Timing::copy_time(&**card)).transpose();
        copy_time()?;
        let mut times = (0..self.args.repeat).map(|_| once(ops)).collect::<Result<Vec<_>>>()?;
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let card = copy_time()?.map(|copies| self.card(&times, copies));
        let walls: Vec<f64> = times.into_iter().map(|(wall, _)| wall).collect();
        self.tell(&walls, &profiler.records()?, &watch, card);
        Ok(())
    }

    fn card(&self, times: &[Seconds], copies: CopyTime) -> Card {
        Card {
            seconds: times[times.len() / 2].1.unwrap_or_default(),
            copies: copies.of_one(times.len()),
            peak: self.device.card.as_ref().map_or(0, |card| card.peak_bytes()),
        }
    }

    fn tell(&self, times: &[f64], records: &[Record], watch: &MemoryWatch, card: Option<Card>) {
        let (median, pictures, ops) = (times[times.len() / 2], self.pictures, &self.device.ops);
        let name = if self.clip.cut == TileInput::Frames { "encode" } else { "decode" };
        let mut cost = Cost::default();
        records.iter().for_each(|r| cost += r.cost);
        let gflops = cost.flops as f64 / median / 1e9;
        let size = format!("{}x{}", self.args.size.w, self.args.size.h);
        if self.args.run.compute.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": format!("vae {name}"), "device": ops.name(), "size": size,
                    "dtype": ops.precision().to_string(), "frames": pictures, "picture_bits": 8, "seconds": times, "median": median,
                    "fps": pictures as f64 / median, "gflops_per_second": gflops,
                    "peak_above_weights_bytes": watch.above_weights(),
                    "card_seconds": card.as_ref().map(|card| card.seconds),
                    "card_peak_bytes": card.as_ref().map(|card| card.peak),
                    "copy_in_seconds": card.as_ref().map(|card| card.copies.inward),
                    "copy_out_seconds": card.as_ref().map(|card| card.copies.outward),
                    "copy_seconds": card.as_ref().map(|card| card.copies.copying),
                    "copy_waiting_seconds": card.as_ref().map(|card| card.copies.waiting),
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "vae {name} {pictures} frames {size} of 8 bits, {} on {}: median {median:.3} s ({first:.3} to {last:.3}), {:.3} fps, \
                 {gflops:.1} GFLOP/s",
                ops.precision(),
                ops.name(),
                pictures as f64 / median,
            );
            say!("{}", watch.line());
            if let Some(Card { seconds, copies, peak }) = card {
                say!(
                    "card: {seconds:.3} s, {} of its memory; copies {:.3} s ({:.3} in, {:.3} out), of which {:.0}% hidden",
                    bytes(peak),
                    copies.copying,
                    copies.inward,
                    copies.outward,
                    100.0 * copies.hidden(),
                );
            }
        }
        if let Some(ceiling) = &self.device.ceiling {
            report::profile(records, ceiling, self.args.run.compute.json);
        }
    }
}
