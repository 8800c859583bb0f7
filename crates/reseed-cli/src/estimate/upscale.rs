//! `reseed estimate upscale`: what a whole job would take, from the plan that it would run.

use std::time::Instant;

use reseed_model::Vae;
use reseed_model::weights::formula::uniform;
use reseed_ops::{ConvData, Cost, Shape};
use reseed_upscale::batch::Batching;
use reseed_upscale::{Settings, memory};
use serde_json::json;

use crate::args::estimate::UpscaleEstimateArgs;
use crate::budget::{self, Planned, SPARE};
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::outline::{Outline, Share};
use crate::report::bytes;
use crate::upscale::{plan_args, settings};

/// What a job would take.
struct Needs {
    frames: usize,
    batches: usize,
    /// Of the whole job.
    cost: Cost,
    /// Bytes of the device's memory, the driver's share included; nothing for a processor.
    device: usize,
    /// Bytes of the host's memory.
    host: usize,
    seconds: f64,
}

pub fn run(args: &UpscaleEstimateArgs) -> Result<()> {
    let source = reseed_media::open(&args.input).map_err(Failure::input)?;
    let unknown =
        || Failure::Usage(format!("{}: says not how many frames it has; give --frames", args.input.display()));
    let frames = args.frames.map(|n| n as usize).or(source.info().frames).ok_or_else(unknown)?;
    let batching = Batching { size: args.batch_size.into(), overlap: args.overlap.into(), uniform: false };
    let settings = Settings { batching, ..settings(&args.job)? };
    let geometry = settings.geometry(source.info())?;
    let weights = Weights::open(args.job.model(), None)?;
    let device = engine::device(&args.job.compute, args.job.max_vram)?;
    let other = engine::transformer_device(&args.job.compute, args.job.max_vram, &device)?;
    let transformer = other.as_ref().unwrap_or(&device);
    let (plan, batch) = (plan_args(&args.job), settings.batching.size);
    let outline = Outline { weights: &weights, device: &device, transformer, plan, padded: geometry.padded, batch };
    let share = outline.share()?;
    let planned = halves(&outline, &share)?;
    let step = batch - settings.batching.shared();
    let batches = frames.saturating_sub(settings.batching.shared()).div_ceil(step).max(1);
    let cost = of_batches(&planned, &share, batches);
    let tensors = planned.iter().map(|half| half.plan.ledger.arena + SPARE).max().unwrap_or(0).max(share.turn());
    let pictures = memory::of_frames(&settings, &geometry, planned[0].plan.slice);
    let (on_card, host) = match &device.card {
        Some(card) => (card.peak_bytes() + share.weights() + tensors, share.step.hosted + pictures),
        None => (0, share.weights() + tensors + pictures),
    };
    let seconds = cost.flops as f64 / rate(transformer)?;
    tell(args, &Needs { frames, batches, cost, device: on_card, host, seconds }, &share, &planned);
    Ok(())
}

/// How the autoencoder would run beside the networks' weights.
fn halves(outline: &Outline, share: &Share) -> Result<Vec<Planned>> {
    let trace = (outline.device.trace)();
    let vae = Vae::load(&trace, outline.weights.vae())?;
    let room = (outline.device.room)()?.map_or(usize::MAX, |room| room.saturating_sub(share.weights()));
    budget::plan_within(outline.device, &outline.plan, &outline.clips(&vae), room)
}

/// All batches, as if each were full.
fn of_batches(planned: &[Planned], share: &Share, batches: usize) -> Cost {
    let mut cost = share.step.cost;
    planned.iter().for_each(|half| cost += half.cost());
    let batches = batches as u64;
    Cost { flops: batches * cost.flops, bytes: batches * cost.bytes }
}

/// Share of a large product's pace that the networks keep, measured over whole jobs.
const NETWORKS: f64 = 0.6;

/// Operations a second that the networks may reach: those of a large product, which is tried.
fn rate(device: &Device) -> Result<f64> {
    let (rows, d) = if device.card.is_some() { (8192, 4096) } else { (512, 1024) };
    let ops = &*device.ops;
    let values = |count: usize| uniform("rate", count, 1).into_iter().map(|v| v as f32).collect::<Vec<_>>();
    let linear = ops.linear_weights(d, d, &|| Ok(ConvData { weight: values(d * d), bias: vec![0.0; d] }))?;
    let x = ops.upload(Shape::from([rows, d]), &values(rows * d))?;
    let once = || -> Result<f64> {
        let start = Instant::now();
        ops.linear(&x, &linear, None)?;
        ops.finish()?;
        Ok(start.elapsed().as_secs_f64())
    };
    once()?;
    let best = (0..5).map(|_| once()).collect::<Result<Vec<f64>>>()?.into_iter().fold(f64::INFINITY, f64::min);
    Ok(NETWORKS * 2.0 * (rows * d * d) as f64 / best)
}

fn tell(args: &UpscaleEstimateArgs, needs: &Needs, share: &Share, planned: &[Planned]) {
    let Needs { frames, batches, cost, device, host, seconds } = *needs;
    let (resident, layers, plan) = (share.step.resident, share.step.layers, &planned[0].plan);
    if args.job.compute.json {
        say!(
            "{}",
            json!({"event": "estimate", "command": "upscale", "frames": frames, "batches": batches,
                   "seconds": seconds, "fps": frames as f64 / seconds, "device_bytes": device, "host_bytes": host,
                   "weights_bytes": share.weights(), "hosted_bytes": share.step.hosted, "flops": cost.flops,
                   "layers": layers, "resident_layers": resident, "slice_latents": plan.slice})
        );
        return;
    }
    say!("{frames} frames, {batches} batches of {}", args.batch_size);
    say!("time        about {seconds:.0} s, {:.2} fps", frames as f64 / seconds);
    if device > 0 {
        say!("card        {} at most", bytes(device));
    }
    say!("host        {} at most", bytes(host));
    say!("arithmetic  {:.3} TFLOP", cost.flops as f64 / 1e12);
    let stream = if resident < layers { format!(", {} stream", bytes(share.step.hosted)) } else { String::new() };
    say!("plan        {resident} of {layers} layers on the device{stream}; slices of {} latent frames", plan.slice);
}
