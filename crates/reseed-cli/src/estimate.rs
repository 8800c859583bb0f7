//! `reseed estimate vae`: the model runs on a device that computes nothing, and says what it would have taken.

use reseed_model::plan::{Cut, padded_plane, slices, whole_frames};
use reseed_model::{Config, Half, Stream, Vae};
use reseed_ops::{Hw, Ledger, TraceOps};
use serde_json::json;

use crate::args::{Direction, EstimateArgs, RunArgs};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::report::bytes;
use crate::vae::{step, tiles, workers};

/// What a run would take.
pub struct Needs {
    /// Of the traced run.
    pub ledger: Ledger,
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
    let cpu = engine::device(&args.run)?;
    let trace = cpu.trace();
    let source = engine::weights(&args.weights)?;
    let (encode, config, half) = match args.direction {
        Direction::Encode => {
            let (config, encoder) = Vae::load_encoder(&trace, &*source)?;
            (true, config, Box::new(encoder) as Box<dyn Half>)
        }
        Direction::Decode => {
            let (config, decoder) = Vae::load_decoder(&trace, &*source)?;
            (false, config, Box::new(decoder) as Box<dyn Half>)
        }
    };
    let (frames, size) = (args.frames as usize, args.size);
    let needs = trace_clip(&trace, &*half, &config, &args.run, cpu.threads(), frames, size, encode)?;
    tell(args, &needs);
    Ok(())
}

/// Runs a whole clip on the tracing device.
#[expect(clippy::too_many_arguments, reason = "a run in all its parts")]
fn trace_clip(
    trace: &TraceOps,
    half: &dyn Half,
    config: &Config,
    args: &RunArgs,
    threads: usize,
    frames: usize,
    size: Hw,
    encode: bool,
) -> Result<Needs> {
    let pictures = whole_frames(frames, config.temporal_factor());
    let padded = padded_plane(size, config.spatial_factor());
    let factor = config.spatial_factor();
    let (cut, plane, total) = match encode {
        true => (Cut::Pictures, padded, pictures),
        false => {
            (Cut::Latents, Hw::new(padded.h / factor, padded.w / factor), 1 + (pictures - 1) / config.temporal_factor())
        }
    };
    let tiles = tiles(&args.plan, config, cut, plane)?;
    let (count, workers) = (tiles.as_ref().map_or(1, Vec::len), workers(threads, &tiles));
    let plan = slices(total, step(&args.plan, config, cut));
    reserve(half, plane, plan[0].len())?;
    let mut stream = Stream::new(trace, half, plane, tiles, workers);
    let mut host = 0;
    for slice in &plan {
        let values = vec![0.0; slice.len() * plane.count() * half.channels_in()];
        let result = stream.step(&values, slice.end == total)?;
        // The slice in hand, the one read ahead, and the result.
        host = host.max((2 * values.len() + result.len()) * size_of::<f32>());
    }
    let ledger = trace.ledger();
    Ok(Needs { ledger, peak: ledger.peak + host, slices: plan.len(), tiles: count, workers })
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
    let Needs { ledger, peak, slices, tiles, workers } = needs;
    let name = if args.direction == Direction::Encode { "encode" } else { "decode" };
    if args.run.json {
        say!(
            "{}",
            json!({
                "event": "estimate", "command": format!("vae {name}"), "frames": args.frames,
                "width": args.size.w, "height": args.size.h, "dtype": args.run.dtype.to_string(),
                "weights_bytes": ledger.weights, "peak_above_weights_bytes": peak, "flops": ledger.cost.flops,
                "traffic_bytes": ledger.cost.bytes, "ops": ledger.ops,
                "slices": slices, "slice_latents": args.run.plan.slice, "tiles": tiles, "tiles_at_once": workers,
            })
        );
        return;
    }
    say!("vae {name}, {} frames of {}x{}, {}", args.frames, args.size.w, args.size.h, args.run.dtype);
    say!("weights     {}", bytes(ledger.weights));
    say!("activations {} at most", bytes(*peak));
    say!("arithmetic  {:.3} TFLOP", ledger.cost.flops as f64 / 1e12);
    say!("traffic     {}", bytes(ledger.cost.bytes as usize));
    let tiled = if *tiles > 1 { format!(", {tiles} tiles each, {workers} at the same time") } else { String::new() };
    say!("plan        {slices} slices of {} latent frames{tiled}", args.run.plan.slice);
}
