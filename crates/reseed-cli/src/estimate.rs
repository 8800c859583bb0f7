//! `reseed estimate vae`: what the encoder or the decoder alone would need.

pub mod upscale;

use reseed::Precision;
use reseed::internals::{ClipEstimate, ClipPlan, vae_weights};
use serde_json::json;

use crate::failure::Result;
use crate::report::bytes;
use crate::vae::open_device;
use crate::warning;
use reseed_args::{Direction, EstimateArgs};

pub fn run(args: &EstimateArgs) -> Result<()> {
    let device = open_device(&args.run)?;
    let (dtype, source) = (device.ops.precision(), vae_weights(&args.weights)?);
    let clip = (args.size, args.frames as usize);
    let estimate = ClipEstimate::new(device, &*source, args.direction.into(), clip, &args.run.plan.settings())?;
    estimate.plan.warning().iter().for_each(|warning| warning::show(warning));
    print(args, dtype, &estimate);
    Ok(())
}

fn print(args: &EstimateArgs, dtype: Precision, estimate: &ClipEstimate) {
    let ClipEstimate { report, weights, peak, gpu, slices, plan } = estimate;
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
