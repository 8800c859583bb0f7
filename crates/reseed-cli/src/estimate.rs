//! `reseed estimate vae`: the model runs on a device that computes nothing, and says what it would have taken.

mod disk;
pub mod upscale;

use reseed_model::plan::slices;
use reseed_model::{Coder, Config};
use reseed_ops::{Cost, Hw, Precision, TraceReport};
use serde_json::json;

use crate::args::{Direction, EstimateArgs};
use crate::budget::{self, Clip, Planned};
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::report::bytes;

/// What a run would take.
pub struct Needs {
    /// Of the traced run.
    report: TraceReport,
    /// Bytes of the weights.
    weights: usize,
    /// Type of the activations.
    dtype: Precision,
    /// Most bytes of the device's memory beside the weights.
    peak: usize,
    /// Most bytes of a card's memory, with what its driver needs.
    card: Option<usize>,
    /// Slices.
    slices: usize,
    planned: Planned,
}

pub fn run(args: &EstimateArgs) -> Result<()> {
    let mut device = engine::device(&args.run.compute, args.run.plan.max_vram)?;
    let source = engine::weights(&args.weights)?;
    let trace = (device.trace)();
    let (config, half) = engine::half(&trace, &*source, args.direction)?;
    let weights = trace.report().weights;
    // They are not on the card now, but a run's would be.
    let room = device.room;
    device.room = Box::new(move || Ok(room()?.map(|room| room.saturating_sub(weights))));
    tell(args, &trace_clip(&device, &*half, &config, args, weights)?);
    Ok(())
}

/// Runs a clip on the tracing device. All slices between the third and the last are alike, so one stands for them.
fn trace_clip(
    device: &Device,
    half: &dyn Coder,
    config: &Config,
    args: &EstimateArgs,
    weights: usize,
) -> Result<Needs> {
    let clip = Clip::of(args.direction, half, config, args.size, args.frames as usize);
    let (plane, total) = (clip.plane, clip.frames);
    let planned = budget::plan(device, &args.run.plan, &[clip])?.swap_remove(0);
    let plan = slices(total, planned.step());
    reserve(half, plane, plan[0].len())?;
    let trace = (device.trace)();
    let mut stream = planned.stream(&trace, half, plane);
    let (mut host, mut alike) = (0, Cost::default());
    for (i, slice) in plan.iter().enumerate().filter(|(i, _)| *i < 4 || i + 1 == plan.len()) {
        let before = trace.report().cost;
        let values = vec![0.0; slice.len() * plane.count() * half.channels_in()];
        let result = stream.step(&values, slice.end == total)?;
        // The slice in hand, the one read ahead, and the result.
        host = host.max((2 * values.len() + result.len()) * size_of::<f32>());
        if i == 3 {
            let after = trace.report().cost;
            alike = Cost { flops: after.flops - before.flops, bytes: after.bytes - before.bytes };
        }
    }
    let mut report = trace.report();
    let left_out = plan.len().saturating_sub(5) as u64;
    report.cost += Cost { flops: left_out * alike.flops, bytes: left_out * alike.bytes };
    let dtype = device.ops.precision();
    // A card keeps its tensors in one piece; a CPU shares its memory with the host's buffers.
    let peak = if device.card.is_some() { planned.plan.report.arena + budget::SPARE } else { report.peak + host };
    let card = device.card.as_ref().map(|card| card.peak_bytes() + weights + peak);
    Ok(Needs { report, weights, dtype, peak, card, slices: plan.len(), planned })
}

/// An error where even the pictures of the first slice, the longest, find no place on the host: they are the one thing
/// that a traced run asks for.
fn reserve(half: &dyn Coder, plane: Hw, frames: usize) -> Result<()> {
    let values = frames * plane.count() * half.channels_in();
    let result = half.frames_out(frames, true) * half.plane_out(plane).count() * half.channels_out();
    // Tiles are cut from the values and blended into a second result.
    let most = 2 * (values + result) * size_of::<f32>();
    Vec::<u8>::new().try_reserve_exact(most).map_err(|_| {
        let slice = bytes((values + result) * size_of::<f32>());
        Failure::Memory(format!("a slice takes {slice} on the host alone; use shorter slices (--slice)"))
    })
}

fn tell(args: &EstimateArgs, needs: &Needs) {
    let Needs { report, weights, dtype, peak, card, slices, planned: Planned { plan, tiles, workers, .. } } = needs;
    let tiles = tiles.as_ref().map_or(1, Vec::len);
    let name = if args.direction == Direction::Encode { "encode" } else { "decode" };
    if args.run.compute.json {
        say!(
            "{}",
            json!({
                "event": "estimate", "command": format!("vae {name}"), "frames": args.frames,
                "width": args.size.w, "height": args.size.h, "dtype": dtype.to_string(),
                "weights_bytes": weights, "peak_above_weights_bytes": peak, "flops": report.cost.flops,
                "traffic_bytes": report.cost.bytes, "ops": report.ops,
                "parked_bytes": report.offloaded, "frames_at_once": plan.cache_plan.chunk_frames,
                "card_peak_bytes": card, "slices": slices, "slice_latents": plan.slice, "tiles": tiles, "tiles_at_once": workers,
            })
        );
        return;
    }
    say!("vae {name}, {} frames of {}x{}, {}", args.frames, args.size.w, args.size.h, dtype);
    say!("weights     {}", bytes(*weights));
    say!("activations {} at most", bytes(*peak));
    if let Some(card) = card {
        say!("card        {} of its memory in all", bytes(*card));
    }
    say!("arithmetic  {:.3} TFLOP", report.cost.flops as f64 / 1e12);
    say!("traffic     {}", bytes(report.cost.bytes as usize));
    if report.offloaded > 0 {
        say!("offloaded      {} in the host's memory", bytes(report.offloaded));
    }
    let tiled = if tiles > 1 { format!(", {tiles} tiles each, {workers} at the same time") } else { String::new() };
    let (slice, at_once) = (plan.slice, plan.cache_plan.chunk_frames);
    say!("plan        {slices} slices of {slice} latent frames, {at_once} pictures at once{tiled}");
}
