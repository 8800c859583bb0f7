//! `reseed bench dit`: the transformer's one step on a latent.

use std::time::Instant;

use reseed_model::Dit;
use reseed_model::weights::formula::uniform;
use reseed_ops::{Cost, Ops, ProfileOps, Shape, Thw};
use serde_json::json;

use crate::args::bench::DitBenchArgs;
use crate::engine::{self, Device};
use crate::failure::Result;
use crate::model::Weights;
use crate::report::{self, MemoryWatch, bytes};

pub fn run(args: &DitBenchArgs) -> Result<()> {
    let device = match engine::transformer_device(&args.compute)? {
        Some(device) => device,
        None => engine::device(&args.compute, None)?,
    };
    let weights = Weights::open(&args.model)?;
    let dit = Dit::load(&*device.ops, weights.dit())?;
    Case { args, device: &device, dit: &dit }.time(&weights)
}

struct Case<'a> {
    args: &'a DitBenchArgs,
    device: &'a Device,
    dit: &'a Dit,
}

impl Case<'_> {
    fn time(&self, weights: &Weights) -> Result<()> {
        let (ops, Thw { t, h, w }) = (&*self.device.ops, self.args.latent);
        let both = Shape::from([2 * t, h, w, self.dit.config.latent]);
        // Unit variance, as latents have; never zeros, which are faster than real data.
        let values: Vec<f32> = uniform("bench", both.count(), 1).iter().map(|v| (v * 3f64.sqrt()) as f32).collect();
        let text = weights.text(self.dit.config.text_width)?;
        let (latents, text) = (ops.upload(both, &values)?, ops.upload(text.shape, &text.values)?);
        let plan = self.dit.plan(ops, self.args.latent, text.rows())?;
        let once = |ops: &dyn Ops| -> Result<f64> {
            ops.finish()?;
            let start = Instant::now();
            self.dit.sample(ops, &latents, &text, &plan)?;
            ops.finish()?;
            Ok(start.elapsed().as_secs_f64())
        };
        let watch = MemoryWatch::start();
        // The first pass takes memory and tries kernels; it is neither timed nor profiled.
        once(ops)?;
        let profiler = ProfileOps::new(ops);
        once(&profiler)?;
        let mut times = (0..self.args.repeat).map(|_| once(ops)).collect::<Result<Vec<_>>>()?;
        times.sort_by(f64::total_cmp);
        self.tell(&times, &profiler, &watch);
        Ok(())
    }

    fn tell(&self, times: &[f64], profiler: &ProfileOps, watch: &MemoryWatch) {
        let mut cost = Cost::default();
        profiler.records().iter().for_each(|r| cost += r.cost);
        let median = times[times.len() / 2];
        let (name, rate) = (self.dit.config.layout.name, cost.flops as f64 / median / 1e12);
        let (ops, latent, args) = (&self.device.ops, self.args.latent, &self.args.compute);
        let peak = self.device.card.as_ref().map(|card| card.peak_bytes());
        if args.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": "dit", "model": name, "device": ops.device(),
                    "latent": latent.to_string(), "dtype": ops.precision().to_string(), "seconds": times,
                    "median": median, "flops": cost.flops, "tflops_per_second": rate,
                    "peak_above_weights_bytes": watch.above_weights(), "card_peak_bytes": peak,
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "dit {name} {latent} {} on {}: median {:.1} ms ({:.1} to {:.1}), {rate:.2} TFLOP/s",
                ops.precision(),
                ops.device(),
                median * 1e3,
                first * 1e3,
                last * 1e3,
            );
            say!("{}", watch.line());
            if let Some(peak) = peak {
                say!("card: {} of its memory", bytes(peak));
            }
        }
        if args.profile {
            report::profile(&profiler.records(), args.json);
        }
    }
}
