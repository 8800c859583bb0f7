//! `reseed bench conv`: a convolution on one CPU core, beside the peak of that core.

use std::time::Instant;

use reseed::Thw;
use reseed::internals::cpu::CpuOps;
use reseed::internals::cpu_precision;
use reseed::internals::model::weights::formula::uniform;
use reseed::internals::ops::{ConvData, ConvSpec, Device, Epilogue, Ops, Shape, TemporalCache, Transfer, cost};
use serde_json::json;

use crate::failure::Result;
use reseed_args::bench::ConvBenchArgs;

/// Frames of a slice.
const FRAMES: usize = 3;

pub fn run(args: &ConvBenchArgs) -> Result<()> {
    let dtype = cpu_precision(args.dtype)?.dtype();
    let cpu = CpuOps::new(dtype, Some(1))?;
    let (rates, executed) = rates(&cpu, args)?;
    let (median, best, peak) = (rates[rates.len() / 2], rates[rates.len() - 1], cpu.peak() / 1e9);
    // The peak is a best case, so that the best run is compared with it.
    let share = best * executed / peak;
    let (c, side) = (args.channels, args.side);
    if args.json {
        say!(
            "{}",
            json!({
                "event": "bench", "command": "conv", "device": cpu.name(), "dtype": dtype.to_string(), "channels": c,
                "side": side, "effective_gflops_per_second": median, "best_effective_gflops_per_second": best,
                "best_executed_gflops_per_second": best * executed,
                "peak_gflops_per_second": peak, "share_of_peak": share,
            })
        );
        return Ok(());
    }
    let device = cpu.name();
    say!(
        "conv {c} > {c} 3x3x3 at {side}x{side} {dtype} on {device}: median {median:.0} effective GFLOP/s \
         ({:.0} to {best:.0})",
        rates[0]
    );
    say!("effective: products of the direct algorithm; {:.0}% of them are executed", 100.0 * executed);
    say!("peak of one core: {peak:.0} GFLOP/s; the best run executes {:.0}% of it", 100.0 * share);
    Ok(())
}

/// Effective GFLOP/s of every run, slowest first, and the part of the products that the CPU executes.
fn rates(cpu: &CpuOps, args: &ConvBenchArgs) -> Result<(Vec<f64>, f64)> {
    let (c, frames) = (args.channels as usize, Thw::new(FRAMES, args.side as usize, args.side as usize));
    let spec = ConvSpec::same(c, c, Thw::new(3, 3, 3));
    let values = |name: &str, count: usize| uniform(name, count, 1).into_iter().map(|v| v as f32).collect::<Vec<_>>();
    let scale = (3.0 / (27 * c) as f32).sqrt();
    let weight: Vec<f32> = values("weight", 27 * c * c).iter().map(|v| v * scale).collect();
    let conv = cpu.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: vec![0.0; c] }))?;
    let clip = |name: &str, thw: Thw| cpu.upload(Shape::clip(thw, c), &values(name, thw.count() * c));
    let (cache, x) = (clip("cache", Thw { t: 2, ..frames })?, clip("x", frames)?);
    let groups = if c.is_multiple_of(32) { Some(32) } else { None };
    let once = |_| -> Result<f64> {
        let start = Instant::now();
        let y = cpu.conv(TemporalCache::Frames(&cache), &x, &conv, Epilogue { residual: None, groups })?.tensor;
        let flops = cost::conv(&spec, TemporalCache::Frames(&cache), &x, &y, false).flops;
        Ok(flops as f64 / start.elapsed().as_secs_f64() / 1e9)
    };
    let mut rates = (0..=args.repeat).map(once).skip(1).collect::<Result<Vec<f64>>>()?;
    rates.sort_by(f64::total_cmp);
    Ok((rates, f64::from(conv.executed)))
}
