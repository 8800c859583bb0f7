//! The model inside the program against what its training code makes of the same frames (`training/golden.py`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::{Color, Settings, Target, Transformer};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Size};
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Dit, TextEmbedding, Vae, nano};
use reseed_ops::DType;
use reseed_testing::pipeline::golden_path;
use reseed_testing::pipeline::job::{Film, SmallVae};

/// Frames `[T, 3, H, W]` in [0, 1] as pictures.
fn pictures(golden: &Safetensors, name: &str) -> (Size, Vec<Vec<f32>>) {
    let values = golden.read(name).unwrap();
    let &[t, 3, h, w] = golden.shapes()[name].dims() else { panic!("{name} is no clip") };
    let plane = h * w;
    let picture = |t: usize| (0..3 * plane).map(|i| values[(3 * t + i % 3) * plane + i / 3]).collect();
    (Size { h, w }, (0..t).map(picture).collect())
}

#[test]
fn it_makes_what_it_was_trained_to_make() {
    let golden = Safetensors::open(&golden_path("nano.safetensors")).unwrap();
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    let (vae, dit) = (nano::vae().unwrap(), nano::dit().unwrap());
    let step = Dit::load(&ops, &dit).unwrap();
    let text = TextEmbedding::from_weights(&dit, step.config.text_width).unwrap().unwrap();
    let vae = Vae::load(&ops, &vae).unwrap();
    let small = SmallVae { ops, vae };
    let step = Transformer::new(&small.ops, step, text);

    let (input, inputs) = pictures(&golden, "input");
    for (name, low_band) in [("output", 0.0), ("low_band", 0.75)] {
        let (size, want) = pictures(&golden, name);
        let frames: Vec<Frame> = inputs.iter().map(|unit| Frame::from_unit(input, unit, Depth::Eight)).collect();
        let film = Film::made(input, Depth::Sixteen, move |i| Ok(frames.get(i).cloned()));
        let settings = Settings { target: Target::Exact(size), color: Color::None, low_band, ..Settings::default() };
        let (report, frames) = small.run_with(settings, &step, film, &mut ());
        report.unwrap();
        let pairs = frames.iter().zip(&want).flat_map(|(got, want)| got.to_unit().into_iter().zip(want.clone()));
        let worst = pairs.map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
        println!("{name}: off by {worst:.1e} at most");
        assert_eq!(frames.len(), want.len());
        // The stored values have eleven bits, which is 2.4e-4 below one; f32 in another order adds as much at the most.
        assert!(worst <= 5e-4, "{name}: {worst:.1e}");
    }
}
