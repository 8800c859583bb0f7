//! Golden tests of whole jobs: the encoded latents, the restored latents and the output frames.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::{Batching, Error, Settings, Target};
use reseed_cpu::CpuOps;
use reseed_media::{Frame, Samples, Size};
use reseed_ops::DType;
use reseed_testing::pipeline::golden_jobs::{Devices, GoldenError, GoldenJob};
use reseed_testing::pipeline::job::{TinyVae, identity};
use reseed_testing::pipeline::{PipelineGolden, distance};

const CASES: [&str; 5] =
    ["pipeline_3b_image", "pipeline_3b_clip", "pipeline_3b_rgba", "pipeline_7b_image", "pipeline_7b_clip"];

fn assert_allowed(errors: &[GoldenError]) {
    for entry @ GoldenError { name, error, allowed } in errors {
        println!("{name}: {error:.1e}, allowed {allowed:.1e}");
        assert!(entry.is_allowed(), "{name}: {error:.1e}, allowed {allowed:.1e}");
    }
}

#[test]
fn f32_jobs_of_8_bits_match_the_golden_files() {
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    CASES
        .iter()
        .for_each(|name| assert_allowed(&GoldenJob::open(name).check(Devices { vae: &ops, transformer: &ops })));
}

#[test]
fn f16_and_bf16_jobs_are_within_the_bounds_of_their_networks() {
    let device = |dtype| CpuOps::new(dtype, Some(2)).unwrap();
    let [f16, bf16] = [DType::F16, DType::Bf16].map(device);
    for vae in [&f16, &bf16] {
        for name in CASES {
            let errors = GoldenJob::open(name).check(Devices { vae, transformer: &bf16 });
            assert_allowed(&errors);
            // Bounds far above the errors would hide mistakes.
            assert!(errors.iter().all(|entry| entry.error >= entry.allowed / 8.0), "{errors:?}");
        }
    }
}

#[test]
fn f32_jobs_of_16_bits_match_the_golden_values() {
    let deep = |samples: &Samples| match samples {
        Samples::U8(codes) => Samples::U16(codes.iter().map(|&code| u16::from(code) * 257).collect()),
        _ => panic!("golden frames have 8 bits"),
    };
    // A swap of neighbours in rank moves single pixels by the gap between two style values, however small the rounding
    // error that caused it. Which pixels swap is random. The bound is the largest move in any golden file when
    // evaluated in double precision. The files store it with two digits, hence a rounding error of at most 5%.
    let max_move = |golden: &PipelineGolden| 1.05 * golden.case["float64"]["max"].as_f64().unwrap();
    let swap = CASES.iter().map(|name| max_move(&PipelineGolden::open(name))).fold(0.0, f64::max);
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    for name in CASES {
        let job = GoldenJob::open(name);
        let golden = &job.golden;
        let inputs = golden.frames("frames");
        let inputs: Vec<Frame> = inputs
            .iter()
            .map(|f| Frame { size: f.size, samples: deep(&f.samples), alpha: f.alpha.as_ref().map(deep) })
            .collect();
        let unit = |samples: &Samples| {
            let mut unit = vec![0.0; samples.len()];
            samples.copy_to_unit(0..unit.len(), &mut unit);
            unit
        };
        let interleaved = |frame: &Frame| -> Vec<f32> {
            let (colour, alpha) = (unit(&frame.samples), frame.alpha.as_ref().map(unit));
            let alpha = |i: usize| alpha.as_ref().map(|alpha| alpha[i]);
            let pixels = colour.chunks_exact(3).enumerate();
            pixels.flat_map(|(i, rgb)| rgb.iter().copied().chain(alpha(i)).collect::<Vec<f32>>()).collect()
        };
        let (latents, frames) = job.run(Devices { vae: &ops, transformer: &ops }, &inputs);
        assert_allowed(&latents);
        let got: Vec<Vec<f32>> = frames.iter().map(interleaved).collect();
        let error = distance(&got, &golden.frame_values("result"));
        let float64 = &golden.case["float64"];
        println!("{name}: {error:?}, double precision {float64}");
        let half_a_code = 0.5 / 65535.0;
        assert!(error.mean <= half_a_code + 4.0 * float64["mean"].as_f64().unwrap(), "{name}: {error:?}");
        assert!(error.max <= half_a_code + swap, "{name}: {error:?}");
    }
}

#[test]
fn noise_files_without_a_batch_or_of_another_shape_are_rejected() {
    let job = GoldenJob::open("pipeline_3b_clip");
    let frames = job.golden.frames("frames");
    let run = |settings| TinyVae::new().run(settings, &identity, &frames).0.unwrap_err();

    let shorter = Settings { batching: Batching { size: 3, overlap: 0, uniform: false }, ..job.settings() };
    let error = run(shorter);
    assert!(matches!(&error, Error::NoNoise { name, .. } if name == "noise3"), "{error}");
    let error = run(Settings { target: Target::Exact(Size { h: 64, w: 64 }), ..job.settings() });
    assert!(error.to_string().contains("`noise0` is [2, 16, 6, 8], this job needs [2, 16, 8, 8]"), "{error}");
}
