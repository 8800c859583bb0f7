//! `reseed bench conv`: the convolution that everything waits for, on one core, beside what that core can do.

use std::time::Instant;

use reseed_cpu::CpuOps;
use reseed_model::weights::formula::uniform;
use reseed_ops::{ConvData, ConvSpec, DType, Device, Epilogue, Ops, Shape, TemporalCache, Thw, Transfer, cost};
use serde_json::json;

use crate::args::bench::ConvBenchArgs;
use crate::engine;
use crate::failure::Result;

/// Frames of a slice.
const FRAMES: usize = 3;
/// What f32 should reach of the core's multiply-adds.
const SHARE: f64 = 0.8;

pub fn run(args: &ConvBenchArgs) -> Result<()> {
    let dtype = engine::cpu_precision(args.dtype)?.dtype();
    let cpu = CpuOps::new(dtype, Some(1))?;
    let rates = rates(&cpu, args)?;
    let (median, best, peak) = (rates[rates.len() / 2], rates[rates.len() - 1], cpu.peak() / 1e9);
    // The peak is that of the best moment, so the best run stands beside it.
    let share = best / peak;
    let (c, side) = (args.channels, args.side);
    if args.json {
        say!(
            "{}",
            json!({
                "event": "bench", "command": "conv", "device": cpu.name(), "dtype": dtype.to_string(), "channels": c,
                "side": side, "gflops_per_second": median, "best_gflops_per_second": best,
                "peak_gflops_per_second": peak, "share_of_peak": share,
            })
        );
        return Ok(());
    }
    let device = cpu.name();
    say!(
        "conv {c} > {c} 3x3x3 at {side}x{side} {dtype} on {device}: median {median:.0} GFLOP/s ({:.0} to {best:.0})",
        rates[0]
    );
    say!("every product of the plain form counts, also where two columns at a time need two thirds of them");
    let verdict = match (dtype, share >= SHARE) {
        (DType::F32, true) => format!(" (bar {:.0}%: pass)", 100.0 * SHARE),
        (DType::F32, false) => format!(" (bar {:.0}%: FAIL)", 100.0 * SHARE),
        _ => String::new(),
    };
    say!("multiply-adds of one core: {peak:.0} GFLOP/s, of which the best run is {:.0}%{verdict}", 100.0 * share);
    Ok(())
}

/// GFLOP/s of every run, slowest first; every product of the plain form counts.
fn rates(cpu: &CpuOps, args: &ConvBenchArgs) -> Result<Vec<f64>> {
    let (c, frames) = (args.channels as usize, Thw::new(FRAMES, args.side as usize, args.side as usize));
    let spec = ConvSpec::same(c, c, Thw::new(3, 3, 3));
    let values = |name: &str, count: usize| uniform(name, count, 1).into_iter().map(|v| v as f32).collect::<Vec<_>>();
    let scale = (3.0 / (27 * c) as f32).sqrt();
    let weight: Vec<f32> = values("weight", 27 * c * c).iter().map(|v| v * scale).collect();
    let conv = cpu.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: vec![0.0; c] }))?;
    let clip = |name: &str, thw: Thw| cpu.upload(Shape::clip(thw, c), &values(name, thw.count() * c));
    let (past, x) = (clip("past", Thw { t: 2, ..frames })?, clip("x", frames)?);
    let groups = if c.is_multiple_of(32) { Some(32) } else { None };
    let once = |_| -> Result<f64> {
        let start = Instant::now();
        let y = cpu.conv(TemporalCache::Frames(&past), &x, &conv, Epilogue { residual: None, groups })?.tensor;
        let flops = cost::conv(&spec, TemporalCache::Frames(&past), &x, &y, false).flops;
        Ok(flops as f64 / start.elapsed().as_secs_f64() / 1e9)
    };
    let mut rates = (0..=args.repeat).map(once).skip(1).collect::<Result<Vec<f64>>>()?;
    rates.sort_by(f64::total_cmp);
    Ok(rates)
}
