//! `reseed estimate vae`: the VAE runs on a tracing device, which computes nothing and counts.

pub mod upscale;

use reseed::internals::model::plan::slices;
use reseed::internals::model::{Coder, Config};
use reseed::internals::ops::{Cost, TraceReport};
use reseed::internals::{self, Clip, ClipPlan, Device, MARGIN, load_coder, vae_weights};
use reseed::{Error, Hw, Precision};
use serde_json::json;

use crate::args::{Direction, EstimateArgs};
use crate::failure::Result;
use crate::report::{bytes, warn};

/// What a run would need.
struct DitRequirements {
    /// Of the traced run.
    report: TraceReport,
    /// Bytes of the weights.
    weights: usize,
    /// Type of the activations.
    dtype: Precision,
    /// Most bytes of device memory beside the weights.
    peak: usize,
    /// Most bytes of GPU memory, with the driver's own.
    gpu: Option<usize>,
    /// Number of slices.
    slices: usize,
    plan: ClipPlan,
}

pub fn run(args: &EstimateArgs) -> Result<()> {
    let mut device = internals::open(&args.run.compute.options(args.run.plan.max_vram)?)?;
    let source = vae_weights(&args.weights)?;
    let trace = (device.trace)();
    let (config, coder) = load_coder(&trace, &*source, args.direction.into())?;
    let weights = trace.report().weights;
    // They are not on the GPU now, but those of a run would be.
    let room = device.room;
    device.room = Box::new(move || Ok(room()?.map(|room| room.saturating_sub(weights))));
    print(args, &trace_clip(&device, &*coder, &config, args, weights)?);
    Ok(())
}

/// Runs a clip on the tracing device. All slices between the third and the last are alike, so that one stands for them.
fn trace_clip(
    device: &Device,
    coder: &dyn Coder,
    config: &Config,
    args: &EstimateArgs,
    weights: usize,
) -> Result<DitRequirements> {
    let clip = Clip::new(args.direction.into(), coder, config, args.size, args.frames as usize);
    let (plane, total) = (clip.plane, clip.frames);
    let plan = internals::plan(device, &args.run.plan.settings(), &[clip])?.swap_remove(0);
    plan.warning().iter().for_each(|warning| warn(warning));
    let parts = slices(total, plan.step());
    check_host_memory(coder, plane, parts[0].len())?;
    let trace = (device.trace)();
    let mut stream = plan.stream(&trace, coder, plane);
    let (mut host, mut alike) = (0, Cost::default());
    for (i, slice) in parts.iter().enumerate().filter(|(i, _)| *i < 4 || i + 1 == parts.len()) {
        let before = trace.report().cost;
        let values = vec![0.0; slice.len() * plane.count() * coder.channels_in()];
        let result = stream.step(&values, slice.end == total)?;
        // The slice in hand, the one read ahead, and the result.
        host = host.max((2 * values.len() + result.len()) * size_of::<f32>());
        if i == 3 {
            let after = trace.report().cost;
            alike = Cost { flops: after.flops - before.flops, bytes: after.bytes - before.bytes };
        }
    }
    let mut report = trace.report();
    let left_out = parts.len().saturating_sub(5) as u64;
    report.cost += Cost { flops: left_out * alike.flops, bytes: left_out * alike.bytes };
    let dtype = device.ops.precision();
    // A GPU has its tensors in one arena; a CPU shares its memory with the host's buffers.
    let peak = if device.gpu.is_some() { plan.plan.report.arena + MARGIN } else { report.peak + host };
    let gpu = device.gpu.as_ref().map(|gpu| gpu.peak_bytes() + weights + peak);
    Ok(DitRequirements { report, weights, dtype, peak, gpu, slices: parts.len(), plan })
}

/// An error where the host cannot hold the frames of the first slice, which is the longest: a traced run allocates them.
fn check_host_memory(coder: &dyn Coder, plane: Hw, frames: usize) -> Result<()> {
    let values = frames * plane.count() * coder.channels_in();
    let result = coder.frames_out(frames, true) * coder.plane_out(plane).count() * coder.channels_out();
    // Tiles are cut from the values and blended into a second result.
    let most = 2 * (values + result) * size_of::<f32>();
    let reserved = Vec::<u8>::new().try_reserve_exact(most);
    reserved.map_err(|_| Error::SliceTooLarge { bytes: (values + result) * size_of::<f32>() }.into())
}

fn print(args: &EstimateArgs, needs: &DitRequirements) {
    let DitRequirements { report, weights, dtype, peak, gpu, slices, plan } = needs;
    let ClipPlan { plan, tiles, workers, .. } = plan;
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
                "offloaded_bytes": report.offloaded, "frames_at_once": plan.cache_plan.chunk_frames,
                "gpu_peak_bytes": gpu, "slices": slices, "slice_latents": plan.slice, "tiles": tiles,
                "tiles_at_once": workers,
            })
        );
        return;
    }
    say!("vae {name}, {} frames of {}x{}, {}", args.frames, args.size.w, args.size.h, dtype);
    say!("weights     {}", bytes(*weights));
    say!("activations {} at most", bytes(*peak));
    if let Some(gpu) = gpu {
        say!("GPU         {} in all", bytes(*gpu));
    }
    say!("arithmetic  {:.3} TFLOP", report.cost.flops as f64 / 1e12);
    say!("traffic     {}", bytes(report.cost.bytes as usize));
    if report.offloaded > 0 {
        say!("offloaded   {} in host memory", bytes(report.offloaded));
    }
    let tiled = if tiles > 1 { format!(", {tiles} tiles each, {workers} at the same time") } else { String::new() };
    let (slice, at_once) = (plan.slice, plan.cache_plan.chunk_frames);
    say!("plan        {slices} slices of {slice} latent frames, {at_once} frames at once{tiled}");
}
