//! Times of the layers that dominate the networks.

use std::time::Instant;

use reseed_cuda::CudaOps;
use reseed_ops::conformance::Values;
use reseed_ops::{
    Activation, ConvData, ConvSpec, Device, Epilogue, Linear, LinearData, LinearSpec, MathMode, Numbers, Ops, Quant,
    Result, Shape, TemporalCache, Tensor, Thw, Timing, Transfer, relative_error,
};

use crate::Compute;

/// Output frames of a convolution.
const FRAMES: usize = 4;

const MAIN: &[(usize, usize, usize, usize)] = &[
    //in  out  rows columns
    (128, 128, 720, 1280),
    (256, 128, 720, 1280),
    (256, 256, 720, 1280),
    (256, 256, 360, 640),
    (512, 512, 180, 320),
];

/// Linear layers of the transformers 3B and 7B: queries, keys and values, output, up and down.
const LINEAR: &[(usize, usize)] =
    &[(2560, 7680), (2560, 2560), (2560, 13824), (6912, 2560), (3072, 9216), (3072, 12288), (12288, 3072)];
/// Tokens of 17 frames of 1280x720, and of text.
const TOKENS: [usize; 2] = [18000, 58];

fn main_shapes() -> impl Iterator<Item = (ConvSpec, Thw)> {
    let shape = |&(c_in, c_out, h, w)| (ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3)), Thw::new(FRAMES, h, w));
    MAIN.iter().map(shape)
}

fn other_shapes() -> impl Iterator<Item = (ConvSpec, Thw)> {
    let plane = Thw::new(FRAMES, 720, 1280);
    let half = ConvSpec { stride: Thw::new(1, 2, 2), pad_before: 0, ..ConvSpec::same(128, 128, Thw::new(1, 3, 3)) };
    let convolutions = [
        (half, plane),
        (ConvSpec::same(256, 128, Thw::new(1, 1, 1)), plane),
        (ConvSpec::same(128, 3, Thw::new(3, 3, 3)), plane),
    ];
    let linear = |(c_in, c_out, n)| (ConvSpec::same(c_in, c_out, Thw::new(1, 1, 1)), Thw::new(1, 1, n));
    convolutions.into_iter().chain(products().map(linear))
}

/// Rates of the main convolutions.
pub fn main_layers(compute: Compute) -> Result<usize> {
    rates(compute, main_shapes())
}

/// Rates of convolutions and linear layers.
pub fn all_layers(compute: Compute) -> Result<usize> {
    rates(compute, main_shapes().chain(other_shapes()))
}

fn rates(compute: Compute, shapes: impl Iterator<Item = (ConvSpec, Thw)>) -> Result<usize> {
    let (cuda, precision) = (compute.open()?, compute.precision);
    println!("{precision} on {}, {}, {}", cuda.name(), cuda.kernels(), cuda.convolutions());
    for (spec, thw) in shapes {
        let Rate { effective, executed } = rate(&cuda, spec, thw)?;
        let ConvSpec { c_in, c_out, taps, stride, .. } = spec;
        println!(
            "{precision} {c_in:>3} > {c_out:<3} {taps} / {stride} at {}x{}: {effective:.0} TFLOP/s effective, \
             {executed:.0} TFLOP/s executed",
            thw.w, thw.h
        );
    }
    Ok(0)
}

/// TFLOP/s of a layer.
struct Rate {
    /// By the arithmetic of the direct algorithm: comparable with other implementations.
    effective: f64,
    /// By the arithmetic that the kernel executes: comparable with the peak of the hardware.
    executed: f64,
}

fn rate(cuda: &CudaOps, spec: ConvSpec, thw: Thw) -> Result<Rate> {
    let values = &mut Values::new(1);
    let terms = spec.c_in * spec.taps.count();
    let scale = (3.0 / terms as f32).sqrt();
    let weight: Vec<f32> = values.take(terms * spec.c_out).iter().map(|v| v * scale).collect();
    let bias = values.take(spec.c_out);
    let (read_norm, read_conv) = (
        || Ok(ConvData { weight: vec![1.0; spec.c_in], bias: vec![0.0; spec.c_in] }),
        || Ok(ConvData { weight: weight.clone(), bias: bias.clone() }),
    );
    let (norm, conv) = cuda.norm_conv_weights(1, 1e-6, spec, &read_norm, &read_conv)?;
    let frame = Shape::clip(Thw { t: 1, ..thw }, spec.c_in);
    let frame = cuda.upload(frame, &values.take(frame.count()))?;
    let frame = if norm.int8 { cuda.group_norm(frame, None, &norm, Activation::Silu)? } else { frame };
    let x = cuda.tail(None, frame.clone(), thw.t)?;
    let cached = cuda.tail(None, frame, spec.cached_frames())?;
    let cache = if spec.cached_frames() > 0 { TemporalCache::Frames(&cached) } else { TemporalCache::Start };
    let run = || cuda.conv(cache, &x, &conv, Epilogue::default()).map(|y| y.tensor);
    let pixels = run()?.rows();
    let seconds = seconds(cuda, || run().map(|_| ()))?;
    let effective = (2 * terms * spec.c_out * pixels) as f64 / seconds / 1e12;
    Ok(Rate { effective, executed: effective * f64::from(conv.executed) })
}

/// Mean seconds of one run, over about a third of a second.
fn seconds(cuda: &CudaOps, run: impl Fn() -> Result<()>) -> Result<f64> {
    let seconds = |times: usize| -> Result<f64> {
        cuda.finish()?;
        let start = Instant::now();
        (0..times).try_for_each(|_| run())?;
        cuda.finish()?;
        Ok(start.elapsed().as_secs_f64() / times as f64)
    };
    let times = (0.3 / seconds(3)?).ceil().clamp(3.0, 300.0) as usize;
    seconds(times)
}

