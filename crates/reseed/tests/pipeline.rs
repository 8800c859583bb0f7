//! Whole jobs against stored ones: what the transformer is shown, what it makes of that, and the frames at the end.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::batch::Batching;
use reseed::{Error, Settings, Target};
use reseed_cpu::CpuOps;
use reseed_media::{Frame, Samples, Size};
use reseed_ops::DType;
use reseed_testing::pipeline::job::{SmallVae, identity};
use reseed_testing::pipeline::stored::{Devices, Job, Off};
use reseed_testing::pipeline::{Golden, distance};

const CASES: [&str; 5] =
    ["pipeline_3b_image", "pipeline_3b_clip", "pipeline_3b_rgba", "pipeline_7b_image", "pipeline_7b_clip"];

fn assert_near(seen: &[Off]) {
    for off @ Off { what, error, allowed } in seen {
        println!("{what}: {error:.1e}, allowed {allowed:.1e}");
        assert!(off.is_near(), "{what}: {error:.1e}, allowed {allowed:.1e}");
    }
}

#[test]
fn eight_bits_are_the_stored_ones() {
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    CASES.iter().for_each(|name| assert_near(&Job::open(name).check(Devices { vae: &ops, transformer: &ops })));
}

#[test]
fn in_few_bits_jobs_are_off_by_what_their_networks_may_be() {
    let device = |dtype| CpuOps::new(dtype, Some(2)).unwrap();
    let [f16, bf16] = [DType::F16, DType::Bf16].map(device);
    for vae in [&f16, &bf16] {
        for name in CASES {
            let seen = Job::open(name).check(Devices { vae, transformer: &bf16 });
            assert_near(&seen);
            // Bounds that are far from what is seen would hide mistakes.
            assert!(seen.iter().all(|off| off.error >= off.allowed / 8.0), "{seen:?}");
        }
    }
}

#[test]
fn sixteen_bits_are_closer_still() {
    let deep = |samples: &Samples| match samples {
        Samples::U8(codes) => Samples::U16(codes.iter().map(|&code| u16::from(code) * 257).collect()),
        Samples::U16(_) => panic!("eight bits are stored"),
    };
    // A swap of neighbours in rank moves single pixels by the gap between two values of the other picture, whatever the
    // size of the rounding that caused it. Which pixels swap is chance; the largest move that double precision shows in any
    // stored case is what one swap can do. It is stored with two digits, of which the last is rounded: 5% at most.
    let most = |case: &Golden| 1.05 * case.case["float64"]["max"].as_f64().unwrap();
    let swap = CASES.iter().map(|name| most(&Golden::open(name))).fold(0.0, f64::max);
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    for name in CASES {
        let job = Job::open(name);
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
        assert_near(&latents);
        let got: Vec<Vec<f32>> = frames.iter().map(interleaved).collect();
        let off = distance(&got, &golden.pictures("result"));
        let stored = &golden.case["float64"];
        println!("{name}: {off:?}, double precision {stored}");
        let half_a_code = 0.5 / 65535.0;
        assert!(off.mean <= half_a_code + 4.0 * stored["mean"].as_f64().unwrap(), "{name}: {off:?}");
        assert!(off.max <= half_a_code + swap, "{name}: {off:?}");
    }
}

#[test]
fn noise_that_does_not_fit_is_refused() {
    let job = Job::open("pipeline_3b_clip");
    let frames = job.golden.frames("frames");
    let run = |settings| SmallVae::new().run(settings, &identity, &frames).0.unwrap_err();

    let shorter = Settings { batching: Batching { size: 3, overlap: 0, uniform: false }, ..job.settings() };
    let error = run(shorter);
    assert!(matches!(&error, Error::NoNoise { name, .. } if name == "noise3"), "{error}");
    let error = run(Settings { target: Target::Exact(Size { h: 64, w: 64 }), ..job.settings() });
    assert!(error.to_string().contains("`noise0` is [2, 16, 6, 8], this job needs [2, 16, 8, 8]"), "{error}");
}
