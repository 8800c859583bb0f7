//! `reseed bench vae`: how fast this machine is.

pub mod color;
pub mod conv;
pub mod dit;
pub mod quality;
pub mod upscale;

use std::time::Instant;

use reseed_model::plan::{Cut, slices, whole_frames};
use reseed_model::weights::formula::uniform;
use reseed_model::{Config, Half, Vae};
use reseed_ops::{CopyTime, Cost, Hw, Incoming, Ops, ProfileOps, Record};
use serde_json::json;

use crate::args::{BenchArgs, Direction};
use crate::budget::{self, Clip};
use crate::engine::{self, Device};
use crate::failure::Result;
use crate::report::{self, MemoryWatch, bytes};

pub fn run(args: &BenchArgs) -> Result<()> {
    let device = engine::device(&args.run.compute, args.run.plan.max_vram)?;
    let ops = &*device.ops;
    let vae = Vae::load(ops, &*engine::weights(&args.weights)?)?;
    let factor = vae.config.spatial_factor();
    let plane = Hw::new(args.size.h.next_multiple_of(factor), args.size.w.next_multiple_of(factor));
    let pictures = whole_frames(args.frames as usize, vae.config.temporal_factor());
    let latents = vae.encoder.frames_out(pictures, true);
    let case = |direction| Case { direction, device: &device, ops, config: &vae.config, args };
    if args.direction != Some(Direction::Decode) {
        case(Direction::Encode).time(&vae.encoder, plane, pictures, pictures)?;
    }
    if args.direction != Some(Direction::Encode) {
        case(Direction::Decode).time(&vae.decoder, vae.encoder.plane_out(plane), latents, pictures)?;
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

struct Case<'a> {
    direction: Direction,
    device: &'a Device,
    ops: &'a dyn Ops,
    config: &'a Config,
    args: &'a BenchArgs,
}

impl Case<'_> {
    fn time(&self, half: &dyn Half, plane: Hw, frames: usize, pictures: usize) -> Result<()> {
        let frame = plane.count() * half.channels_in();
        // Unit variance, as latents have; never zeros, which are faster than real data.
        let scale = if self.direction == Direction::Decode { 3f64.sqrt() } else { 1.0 };
        let input: Vec<f32> = uniform("bench", frames * frame, 1).iter().map(|v| (v * scale) as f32).collect();
        let cut = if self.direction == Direction::Encode { Cut::Pictures } else { Cut::Latents };
        let clip = Clip { half, config: self.config, cut, plane, frames };
        let planned = &budget::reserve(self.device, &self.args.run.plan, &[clip])?[0];
        let mut values = Vec::new();
        let mut once = |ops: &dyn Ops| -> Result<(f64, Option<f64>)> {
            let moment = || self.device.card.as_ref().map(|card| card.moment()).transpose();
            let (first, start) = (moment()?, Instant::now());
            let mut stream = planned.stream(ops, half, plane);
            let mut running: Option<Box<dyn Incoming>> = None;
            for slice in slices(frames, planned.step()) {
                let started = stream.start(&input[slice.start * frame..slice.end * frame], slice.end == frames)?;
                running.replace(started).map(|before| before.wait(&mut values)).transpose()?;
            }
            let last = moment()?;
            running.map(|before| before.wait(&mut values)).transpose()?;
            let wall = start.elapsed().as_secs_f64();
            Ok((wall, first.zip(last).map(|(first, last)| first.seconds_to(&last)).transpose()?))
        };
        let watch = MemoryWatch::start();
        let profiler = ProfileOps::new(self.ops);
        if self.device.ceiling.is_some() {
            once(self.ops)?; // a profile is of kernels that are loaded
        }
        once(&profiler)?;
        self.device.card.as_ref().map(|card| card.copy_time()).transpose()?;
        let mut times = (0..self.args.repeat).map(|_| once(self.ops)).collect::<Result<Vec<_>>>()?;
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let copies = self.device.card.as_ref().map(|card| card.copy_time()).transpose()?;
        let (walls, cards): (Vec<f64>, Vec<Option<f64>>) = times.into_iter().unzip();
        let card = self.device.card.as_ref().zip(copies).map(|(card, copies)| Card {
            seconds: cards[cards.len() / 2].unwrap_or_default(),
            copies: CopyTime {
                copying: copies.copying / f64::from(self.args.repeat),
                waiting: copies.waiting / f64::from(self.args.repeat),
            },
            peak: card.peak_bytes(),
        });
        self.tell(&walls, pictures, &profiler.records()?, &watch, card);
        Ok(())
    }

    fn tell(&self, times: &[f64], pictures: usize, records: &[Record], watch: &MemoryWatch, card: Option<Card>) {
        let median = times[times.len() / 2];
        let name = if self.direction == Direction::Encode { "encode" } else { "decode" };
        let mut cost = Cost::default();
        records.iter().for_each(|r| cost += r.cost);
        let gflops = cost.flops as f64 / median / 1e9;
        let size = format!("{}x{}", self.args.size.w, self.args.size.h);
        if self.args.run.compute.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": format!("vae {name}"), "device": self.ops.device(), "size": size,
                    "dtype": self.ops.precision().to_string(), "frames": pictures, "seconds": times, "median": median,
                    "fps": pictures as f64 / median, "gflops_per_second": gflops,
                    "peak_above_weights_bytes": watch.above_weights(),
                    "card_seconds": card.as_ref().map(|card| card.seconds),
                    "card_peak_bytes": card.as_ref().map(|card| card.peak),
                    "copy_seconds": card.as_ref().map(|card| card.copies.copying),
                    "copy_waiting_seconds": card.as_ref().map(|card| card.copies.waiting),
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "vae {name} {pictures} frames {size} {} on {}: median {median:.3} s ({first:.3} to {last:.3}), {:.3} fps, \
                 {gflops:.1} GFLOP/s",
                self.ops.precision(),
                self.ops.device(),
                pictures as f64 / median,
            );
            say!("{}", watch.line());
            if let Some(Card { seconds, copies, peak }) = card {
                say!(
                    "card: {seconds:.3} s, {} of its memory; copies {:.3} s, of which {:.0}% hidden",
                    bytes(peak),
                    copies.copying,
                    100.0 * copies.hidden(),
                );
            }
        }
        if let Some(ceiling) = &self.device.ceiling {
            report::profile(records, ceiling, self.args.run.compute.json);
        }
    }
}
