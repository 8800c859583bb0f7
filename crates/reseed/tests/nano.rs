//! Golden test of the embedded model: output of the training code for the same frames (`training/golden.py`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::internals::Transformer;
use reseed::{Batching, Color, Settings, Target};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Size};
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Dit, TextEmbedding, Vae, nano};
use reseed_ops::DType;
use reseed_testing::pipeline::golden_path;
use reseed_testing::pipeline::job::{MemorySource, TinyVae};

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
    let golden = Safetensors::open(&golden_path("nano.safetensors")).unwrap();
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    let (vae, dit) = (nano::vae().unwrap(), nano::dit().unwrap());
    let step = Dit::load(&ops, &dit).unwrap();
    let text = TextEmbedding::from_weights(&dit, step.config.text_width).unwrap().unwrap();
    let vae = Vae::load(&ops, &vae).unwrap();
    let networks = TinyVae { ops, vae };
    let step = Transformer::new(&networks.ops, step, text);

    let (input, inputs) = frame_values(&golden, "input");
    for (name, low_band) in [("output", 0.0), ("low_band", 0.75)] {
        let (size, want) = frame_values(&golden, name);
        let frames: Vec<Frame> = inputs.iter().map(|unit| Frame::from_unit(input, unit, Depth::Eight)).collect();
        let source = MemorySource::from_fn(input, Depth::Sixteen, move |i| Ok(frames.get(i).cloned()));
        let settings = Settings {
            target: Target::Exact(size),
            batching: Batching { size: 5, overlap: 0, uniform: false },
            color: Some(Color::None),
            low_band: Some(low_band),
            ..Settings::default()
        };
        let (report, frames) = networks.run_with(settings, &step, source, &mut ());
        report.unwrap();
        let pairs = frames.iter().zip(&want).flat_map(|(got, want)| got.to_unit().into_iter().zip(want.clone()));
        let worst = pairs.map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
        println!("{name}: largest error {worst:.1e}");
        assert_eq!(frames.len(), want.len());
        // The golden values have 11 bits: 2.4e-4 for values up to 1. Another order of f32 sums adds at most as much.
        assert!(worst <= 5e-4, "{name}: {worst:.1e}");
    }
}
