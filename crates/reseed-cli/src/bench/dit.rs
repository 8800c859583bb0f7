//! `reseed bench dit`: one step of the transformer.

use std::time::Instant;

use reseed::internals::cpu::CpuOps;
use reseed::internals::memory::Watch;
use reseed::internals::model::dit::{self, Config, DitRequirements, LayerPlacement};
use reseed::internals::model::weights::formula::uniform;
use reseed::internals::model::{Dit, TextEmbedding};
use reseed::internals::ops::{
    CopyTime, Cost, DType, Device, ProfileOps, Record, Shape, Tensor, Transfer, relative_error,
};
use reseed::internals::{self, DeviceHandle, MARGIN, Weights};
use reseed::{Error, Profile, Thw};
use serde_json::json;

use crate::console;
use crate::failure::Result;
use crate::report::{self, HostMemory, bytes};
use reseed_args::bench::DitBenchArgs;

pub fn run(args: &DitBenchArgs) -> Result<()> {
    let options = args.compute.options(args.max_vram)?;
    let device = internals::open(&options)?;
    device.warnings.iter().for_each(|warning| console::warn("device", warning));
    let device = internals::transformer(&options, &device)?.unwrap_or(device);
    let weights = match args.layers {
        Some(layers) => Weights::formula(&args.model, Some(layers.into()))?,
        None => Weights::open(&args.model)?,
    };
    let text = weights.text(Config::detect(weights.dit())?.text_width)?;
    let case = dit::DitWorkload { source: weights.dit(), latent: args.latent, text_tokens: text.shape.dims()[0] };
    let room = (device.room)()?.unwrap_or(usize::MAX);
    let fits = |needs: &DitRequirements| needs.weights + needs.weights / 64 + needs.arena + MARGIN <= room;
    let needs = case.max_layers(&device.trace, LayerPlacement::Resident, fits)?;
    let Some(needs) = needs else {
        let least = case.requirements(&(device.trace)(), LayerPlacement::Resident(0))?;
        let needed = least.weights + least.weights / 64 + least.arena + MARGIN;
        let (device, what) = (device.ops.name(), "the transformer");
        return Err(Error::OverBudget { device, what, available: room, needed }.into());
    };
    let dit = Dit::load_streamed(&*device.ops, weights.dit(), needs.resident)?;
    device.ops.reserve(needs.arena + MARGIN)?;
    let result = Case { args, device: &device, dit: &dit, needs }.time(&text)?;
    if args.accuracy { accuracy(args, &weights, &text, &result) } else { Ok(()) }
}

/// Noise and condition of unit variance, as latents have; zeros would be faster than real data.
pub fn latents(ops: &dyn Device, dit: &Dit, Thw { t, h, w }: Thw) -> Result<Tensor> {
    let both = Shape::from([2 * t, h, w, dit.config.latent]);
    let values: Vec<f32> = uniform("bench", both.count(), 1).iter().map(|v| (v * 3f64.sqrt()) as f32).collect();
    Ok(ops.upload(both, &values)?)
}

/// Compares a result with that of the CPU in f32, which tests compare with the published network.
fn accuracy(args: &DitBenchArgs, weights: &Weights, text: &TextEmbedding, result: &[f32]) -> Result<()> {
    let cpu = CpuOps::new(DType::F32, args.compute.math.threads.map(usize::from))?;
    let dit = Dit::load(&cpu, weights.dit())?;
    let plan = dit.plan(&cpu, args.latent, text.shape.dims()[0])?;
    let exact = dit.sample(&cpu, &latents(&cpu, &dit, args.latent)?, &cpu.upload(text.shape, &text.values)?, &plan)?;
    let error = relative_error(&cpu.download(&exact)?, result);
    if args.compute.json {
        say!("{}", json!({ "event": "accuracy", "relative_error": error }));
    } else {
        say!("accuracy: relative error {error:.1e} against f32 on the CPU");
    }
    Ok(())
}

struct Case<'a> {
    args: &'a DitBenchArgs,
    device: &'a DeviceHandle,
    dit: &'a Dit,
    needs: DitRequirements,
}

impl Case<'_> {
    /// Times the step and returns its result.
    fn time(&self, text: &TextEmbedding) -> Result<Vec<f32>> {
        let ops = &*self.device.ops;
        let (latents, text) = (latents(ops, self.dit, self.args.latent)?, ops.upload(text.shape, &text.values)?);
        let plan = self.dit.plan(ops, self.args.latent, text.rows())?;
        let once = |ops: &dyn Device| -> Result<f64> {
            ops.finish()?;
            let start = Instant::now();
            self.dit.sample(ops, &latents, &text, &plan)?;
            ops.finish()?;
            Ok(start.elapsed().as_secs_f64())
        };
        let watch = Watch::start();
        // The first pass allocates memory and loads kernels; it is neither timed nor profiled.
        let result = ops.download(&self.dit.sample(ops, &latents, &text, &plan)?)?;
        let profiler = ProfileOps::new(ops);
        once(&profiler)?;
        ops.copy_time()?;
        let mut times = (0..self.args.repeat).map(|_| once(ops)).collect::<Result<Vec<_>>>()?;
        times.sort_by(f64::total_cmp);
        self.print(&times, profiler.records()?, HostMemory::since(&watch), ops.copy_time()?);
        Ok(result)
    }

    fn print(&self, times: &[f64], records: Vec<Record>, memory: HostMemory, copies: CopyTime) {
        let mut cost = Cost::default();
        records.iter().for_each(|r| cost += r.cost);
        let median = times[times.len() / 2];
        let (name, rate) = (self.dit.config.layout.name, cost.flops as f64 / median / 1e12);
        let (ops, latent, args) = (&self.device.ops, self.args.latent, &self.args.compute);
        let peak = self.device.gpu.as_ref().map(|gpu| gpu.peak_bytes());
        let (DitRequirements { layers, resident, .. }, copying) = (self.needs, copies.of_one(times.len()).copying);
        if args.json {
            say!(
                "{}",
                json!({
                    "event": "bench", "command": "dit", "model": name, "device": ops.name(),
                    "latent": latent.to_string(), "dtype": ops.precision().to_string(), "seconds": times,
                    "median": median, "flops": cost.flops, "tflops_per_second": rate,
                    "peak_above_weights_bytes": memory.above_weights(), "gpu_peak_bytes": peak,
                    "layers": layers, "resident_layers": resident, "copy_seconds": copying,
                    "copies_hidden": copies.hidden(),
                })
            );
        } else {
            let (first, last) = (times[0], times[times.len() - 1]);
            say!(
                "dit {name} {latent} {} on {}: median {:.1} ms ({:.1} to {:.1}), {rate:.2} effective TFLOP/s",
                ops.precision(),
                ops.name(),
                median * 1e3,
                first * 1e3,
                last * 1e3,
            );
            say!("{}", memory.line());
            if let Some(peak) = peak {
                let hidden = 100.0 * copies.hidden();
                say!(
                    "GPU: {} of memory, {resident} of {layers} layers resident; copies {:.1} ms, {hidden:.0}% hidden",
                    bytes(peak),
                    copying * 1e3
                );
            }
        }
        if let Some(ceiling) = self.device.ceiling {
            report::profile(&Profile { records, ceiling }, args.json);
        }
    }
}
