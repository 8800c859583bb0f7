//! For a machine that has a card and no compiler: every op against its definition; with the word `bench` the rate of the
//! layers that networks spend their time in, with `main` that of the main ones among them, with `library` that of linear layers
//! beside cuBLASLt's, with `quant` that of linear layers in few bits, with `goldens` and folders every stored case of the
//! networks and every stored job in them, on the processor where `cpu` is said; in every precision, or in those that are
//! named.
#![allow(clippy::print_stdout, reason = "its report")]

mod goldens;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use goldens::{Cases, Devices};
use reseed_cpu::{CpuOps, matmul};
use reseed_cuda::{CudaOps, devices};
use reseed_ops::conformance::Values;
use reseed_ops::{
    ConvData, ConvSpec, Device, Epilogue, Linear, LinearData, LinearSpec, Numbers, Ops, Precision, Quant, Result,
    Shape, TemporalCache, Tensor, Thw, Timing, Transfer, relative_error,
};

const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

fn main() -> ExitCode {
    let (mut run, mut chosen, mut folders, mut cpu) =
        (check as fn(Precision) -> Result<usize>, Vec::new(), None, false);
    for word in std::env::args().skip(1) {
        match (ALL.into_iter().find(|precision| precision.to_string() == word), &mut folders) {
            (Some(precision), _) => chosen.push(precision),
            (None, _) if word == "bench" => run = bench,
            (None, _) if word == "main" => run = bench_main,
            (None, _) if word == "library" => run = library,
            (None, _) if word == "quant" => run = quant,
            (None, folders @ None) if word == "goldens" => *folders = Some(Vec::new()),
            (None, Some(_)) if word == "cpu" => cpu = true,
            (None, Some(folders)) => folders.push(PathBuf::from(word)),
            (None, None) => {
                println!(
                    "{word}: the words are bench, main, library, quant, goldens with folders, f32, tf32, f16 and bf16"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let mut wrong = 0;
    for precision in if chosen.is_empty() { ALL.to_vec() } else { chosen } {
        let done = match &folders {
            Some(folders) => golden(precision, folders, cpu),
            None => run(precision),
        };
        match done {
            Ok(count) => wrong += count,
            Err(error) => {
                println!("{precision}: {error}");
                wrong += 1;
            }
        }
    }
    println!("{wrong} disagreements");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn golden(precision: Precision, folders: &[PathBuf], cpu: bool) -> Result<usize> {
    let cases = Cases::find(folders)?;
    if cases.is_empty() {
        println!("golden {precision}: there are no cases in {folders:?}");
        return Ok(1);
    }
    // As jobs have it: the transformer takes bf16 where the autoencoder takes f16.
    let other = if precision == Precision::F16 { Precision::Bf16 } else { precision };
    match (cpu, precision) {
        (false, _) => {
            let card = CudaOps::new(0, precision, matmul)?;
            let wrong = cases.networks(&card)?;
            Ok(wrong + cases.jobs(Devices { vae: &card, transformer: &card.with_precision(other)? }))
        }
        // A word for cards alone.
        (true, Precision::Tf32) => Ok(0),
        (true, _) => {
            let [vae, transformer] = [precision, other].map(|precision| CpuOps::new(precision.dtype(), None));
            let (vae, transformer) = (&vae?, &transformer?);
            Ok(cases.networks(vae)? + cases.jobs(Devices { vae, transformer }))
        }
    }
}

fn check(precision: Precision) -> Result<usize> {
    for device in devices()? {
        println!("{device:?}");
    }
    let cuda = CudaOps::new(0, precision, matmul)?;
    println!("{precision} on {}, {}", cuda.name(), cuda.kernels());
    let found = reseed_testing::conformance::disagreements(&cuda)?;
    for disagreement in &found {
        println!("{precision}: {disagreement}");
    }
    println!("{precision}: {} disagreements, peak {} bytes", found.len(), cuda.peak_bytes());
    Ok(found.len())
}

/// Six frames in, four out.
const FRAMES: usize = 4;

const MAIN: &[(usize, usize, usize, usize)] = &[
    //in  out  rows columns
    (128, 128, 720, 1280),
    (256, 128, 720, 1280),
    (256, 256, 720, 1280),
    (256, 256, 360, 640),
    (512, 512, 180, 320),
];

/// Linear layers of the transformers: queries, keys and values, out, up and down, of 3B and of 7B.
const LINEAR: &[(usize, usize)] =
    &[(2560, 7680), (2560, 2560), (2560, 13824), (6912, 2560), (3072, 9216), (3072, 12288), (12288, 3072)];
/// Tokens of 17 frames of 1280x720, and of text.
const TOKENS: [usize; 2] = [18000, 58];

fn main_shapes() -> impl Iterator<Item = (ConvSpec, Thw)> {
    let shape = |&(c_in, c_out, h, w)| (ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3)), Thw::new(FRAMES, h, w));
    MAIN.iter().map(shape)
}

/// Layers that run beside them.
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

fn bench_main(precision: Precision) -> Result<usize> {
    rates(precision, main_shapes())
}

fn bench(precision: Precision) -> Result<usize> {
    rates(precision, main_shapes().chain(other_shapes()))
}

fn rates(precision: Precision, shapes: impl Iterator<Item = (ConvSpec, Thw)>) -> Result<usize> {
    let cuda = CudaOps::new(0, precision, matmul)?;
    println!("{precision} on {}, {}", cuda.name(), cuda.kernels());
    for (spec, thw) in shapes {
        let rate = rate(&cuda, spec, thw)?;
        let ConvSpec { c_in, c_out, taps, stride, .. } = spec;
        println!("{precision} {c_in:>3} > {c_out:<3} {taps} / {stride} at {}x{}: {rate:.0} TFLOP/s", thw.w, thw.h);
    }
    Ok(0)
}

/// TFLOP/s of a layer, over about a third of a second.
fn rate(cuda: &CudaOps, spec: ConvSpec, thw: Thw) -> Result<f64> {
    let values = &mut Values::new(1);
    let terms = spec.c_in * spec.taps.count();
    let scale = (3.0 / terms as f32).sqrt();
    let weight: Vec<f32> = values.take(terms * spec.c_out).iter().map(|v| v * scale).collect();
    let bias = values.take(spec.c_out);
    let conv = cuda.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))?;
    let frame = Shape::clip(Thw { t: 1, ..thw }, spec.c_in);
    let frame = cuda.upload(frame, &values.take(frame.count()))?;
    let x = cuda.tail(None, frame.clone(), thw.t)?;
    let kept = cuda.tail(None, frame, spec.cached_frames())?;
    let cache = if spec.cached_frames() > 0 { TemporalCache::Frames(&kept) } else { TemporalCache::Start };
    let once = || cuda.conv(cache, &x, &conv, Epilogue::default()).map(|y| y.tensor);
    let pixels = once()?.rows();
    Ok(2.0 * (terms * spec.c_out * pixels) as f64 / seconds(cuda, || once().map(|_| ()))? / 1e12)
}

/// Seconds of one run, over about a third of a second.
fn seconds(cuda: &CudaOps, once: impl Fn() -> Result<()>) -> Result<f64> {
    let seconds = |times: usize| -> Result<f64> {
        cuda.finish()?;
        let start = Instant::now();
        (0..times).try_for_each(|_| once())?;
        cuda.finish()?;
        Ok(start.elapsed().as_secs_f64() / times as f64)
    };
    let times = (0.3 / seconds(3)?).ceil().clamp(3.0, 300.0) as usize;
    seconds(times)
}

/// A linear layer of a transformer, and tokens for it.
fn linear(cuda: &CudaOps, spec: LinearSpec, tokens: usize) -> Result<(Linear, Tensor)> {
    let (values, LinearSpec { d_in, d_out, quant }) = (&mut Values::new(2), spec);
    let scale = (3.0 / d_in as f32).sqrt();
    let floats = |values: &mut Values| values.take(d_in * d_out).iter().map(|v| v * scale).collect();
    let weight = match quant {
        None => Numbers::Floats(floats(values)),
        // Scales of nearly one, whatever the bits.
        Some(quant) => Numbers::Quant(quant, vec![0x3A; quant.bytes(d_in * d_out)]),
    };
    let bias = values.take(d_out);
    let layer = cuda.linear_weights(spec, &|| Ok(LinearData { weight: weight.clone(), bias: bias.clone() }))?;
    Ok((layer, cuda.upload(Shape::from([tokens, d_in]), &values.take(tokens * d_in))?))
}

/// Every linear layer of the transformers with tokens of video and of text.
fn products() -> impl Iterator<Item = (usize, usize, usize)> {
    LINEAR.iter().flat_map(|&(d_in, d_out)| TOKENS.map(|tokens| (d_in, d_out, tokens)))
}

fn library(precision: Precision) -> Result<usize> {
    let cuda = CudaOps::new(0, precision, matmul)?;
    let mut other = cuda.with_precision(precision)?;
    let record = std::env::temp_dir().join(format!("reseed-check-{}.txt", std::process::id()));
    let lines = other.tune(&record, true)?;
    let _ = std::fs::remove_file(&record);
    println!("{precision} on {}, {}", cuda.name(), reseed_cuda::library().unwrap_or_else(|reason| reason));
    if !lines.is_empty() {
        println!("{precision}: not compared: {}", lines.join("; "));
        return Ok(0);
    }
    let mut wrong = 0;
    for (d_in, d_out, tokens) in products() {
        let (layer, x) = linear(&cuda, LinearSpec::floats(d_in, d_out), tokens)?;
        let Some(theirs) = other.linear_by_library(&x, &layer)? else {
            println!("{precision} {d_in} > {d_out} at {tokens}: the library does not take it");
            continue;
        };
        let ours = cuda.linear(&x, &layer, None)?;
        // Sums in another order round to a neighbour now and then, and the library's bias is rounded.
        let (error, allowed) =
            (relative_error(&cuda.download(&ours)?, &cuda.download(&theirs)?), 2.0 * f64::from(precision.rounding()));
        wrong += usize::from(error > allowed);
        let rate = |seconds: f64| 2.0 * (d_in * d_out * tokens) as f64 / seconds / 1e12;
        let own = rate(seconds(&cuda, || cuda.linear(&x, &layer, None).map(|_| ()))?);
        let their = rate(seconds(&cuda, || other.linear_by_library(&x, &layer).map(|_| ()))?);
        println!(
            "{precision} {d_in} > {d_out} at {tokens}: {own:.0} TFLOP/s, cuBLASLt {their:.0}; they differ by {error:.1e}, allowed {allowed:.1e}"
        );
    }
    Ok(wrong)
}

fn quant(precision: Precision) -> Result<usize> {
    let cuda = CudaOps::new(0, precision, matmul)?;
    println!("{precision} on {}, {}", cuda.name(), cuda.kernels());
    for (d_in, d_out, tokens) in products() {
        let mut rates = Vec::new();
        for quant in [None, Some(Quant::Q8_0), Some(Quant::Q4K), Some(Quant::E4m3)] {
            let (layer, x) = linear(&cuda, LinearSpec { d_in, d_out, quant }, tokens)?;
            let seconds = seconds(&cuda, || cuda.linear(&x, &layer, None).map(|_| ()))?;
            let name = quant.map_or("floats".into(), |quant| format!("{quant:?}"));
            rates.push(format!("{name} {:.3} ms", 1e3 * seconds));
        }
        println!("{precision} {d_in} > {d_out} at {tokens}: {}", rates.join(", "));
    }
    Ok(0)
}
