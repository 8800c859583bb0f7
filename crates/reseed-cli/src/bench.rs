//! `reseed bench vae`: how fast this machine is.

use std::time::Instant;

use reseed_model::plan::{slices, whole_frames};
use reseed_model::weights::formula::uniform;
use reseed_model::{Config, Half, Stream, Vae};
use reseed_ops::{Cost, Hw, Ops, ProfileOps};
use serde_json::json;

use crate::args::{BenchArgs, Direction};
use crate::engine;
use crate::failure::Result;
use crate::report::{self, MemoryWatch};

pub fn run(args: &BenchArgs) -> Result<()> {
    let device = engine::device(&args.run.compute)?;
    let ops = &*device.ops;
    let vae = Vae::load(ops, &*engine::weights(&args.weights)?)?;
    let factor = vae.config.spatial_factor();
    let plane = Hw::new(args.size.h.next_multiple_of(factor), args.size.w.next_multiple_of(factor));
    let pictures = whole_frames(args.frames as usize, vae.config.temporal_factor());
    let latents = vae.encoder.frames_out(pictures, true);
    let case = |direction| Case { direction, ops, config: &vae.config, args };
    if args.direction != Some(Direction::Decode) {
        case(Direction::Encode).time(&vae.encoder, plane, pictures, pictures)?;
    }
    if args.direction != Some(Direction::Encode) {
        case(Direction::Decode).time(&vae.decoder, vae.encoder.plane_out(plane), latents, pictures)?;
    }
    Ok(())
}

struct Case<'a> {
    direction: Direction,
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
        let step = usize::from(self.args.run.plan.slice)
            * if self.direction == Direction::Encode { self.config.temporal_factor() } else { 1 };
        let once = |ops: &dyn Ops| -> Result<f64> {
            let start = Instant::now();
            let mut stream = Stream::new(ops, half, plane, None, 1);
            for slice in slices(frames, step) {
                stream.step(&input[slice.start * frame..slice.end * frame], slice.end == frames)?;
            }
            Ok(start.elapsed().as_secs_f64())
        };
        let watch = MemoryWatch::start();
        let profiler = ProfileOps::new(self.ops);
        once(&profiler)?;
        let mut times = (0..self.args.repeat).map(|_| once(self.ops)).collect::<Result<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        self.tell(&times, pictures, &profiler, &watch);
        Ok(())
    }

    fn tell(&self, times: &[f64], pictures: usize, profiler: &ProfileOps, watch: &MemoryWatch) {
        let median = times[times.len() / 2];
        let name = if self.direction == Direction::Encode { "encode" } else { "decode" };
        let mut cost = Cost::default();
        profiler.records().iter().for_each(|r| cost += r.cost);
        let gflops = cost.flops as f64 / median / 1e9;
        let size = format!("{}x{}", self.args.size.w, self.args.size.h);
        if self.args.run.compute.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": format!("vae {name}"), "device": self.ops.device(), "size": size,
                    "dtype": self.ops.dtype().to_string(), "frames": pictures, "seconds": times, "median": median,
                    "fps": pictures as f64 / median, "gflops_per_second": gflops,
                    "peak_above_weights_bytes": watch.above_weights(),
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "vae {name} {pictures} frames {size} {} on {}: median {median:.3} s ({first:.3} to {last:.3}), {:.3} fps, \
                 {gflops:.1} GFLOP/s",
                self.ops.dtype(),
                self.ops.device(),
                pictures as f64 / median,
            );
            say!("{}", watch.line());
        }
        if self.args.run.compute.profile {
            report::profile(&profiler.records(), self.args.run.compute.json);
        }
    }
}
