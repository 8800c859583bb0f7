//! `reseed bench dit`: the transformer's one step on a latent.

use std::time::Instant;

use reseed_cpu::CpuOps;
use reseed_model::dit::{self, Config, DitRequirements, LayerPlacement};
use reseed_model::weights::formula::uniform;
use reseed_model::{Dit, TextEmbedding};
use reseed_ops::{CopyTime, Cost, DType, ProfileOps, Record, Shape, Tensor, Thw, Transfer, relative_error};
use serde_json::json;

use crate::args::bench::DitBenchArgs;
use crate::budget::SPARE;
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::report::{self, MemoryWatch, bytes};

pub fn run(args: &DitBenchArgs) -> Result<()> {
    let device = engine::device(&args.compute, args.max_vram)?;
    let device = engine::transformer_device(&args.compute, args.max_vram, &device)?.unwrap_or(device);
    let weights = Weights::open(&args.model, args.layers.map(usize::from))?;
    let text = weights.text(Config::detect(weights.dit())?.text_width)?;
    let case = dit::DitWorkload { source: weights.dit(), latent: args.latent, text_tokens: text.shape.dims()[0] };
    let room = (device.room)()?.unwrap_or(usize::MAX);
    let fits = |needs: &DitRequirements| needs.weights + needs.weights / 64 + needs.arena + SPARE <= room;
    let needs = case.max_layers(&device.trace, LayerPlacement::Resident, fits)?;
    let needs = needs.ok_or_else(|| Failure::Memory(format!("{} are too few for one layer", bytes(room))))?;
    let dit = Dit::load_streamed(&*device.ops, weights.dit(), needs.resident)?;
    device.ops.reserve(needs.arena + SPARE)?;
    let result = Case { args, device: &device, dit: &dit, needs }.time(&text)?;
    if args.accuracy { accuracy(args, &weights, &text, &result) } else { Ok(()) }
}

/// Noise and condition of unit variance, as latents have; never zeros, which are faster than real data.
fn latents(ops: &dyn reseed_ops::Device, dit: &Dit, Thw { t, h, w }: Thw) -> Result<Tensor> {
    let both = Shape::from([2 * t, h, w, dit.config.latent]);
    let values: Vec<f32> = uniform("bench", both.count(), 1).iter().map(|v| (v * 3f64.sqrt()) as f32).collect();
    Ok(ops.upload(both, &values)?)
}

/// Holds a result against the processor's in f32, which tests hold against the published network.
fn accuracy(args: &DitBenchArgs, weights: &Weights, text: &TextEmbedding, result: &[f32]) -> Result<()> {
    let cpu = CpuOps::new(DType::F32, args.compute.threads.map(usize::from))?;
    let dit = Dit::load(&cpu, weights.dit())?;
    let plan = dit.plan(&cpu, args.latent, text.shape.dims()[0])?;
    let exact = dit.sample(&cpu, &latents(&cpu, &dit, args.latent)?, &cpu.upload(text.shape, &text.values)?, &plan)?;
    let error = relative_error(&cpu.download(&exact)?, result);
    if args.compute.json {
        say!("{}", json!({ "event": "accuracy", "relative_error": error }));
    } else {
        say!("accuracy: differs from f32 on the processor by {error:.1e} of its size");
    }
    Ok(())
}

struct Case<'a> {
    args: &'a DitBenchArgs,
    device: &'a Device,
    dit: &'a Dit,
    needs: DitRequirements,
}

impl Case<'_> {
    /// Times the step and returns what it makes.
    fn time(&self, text: &TextEmbedding) -> Result<Vec<f32>> {
        let ops = &*self.device.ops;
        let (latents, text) = (latents(ops, self.dit, self.args.latent)?, ops.upload(text.shape, &text.values)?);
        let plan = self.dit.plan(ops, self.args.latent, text.rows())?;
        let once = |ops: &dyn reseed_ops::Device| -> Result<f64> {
            ops.finish()?;
            let start = Instant::now();
            self.dit.sample(ops, &latents, &text, &plan)?;
            ops.finish()?;
            Ok(start.elapsed().as_secs_f64())
        };
        let watch = MemoryWatch::start();
        // The first pass takes memory and tries kernels; it is neither timed nor profiled.
        let result = ops.download(&self.dit.sample(ops, &latents, &text, &plan)?)?;
        let profiler = ProfileOps::new(ops);
        once(&profiler)?;
        ops.copy_time()?;
        let mut times = (0..self.args.repeat).map(|_| once(ops)).collect::<Result<Vec<_>>>()?;
        times.sort_by(f64::total_cmp);
        self.tell(&times, &profiler.records()?, &watch, ops.copy_time()?);
        Ok(result)
    }

    fn tell(&self, times: &[f64], records: &[Record], watch: &MemoryWatch, copies: CopyTime) {
        let mut cost = Cost::default();
        records.iter().for_each(|r| cost += r.cost);
        let median = times[times.len() / 2];
        let (name, rate) = (self.dit.config.layout.name, cost.flops as f64 / median / 1e12);
        let (ops, latent, args) = (&self.device.ops, self.args.latent, &self.args.compute);
        let peak = self.device.card.as_ref().map(|card| card.peak_bytes());
        let (DitRequirements { layers, resident, .. }, copying) = (self.needs, copies.of_one(times.len()).copying);
        if args.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": "dit", "model": name, "device": ops.name(),
                    "latent": latent.to_string(), "dtype": ops.precision().to_string(), "seconds": times,
                    "median": median, "flops": cost.flops, "tflops_per_second": rate,
                    "peak_above_weights_bytes": watch.above_weights(), "card_peak_bytes": peak,
                    "layers": layers, "resident_layers": resident, "copy_seconds": copying, "copies_hidden": copies.hidden(),
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "dit {name} {latent} {} on {}: median {:.1} ms ({:.1} to {:.1}), {rate:.2} TFLOP/s",
                ops.precision(),
                ops.name(),
                median * 1e3,
                first * 1e3,
                last * 1e3,
            );
            say!("{}", watch.line());
            if let Some(peak) = peak {
                let hidden = 100.0 * copies.hidden();
                say!(
                    "card: {} of its memory, {resident} of {layers} layers on it; copies {:.1} ms, {hidden:.0}% hidden",
                    bytes(peak),
                    copying * 1e3
                );
            }
        }
        if let Some(ceiling) = &self.device.ceiling {
            report::profile(records, ceiling, args.json);
        }
    }
}
