//! `reseed estimate vae`: the model runs on a device that computes nothing, and says what it would have taken.

use reseed_model::plan::{Cut, padded_plane, slices, whole_frames};
use reseed_model::{Config, Half, Stream, Vae};
use reseed_ops::{Cost, DType, Hw, Ledger};
use serde_json::json;

use crate::args::{Direction, EstimateArgs};
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::report::bytes;
use crate::vae::{step, tiles, workers};

/// What a run would take.
pub struct Needs {
    /// Of the traced run.
    pub ledger: Ledger,
    /// Type of the activations.
    pub dtype: DType,
    /// Most bytes beside the weights: tensors, workspace and host buffers.
    pub peak: usize,
    /// Slices.
    pub slices: usize,
    /// Tiles a slice.
    pub tiles: usize,
    /// Tiles at the same time.
    pub workers: usize,
}

pub fn run(args: &EstimateArgs) -> Result<()> {
    let device = engine::device(&args.run.compute)?;
    let source = engine::weights(&args.weights)?;
    let (config, half): (Config, Box<dyn Half>) = match args.direction {
        Direction::Encode => {
            let (config, encoder) = Vae::load_encoder(&device.trace, &*source)?;
            (config, Box::new(encoder))
        }
        Direction::Decode => {
            let (config, decoder) = Vae::load_decoder(&device.trace, &*source)?;
            (config, Box::new(decoder))
        }
    };
    tell(args, &trace_clip(&device, &*half, &config, args)?);
    Ok(())
}

/// Runs a clip on the tracing device. All slices between the third and the last are alike, so one stands for them.
fn trace_clip(device: &Device, half: &dyn Half, config: &Config, args: &EstimateArgs) -> Result<Needs> {
    let (time, factor) = (config.temporal_factor(), config.spatial_factor());
    let pictures = whole_frames(args.frames as usize, time);
    let padded = padded_plane(args.size, factor);
    let (cut, plane, total) = match args.direction {
        Direction::Encode => (Cut::Pictures, padded, pictures),
        Direction::Decode => (Cut::Latents, Hw::new(padded.h / factor, padded.w / factor), 1 + (pictures - 1) / time),
    };
    let tiles = tiles(&args.run.plan, config, cut, plane)?;
    let (count, workers) = (tiles.as_ref().map_or(1, Vec::len), workers(device.lanes, &tiles, cut));
    let plan = slices(total, step(&args.run.plan, config, cut));
    reserve(half, plane, plan[0].len())?;
    let mut stream = Stream::new(&device.trace, half, plane, tiles, workers);
    let (mut host, mut alike) = (0, Cost::default());
    for (i, slice) in plan.iter().enumerate().filter(|(i, _)| *i < 4 || i + 1 == plan.len()) {
        let before = device.trace.ledger().cost;
        let values = vec![0.0; slice.len() * plane.count() * half.channels_in()];
        let result = stream.step(&values, slice.end == total)?;
        // The slice in hand, the one read ahead, and the result.
        host = host.max((2 * values.len() + result.len()) * size_of::<f32>());
        if i == 3 {
            let after = device.trace.ledger().cost;
            alike = Cost { flops: after.flops - before.flops, bytes: after.bytes - before.bytes };
        }
    }
    let mut ledger = device.trace.ledger();
    let left_out = plan.len().saturating_sub(5) as u64;
    ledger.cost += Cost { flops: left_out * alike.flops, bytes: left_out * alike.bytes };
    let dtype = device.ops.dtype();
    Ok(Needs { ledger, dtype, peak: ledger.peak + host, slices: plan.len(), tiles: count, workers })
}

/// An error where even the pictures of the first slice, the longest, find no place on the host: they are the one thing
/// that a traced run asks for.
fn reserve(half: &dyn Half, plane: Hw, frames: usize) -> Result<()> {
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
    let Needs { ledger, dtype, peak, slices, tiles, workers } = needs;
    let name = if args.direction == Direction::Encode { "encode" } else { "decode" };
    if args.run.compute.json {
        say!(
            "{}",
            json!({
                "event": "estimate", "command": format!("vae {name}"), "frames": args.frames,
                "width": args.size.w, "height": args.size.h, "dtype": dtype.to_string(),
                "weights_bytes": ledger.weights, "peak_above_weights_bytes": peak, "flops": ledger.cost.flops,
                "traffic_bytes": ledger.cost.bytes, "ops": ledger.ops,
                "slices": slices, "slice_latents": args.run.plan.slice, "tiles": tiles, "tiles_at_once": workers,
            })
        );
        return;
    }
    say!("vae {name}, {} frames of {}x{}, {}", args.frames, args.size.w, args.size.h, dtype);
    say!("weights     {}", bytes(ledger.weights));
    say!("activations {} at most", bytes(*peak));
    say!("arithmetic  {:.3} TFLOP", ledger.cost.flops as f64 / 1e12);
    say!("traffic     {}", bytes(ledger.cost.bytes as usize));
    let tiled = if *tiles > 1 { format!(", {tiles} tiles each, {workers} at the same time") } else { String::new() };
    say!("plan        {slices} slices of {} latent frames{tiled}", args.run.plan.slice);
}
