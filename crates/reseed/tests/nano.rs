//! Golden test of the embedded model: output of the training code for the same frames (`training/golden.py`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::internals::low_band::{Estimator, LowBand, ModelLowBand};
use reseed::internals::{Checkpoint, Model, RunPlan, Transformer, Upscaler};
use reseed::{Batching, Color, Session, Settings, Target};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Size, metrics};
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Dit, TextEmbedding, Vae, nano};
use reseed_ops::DType;
use reseed_testing::pipeline::golden_path;
use reseed_testing::pipeline::job::{MemorySource, TinyVae, run_job};

/// Size and values `[H, W, 3]` of each frame of a tensor `[T, 3, H, W]`.
fn frame_values(golden: &Safetensors, name: &str) -> (Size, Vec<Vec<f32>>) {
    let values = golden.read(name).unwrap();
    let &[t, 3, h, w] = golden.shapes()[name].dims() else { panic!("{name} is not a tensor [T, 3, H, W]") };
    let plane = h * w;
    let frame = |t: usize| (0..3 * plane).map(|i| values[(3 * t + i % 3) * plane + i / 3]).collect();
    (Size { h, w }, (0..t).map(frame).collect())
}

#[test]
fn the_embedded_model_matches_its_training_code() {
    let model = ModelLowBand::load(&nano::dit().unwrap()).unwrap();
    assert!(model.is_limited());
    let low_bands = [LowBand::fixed(0.0), model.of_job(Some(0.25)), model.of_job(None)];
    matches_golden(&nano::vae().unwrap(), ["output", "low_band", "estimated"].into_iter().zip(low_bands));
    matches_golden(&nano::sharp_vae().unwrap(), [("sharp", LowBand::fixed(0.0))]);
}

/// Compares jobs with tensors of the golden file.
fn matches_golden<'a>(vae: &dyn Source, cases: impl IntoIterator<Item = (&'static str, LowBand<'a>)>) {
    let golden = Safetensors::open(&golden_path("nano.safetensors")).unwrap();
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    let dit = nano::dit().unwrap();
    let step = Dit::load(&ops, &dit).unwrap();
    let text = TextEmbedding::from_weights(&dit, step.config.text_width).unwrap().unwrap();
    let vae = Vae::load(&ops, vae).unwrap();
    let networks = TinyVae { ops, vae };
    let step = Transformer::new(&networks.ops, step, text);

    let (input, inputs) = frame_values(&golden, "input");
    let inputs: Vec<Frame> = inputs.iter().map(|unit| Frame::from_unit(input, unit, Depth::Eight)).collect();
    for (name, low_band) in cases {
        let (size, want) = frame_values(&golden, name);
        let frames = inputs.clone();
        let source = MemorySource::from_fn(input, Depth::Sixteen, move |i| Ok(frames.get(i).cloned()));
        let settings = Settings {
            target: Target::Exact(size),
            batching: Batching { size: 5, overlap: 0, uniform: false },
            color: Some(Color::None),
            ..Settings::default()
        };
        let model = Model { vae: &networks.vae, step: &step };
        let upscaler = Upscaler::new(&networks.ops, model, settings, RunPlan::default()).with_low_band(low_band);
        let (report, frames) = run_job(&upscaler, size, source, (Checkpoint::default(), &mut (), None));
        report.unwrap();
        let pairs = frames.iter().zip(&want).flat_map(|(got, want)| got.to_unit().into_iter().zip(want.clone()));
        let worst = pairs.map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
        println!("{name}: largest error {worst:.1e}");
        assert_eq!(frames.len(), want.len());
        // The golden values have 11 bits: 2.4e-4 for values up to 1. Another order of f32 sums adds at most as much.
        assert!(worst <= 5e-4, "{name}: {worst:.1e}");
    }
}

#[test]
fn the_estimated_low_band_matches_the_training_code() {
    let golden = Safetensors::open(&golden_path("nano.safetensors")).unwrap();
    let estimator = Estimator::load(&nano::dit().unwrap()).unwrap().unwrap();
    // The first frames are smaller than the reach of a feature; the larger ones have several bands of rows.
    for (frames, shares) in [("input", "strengths"), ("larger", "larger_strengths")] {
        let (size, frames) = frame_values(&golden, frames);
        let want = golden.read(shares).unwrap();
        assert_eq!(frames.len(), want.len());
        for (unit, want) in frames.iter().zip(want) {
            let got = estimator.share(&Frame::from_unit(size, unit, Depth::Eight));
            println!("{size}: {got} instead of {want}");
            // 144 terms in another order differ by at most 144 * 6e-8 of their sum; the logistic function quarters it.
            assert!((got - want).abs() <= 1e-5, "{size}: {got} instead of {want}");
        }
    }
}

#[test]
fn more_noise_raises_the_strength_that_a_job_uses() {
    let golden = Safetensors::open(&golden_path("nano.safetensors")).unwrap();
    let shares = golden.read("larger_strengths").unwrap();
    assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "{shares:?}");
    let session = Session::builder().model("nano").device("cpu").threads(2).open().unwrap();
    let (size, frames) = frame_values(&golden, "larger");
    let run = |unit: &[f32], strength: Option<f32>| {
        let settings = Settings { target: Target::Scale(2.0), strength, ..Settings::default() };
        let frame = Frame::from_unit(size, unit, Depth::Eight);
        session.upscale_frames(vec![frame], &settings, &mut ()).unwrap().remove(0)
    };
    for (unit, share) in frames.iter().zip(shares) {
        let [auto, same, other] = [None, Some(1.0 - share), Some(0.5)].map(|strength| run(unit, strength));
        // The share of the golden file differs from the estimate in its last bits.
        assert!(metrics::psnr(&auto, &same) > 70.0 && auto != other, "share {share}");
    }
}
