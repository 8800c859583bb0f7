//! For a machine that has a card and no compiler: every op against its definition, or with the word `bench` the rate of
//! the convolutions that a VAE spends its time in; in every precision, or in those that are named.
#![allow(clippy::print_stdout, reason = "its report")]

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::process::ExitCode;
use std::time::Instant;

use reseed_cuda::{CudaOps, devices};
use reseed_ops::conformance::Values;
use reseed_ops::{ConvData, ConvSpec, Epilogue, Ops, Past, Precision, Result, Shape, Thw};

const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

fn main() -> ExitCode {
    let mut run: fn(Precision) -> Result<usize> = check;
    let mut chosen = Vec::new();
    for word in std::env::args().skip(1) {
        match ALL.into_iter().find(|precision| precision.to_string() == word) {
            Some(precision) => chosen.push(precision),
            None if word == "bench" => run = bench,
            None => {
                println!("{word}: the words are bench, f32, tf32, f16 and bf16");
                return ExitCode::FAILURE;
            }
        }
    }
    let mut wrong = 0;
    for precision in if chosen.is_empty() { ALL.to_vec() } else { chosen } {
        match run(precision) {
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

fn check(precision: Precision) -> Result<usize> {
    for device in devices()? {
        println!("{device:?}");
    }
    let cuda = CudaOps::new(0, precision)?;
    println!("{precision} on {}, {}", cuda.device(), cuda.kernels());
    let found = cases::disagreements(&cuda)?;
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

/// The main shapes, and layers that run beside them.
fn shapes() -> Vec<(ConvSpec, Thw)> {
    let main = MAIN
        .iter()
        .map(|&(c_in, c_out, h, w)| (ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3)), Thw::new(FRAMES, h, w)));
    let plane = Thw::new(FRAMES, 720, 1280);
    let half = ConvSpec { stride: Thw::new(1, 2, 2), pad_before: 0, ..ConvSpec::same(128, 128, Thw::new(1, 3, 3)) };
    let linear = LINEAR
        .iter()
        .flat_map(|&(c_in, c_out)| TOKENS.map(|n| (ConvSpec::same(c_in, c_out, Thw::new(1, 1, 1)), Thw::new(1, 1, n))));
    let beside = [
        (half, plane),
        (ConvSpec::same(256, 128, Thw::new(1, 1, 1)), plane),
        (ConvSpec::same(128, 3, Thw::new(3, 3, 3)), plane),
    ];
    main.chain(beside).chain(linear).collect()
}

fn bench(precision: Precision) -> Result<usize> {
    let cuda = CudaOps::new(0, precision)?;
    println!("{precision} on {}, {}", cuda.device(), cuda.kernels());
    for (spec, thw) in shapes() {
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
    let kept = cuda.tail(None, frame, spec.keeps())?;
    let past = if spec.keeps() > 0 { Past::Frames(&kept) } else { Past::Start };
    let once = || cuda.conv(past, &x, &conv, Epilogue::default()).map(|y| y.tensor);
    let pixels = once()?.rows();
    let seconds = |times: usize| -> Result<f64> {
        cuda.finish()?;
        let start = Instant::now();
        for _ in 0..times {
            once()?;
        }
        cuda.finish()?;
        Ok(start.elapsed().as_secs_f64() / times as f64)
    };
    let times = (0.3 / seconds(3)?).ceil().clamp(3.0, 300.0) as usize;
    Ok(2.0 * (terms * spec.c_out * pixels) as f64 / seconds(times)? / 1e12)
}