/// A linear layer of a transformer, and tokens for it.
fn linear(cuda: &CudaOps, spec: LinearSpec, tokens: usize) -> Result<(Linear, Tensor)> {
    let (values, LinearSpec { d_in, d_out, quant, .. }) = (&mut Values::new(2), spec);
    let scale = (3.0 / d_in as f32).sqrt();
    let floats = |values: &mut Values| values.take(d_in * d_out).iter().map(|v| v * scale).collect();
    let weight = match quant {
        None => Numbers::Floats(floats(values)),
        // As an f16 scale this byte pattern is close to one, in every format.
        Some(quant) => Numbers::Quant(quant, vec![0x3A; quant.bytes(d_in * d_out)]),
    };
    let bias = values.take(d_out);
    let layer = cuda.linear_weights(spec, &|| Ok(LinearData { weight: weight.clone(), bias: bias.clone() }))?;
    Ok((layer, cuda.upload(Shape::from([tokens, d_in]), &values.take(tokens * d_in))?))
}

/// Input width, output width and tokens of every linear layer of the transformers, for video and for text.
fn products() -> impl Iterator<Item = (usize, usize, usize)> {
    LINEAR.iter().flat_map(|&(d_in, d_out)| TOKENS.map(|tokens| (d_in, d_out, tokens)))
}

/// Linear layers compared with cuBLASLt, results and rates.
pub fn library(compute: Compute) -> Result<usize> {
    let (cuda, precision) = (compute.open()?, compute.precision);
    let mut other = cuda.with_precision(precision)?;
    let record = std::env::temp_dir().join(format!("reseed-check-{}.txt", std::process::id()));
    let warnings = other.tune(&record, true)?;
    let _ = std::fs::remove_file(&record);
    println!("{precision} on {}, {}", cuda.name(), reseed_cuda::library().unwrap_or_else(|reason| reason));
    if !warnings.is_empty() {
        println!("{precision}: not compared: {}", warnings.join("; "));
        return Ok(0);
    }
    let mut disagreements = 0;
    for (d_in, d_out, tokens) in products() {
        let (layer, x) = linear(&cuda, LinearSpec::floats(d_in, d_out), tokens)?;
        let Some(theirs) = other.linear_by_library(&x, &layer)? else {
            println!("{precision} {d_in} > {d_out} at {tokens}: not supported by the library");
            continue;
        };
        let ours = cuda.linear(&x, &layer, None)?;
        // Another order of the sums changes some roundings, and the library rounds the bias.
        let (error, allowed) =
            (relative_error(&cuda.download(&ours)?, &cuda.download(&theirs)?), 2.0 * f64::from(precision.rounding()));
        disagreements += usize::from(error > allowed);
        let rate = |seconds: f64| 2.0 * (d_in * d_out * tokens) as f64 / seconds / 1e12;
        let own = rate(seconds(&cuda, || cuda.linear(&x, &layer, None).map(|_| ()))?);
        let cublaslt = rate(seconds(&cuda, || other.linear_by_library(&x, &layer).map(|_| ()))?);
        println!(
            "{precision} {d_in} > {d_out} at {tokens}: {own:.0} TFLOP/s, cuBLASLt {cublaslt:.0} TFLOP/s; difference \
             {error:.1e}, allowed {allowed:.1e}"
        );
    }
    Ok(disagreements)
}

/// Times of quantised linear layers.
pub fn quantised(compute: Compute) -> Result<usize> {
    let (cuda, precision) = (compute.open()?, compute.precision);
    println!("{precision} on {}, {}", cuda.name(), cuda.kernels());
    for (d_in, d_out, tokens) in products() {
        let mut times = Vec::new();
        for quant in std::iter::once(None).chain(Quant::ALL.map(Some)) {
            let (layer, x) = linear(&cuda, LinearSpec { d_in, d_out, quant, int8: false }, tokens)?;
            let seconds = seconds(&cuda, || cuda.linear(&x, &layer, None).map(|_| ()))?;
            let name = quant.map_or("floats".into(), |quant| format!("{quant:?}"));
            times.push(format!("{name} {:.3} ms", 1e3 * seconds));
        }
        println!("{precision} {d_in} > {d_out} at {tokens}: {}", times.join(", "));
    }
    Ok(0)
}

/// Linear layers with products of 8-bit integers compared with products of floats: rates, and the error of rounding.
pub fn int8(compute: Compute) -> Result<usize> {
    let (cuda, precision) = (Compute { math: MathMode::Fast, ..compute }.open()?, compute.precision);
    println!("{precision} on {}, {}", cuda.name(), cuda.kernels());
    for (d_in, d_out, tokens) in products() {
        let (mut rates, mut results) = (Vec::new(), Vec::new());
        for int8 in [false, true] {
            let (layer, x) = linear(&cuda, LinearSpec { int8, ..LinearSpec::floats(d_in, d_out) }, tokens)?;
            results.push(cuda.download(&cuda.linear(&x, &layer, None)?)?);
            let seconds = seconds(&cuda, || cuda.linear(&x, &layer, None).map(|_| ()))?;
            rates.push(2.0 * (d_in * d_out * tokens) as f64 / seconds / 1e12);
        }
        let (floats, bytes, error) = (rates[0], rates[1], relative_error(&results[0], &results[1]));
        println!(
            "{precision} {d_in} > {d_out} at {tokens}: {floats:.0} TFLOP/s, int8 {bytes:.0} TOP/s; difference \
             {error:.1e}"
        );
    }
    Ok(0)
}
