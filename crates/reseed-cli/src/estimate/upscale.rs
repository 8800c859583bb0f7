//! `reseed estimate upscale`: what a whole job would take, from the plan that it would run.

use reseed::batch::Batching;
use reseed::{Settings, WindowPlan, memory};
use reseed_media::Disk;
use reseed_ops::{Ceiling, Cost, SpeedModel};
use serde_json::json;

use crate::args::estimate::UpscaleEstimateArgs;
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::outline::{JobPlan, JobPlanner};
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
    disk: Disk,
    seconds: f64,
    /// What the seconds are based on.
    pace: String,
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
    let (device, other) = engine::devices(&args.job.compute, args.job.max_vram, Some(&weights))?;
    let (device, other) = (paced(device)?, other.map(paced).transpose()?);
    let transformer = other.as_ref().unwrap_or(&device);
    let (plan, batch) = (plan_args(&args.job), settings.batching.size);
    let outline =
        JobPlanner { weights: &weights, device: &device, transformer, plan, geometry: geometry.clone(), batch };
    let choice = outline.choose()?;
    let step = batch - settings.batching.shared();
    let batches = frames.saturating_sub(settings.batching.shared()).div_ceil(step).max(1);
    let settings = Settings { turns: WindowPlan { window: choice.window, layers: 0 }, ..settings };
    let pictures = memory::of_frames(&settings, &geometry, choice.turns.halves[0].plan.slice);
    let (on_card, host) = match &device.card {
        Some(card) => (card.peak_bytes() + choice.kept + choice.turns.bytes(), choice.hosted + pictures),
        None => (0, choice.kept + choice.turns.bytes() + pictures),
    };
    // All batches, as if each were full.
    let Cost { flops, bytes } = choice.turns.cost();
    let cost = Cost { flops: batches as u64 * flops, bytes: batches as u64 * bytes };
    let (seconds, pace) = (batches as f64 * choice.time() as f64 / 1e9, assumption(&device));
    let disk = super::disk::needs(args, &settings, source.info(), frames)?;
    tell(args, &Needs { frames, batches, cost, device: on_card, host, disk, seconds, pace }, &choice);
    Ok(())
}

/// A device whose plans keep the time that it was measured to need. What cards reach is known; a processor is tried.
fn paced(device: Device) -> Result<Device> {
    if device.card.is_some() {
        return Ok(device);
    }
    let Ceiling { flops, bytes } = Ceiling::measure(&*device.ops)?;
    let each = |a_second: f64| (a_second / 1e9).max(1.0) as u64;
    let (pace, trace) = (SpeedModel { flops: each(flops), bytes: each(bytes), ..SpeedModel::default() }, device.trace);
    Ok(Device { trace: Box::new(move || trace().with_speed(pace)), ..device })
}

/// What the time is based on.
fn assumption(device: &Device) -> String {
    let SpeedModel { flops, bytes, bus } = (device.trace)().speed();
    let (name, flops) = (device.ops.name(), flops as f64 / 1e3);
    match device.card {
        Some(_) => format!("{name} at {flops:.0} TFLOP/s, {bytes} GB/s in its memory and {bus} GB/s to the host's"),
        None => format!("{name} at {flops:.2} TFLOP/s and {bytes} GB/s, as measured now"),
    }
}

fn tell(args: &UpscaleEstimateArgs, needs: &Needs, choice: &JobPlan) {
    let Needs { frames, batches, cost, device, host, disk, seconds, pace } = needs;
    let (step, slice, fps) = (&choice.turns.step, choice.turns.halves[0].plan.slice, *frames as f64 / seconds);
    let (resident, layers) = (step.resident, step.layers);
    if args.job.compute.json {
        say!(
            "{}",
            json!({"event": "estimate", "command": "upscale", "frames": frames, "batches": batches,
                   "seconds": seconds, "fps": fps, "based_on": pace, "device_bytes": device, "host_bytes": host,
                   "output_bytes": disk.output, "work_bytes": disk.work,
                   "weights_bytes": choice.kept, "hosted_bytes": choice.hosted, "flops": cost.flops,
                   "layers": layers, "resident_layers": resident, "slice_latents": slice,
                   "swapped": choice.is_apart(), "window": choice.window, "step_seconds": step.time as f64 / 1e9,
                   "step_waits_seconds": step.waited as f64 / 1e9})
        );
        return;
    }
    say!("{frames} frames, {batches} batches of {}", args.batch_size);
    say!("time        about {seconds:.0} s, {fps:.2} fps in the networks");
    say!("based on    {pace}");
    if *device > 0 {
        say!("card        {} at most", bytes(*device));
    }
    say!("host        {} at most", bytes(*host));
    let (output, work) = (bytes(disk.output as usize), bytes(disk.work as usize));
    say!("disk        about {output}, and {work} beside it while the job runs");
    say!("arithmetic  {:.3} TFLOP", cost.flops as f64 / 1e12);
    let turns = match (choice.is_apart(), resident < layers) {
        (true, _) => format!(" in turns of {} batches, {} wait on the host", choice.window, bytes(choice.hosted)),
        (false, true) => format!(", {} stream", bytes(choice.hosted)),
        (false, false) => String::new(),
    };
    say!("plan        {resident} of {layers} layers on the device{turns}; slices of {slice} latent frames");
}
