//! `reseed bench dit`: layers of the transformer, with weights from a formula.

use std::time::Instant;

use reseed_model::dit::{Config, Dit};
use reseed_model::weights::formula::{Formula, uniform};
use reseed_ops::{Cost, Ops, ProfileOps, Shape, Tensor};
use serde_json::json;

use crate::args::DitBenchArgs;
use crate::engine::{self, SEED};
use crate::failure::Result;
use crate::model::TEXT_TOKENS;
use crate::report;

pub fn run(args: &DitBenchArgs) -> Result<()> {
    let device = engine::transformer_device(&args.compute)?.map_or_else(|| engine::device(&args.compute, None), Ok)?;
    let ops = &*device.ops;
    let layers = usize::from(args.layers);
    let config = Config { layers, separate: (layers - 1).min(10), ..Config::b3() };
    let dit = Dit::load(ops, &Formula::plain(config.tensors(), SEED))?;
    let latent = args.latent;
    let plan = dit.plan(ops, latent, TEXT_TOKENS)?;
    let unit = |name: &str, shape: Shape| -> Result<Tensor> {
        let values: Vec<f32> = uniform(name, shape.count(), 1).iter().map(|v| (v * 3f64.sqrt()) as f32).collect();
        Ok(ops.upload(shape, &values)?)
    };
    let latents = unit("latents", Shape::from([2 * latent.t, latent.h, latent.w, config.latent]))?;
    let text = unit("text", Shape::from([TEXT_TOKENS, config.text_width]))?;
    let once = |ops: &dyn Ops| -> Result<f64> {
        let start = Instant::now();
        ops.download(&dit.velocity(ops, &latents, &text, &plan)?)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let profiler = ProfileOps::new(ops);
    once(&profiler)?;
    let mut times = (0..args.repeat).map(|_| once(ops)).collect::<Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    tell(args, ops, &times, &profiler);
    Ok(())
}

fn tell(args: &DitBenchArgs, ops: &dyn Ops, times: &[f64], profiler: &ProfileOps) {
    let median = times[times.len() / 2];
    let mut cost = Cost::default();
    profiler.records().iter().for_each(|r| cost += r.cost);
    let gflops = cost.flops as f64 / median / 1e9;
    let (layers, latent) = (args.layers, args.latent);
    if args.compute.json {
        say!(
            "{}",
            json!({
                "event": "bench", "command": "dit", "device": ops.device(), "dtype": ops.precision().to_string(),
                "layers": layers, "latent": latent.to_string(), "seconds": times, "median": median,
                "gflops_per_second": gflops,
            })
        );
    } else {
        say!(
            "dit 3b, {layers} layers, latent {latent} {} on {}: median {median:.3} s ({:.3} to {:.3}), {gflops:.0} GFLOP/s",
            ops.precision(),
            ops.device(),
            times[0],
            times[times.len() - 1],
        );
    }
    if args.compute.profile {
        report::profile(&profiler.records(), args.compute.json);
    }
}
