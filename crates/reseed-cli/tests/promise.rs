//! `--max-vram`: GPU memory of a run, measured by a fake driver that counts allocations and computes nothing.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;

use crate::common;
use crate::common::Tensor;
use crate::common::fake_gpu::FakeGpu;
use reseed_media::Size;

/// Memory of the driver's context.
const CONTEXT: u64 = 560 << 20;

#[test]
fn an_available_gpu_is_the_default_device() {
    let (gpu, args) = (FakeGpu::new(), "estimate vae decode --weights formula:tiny --size 64x64 --frames 5");
    let peak = |outcome: common::Outcome| outcome.events()[0]["gpu_peak_bytes"].as_u64();
    assert!(peak(common::outcome(gpu.command_default_device(args))).is_some_and(|bytes| bytes > CONTEXT));
    assert_eq!(peak(common::outcome(gpu.command_default_device(&format!("{args} --device cpu")))), None);
    assert_eq!(peak(gpu.lab.succeed(&format!("{args} --json"))), None);
}

/// Runs the VAE on a clip within a limit in GiB, in an exact plan or in tiles.
fn check_vae(runs: &[(&str, &str, usize, u64, bool)]) {
    let gpu = FakeGpu::new();
    for &(direction, size, frames, limit, exact) in runs {
        let args = format!("bench vae {direction} --size {size} --frames {frames} --max-vram {limit}G --repeat 1");
        let (outcome, peak) = gpu.run(&args);
        assert!(peak <= limit << 30, "{args}: {peak} bytes");
        assert_eq!(!outcome.stderr.contains("which is not exact"), exact, "{args}: {}", outcome.stderr);
    }
}

#[test]
fn vae_runs_stay_within_max_vram() {
    check_vae(&[("decode", "1280x720", 17, 4, true), ("encode", "1920x1080", 17, 4, false)]);
}

#[test]
#[ignore = "takes minutes; run `just long-tests`"]
fn larger_vae_runs_stay_within_max_vram() {
    check_vae(&[
        ("decode", "1280x720", 17, 6, true),
        ("decode", "1920x1080", 17, 12, true),
        ("decode", "3840x2160", 5, 15, true),
        ("encode", "1920x1080", 17, 6, true),
        ("encode", "1920x1080", 17, 5, true),
    ]);
}

#[test]
fn vae_runs_allocate_the_estimated_memory() {
    let gpu = FakeGpu::new();
    gpu.lab.input("in", &Tensor::uniform(&[3, 16, 30, 40]));
    let (estimated, _) = gpu.run("estimate vae decode --size 320x240 --frames 9");
    let event = &estimated.events()[0];
    let number = |key: &str| event[key].as_u64().unwrap();
    let estimated = CONTEXT + number("weights_bytes") + number("peak_above_weights_bytes");
    // A benchmark also loads only the coder that it times.
    for args in ["vae decode in out --weights formula:full", "bench vae decode --size 320x240 --frames 9 --repeat 1"] {
        let (_, peak) = gpu.run(args);
        let ratio = peak as f64 / estimated as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{args}: {peak} bytes allocated, {estimated} estimated");
    }
}

/// Turing has no bf16: the transformer runs in f16, and one line says so.
#[test]
fn a_gpu_without_bf16_runs_whole_jobs() {
    let gpu = FakeGpu::new();
    gpu.lab.write_frames("in.y4m", Size { h: 36, w: 64 }, 5);
    let mut command = gpu.command("upscale in.y4m out.y4m --model formula:tiny --scale 2 --color none");
    command.env("RESEED_STUB_CAPABILITY", "7.5");
    let outcome = common::outcome(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let warning = "cuda:0 stub has no bf16: the transformer runs in f16, less precisely";
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    assert_eq!(outcome.events().last().unwrap()["dtype"], "f16");
}

#[test]
fn offloading_needs_pinned_host_memory() {
    let gpu = FakeGpu::new();
    let run = |pins: &str| {
        let mut command =
            gpu.command("bench vae decode --weights formula:tiny --dtype bf16 --size 64x64 --frames 5 --repeat 1");
        command.env("RESEED_STUB_PINS", pins);
        common::outcome(command)
    };
    for pins in ["ours", "refused"] {
        let outcome = run(pins);
        assert_eq!(outcome.code, Some(0), "{pins}: {}", outcome.stderr);
    }
    let none = run("none");
    assert_eq!(none.code, Some(5), "{}", none.stderr);
    assert!(none.stderr.contains("out of pinned host memory"), "{}", none.stderr);
}

/// A job at full size, in windows if these are faster, allocates what was estimated and no more. Returns
/// whether a network is offloaded.
fn check_job(model: &str, batch: usize, limit: u64) -> bool {
    let gpu = FakeGpu::new();
    gpu.lab.write_frames("in.y4m", Size { h: 180, w: 320 }, batch);
    let job = format!("--model formula:{model} --size 1280x720 --batch-size {batch} --color none --max-vram {limit}G");
    let (estimated, _) = gpu.run(&format!("estimate upscale in.y4m {job} --overlap 0"));
    let estimated = &estimated.events()[0];
    let (outcome, peak) = gpu.run(&format!("bench upscale --from 320x180 --batches 2 {job}"));
    assert!(peak <= limit << 30, "{job}: {peak} bytes");
    assert!(!outcome.stderr.contains("which is not exact"), "{job}: {}", outcome.stderr);
    let done = outcome.events().pop().unwrap();
    for same in ["networks_offloaded", "window", "layers", "resident_layers"] {
        assert_eq!(done[same], estimated[same], "{job}: {same}");
    }
    let ratio = peak as f64 / estimated["device_bytes"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 0.05, "{job}: {peak} bytes allocated, {estimated}");
    estimated["networks_offloaded"] == true
}

#[test]
fn a_job_stays_within_max_vram_and_allocates_the_estimated_memory() {
    check_job("tiny", 9, 1);
}

#[test]
#[ignore = "takes minutes; run `just long-tests`"]
fn larger_jobs_stay_within_max_vram_and_allocate_the_estimated_memory() {
    let offloaded = [check_job("3b", 17, 6), check_job("3b", 17, 8), check_job("7b", 17, 8)];
    assert!(offloaded.contains(&true), "no budget is small enough to offload a network");
}

/// The work on frames has memory of its own on the GPU, which is part of the budget and of the estimate.
#[test]
fn the_work_on_frames_stays_within_max_vram() {
    let gpu = FakeGpu::new();
    gpu.lab.write_frames("in.y4m", Size { h: 180, w: 320 }, 9);
    let peak_of = |color: &str| {
        let job = format!("--model formula:tiny --size 640x360 --batch-size 5 --color {color} --max-vram 2G");
        let (estimated, _) = gpu.run(&format!("estimate upscale in.y4m {job} --overlap 0"));
        let (_, peak) = gpu.run(&format!("bench upscale --from 320x180 --batches 2 {job}"));
        let ratio = peak as f64 / estimated.events()[0]["device_bytes"].as_f64().unwrap();
        assert!(peak <= 2 << 30 && (ratio - 1.0).abs() < 0.05, "{job}: {peak} bytes allocated, {estimated:?}");
        peak
    };
    // Forty bytes for each pixel of a slice. Without colour correction there are the buffers of one frame alone: twelve
    // bytes of values, three of samples, and two frames of resampling and filters.
    assert!(peak_of("lab") >= peak_of("none") + (40 * 5 - 12 - 3 - 2 * 12) * 640 * 360);
}

/// Where the budget has no room for the work on frames beside the networks, the host does it, and the networks stay
/// loaded from one video to the next.
#[test]
fn networks_stay_loaded_when_the_host_finishes_the_frames() {
    let gpu = FakeGpu::new();
    fs::create_dir(gpu.lab.path("in")).unwrap();
    ["a", "b"].iter().for_each(|name| drop(gpu.lab.write_frames(&format!("in/{name}.y4m"), Size { h: 90, w: 160 }, 5)));
    let allocations_within = |limit: &str| {
        let job = "upscale in out --overwrite --model formula:tiny --size 640x360 --batch-size 1 --color lab";
        let (outcome, _, allocations) = gpu.run_with_contention(&format!("{job} --max-vram {limit}"), (0, 0));
        let done = outcome.events().into_iter().filter(|event| event["event"] == "done");
        let kept: Vec<_> = done.map(|event| event["networks_kept"].clone()).collect();
        assert_eq!(kept, [false, true], "within {limit}: {}", outcome.stderr);
        allocations
    };
    assert!(allocations_within("648M") < allocations_within("1G"), "the work on frames fits into 648 MiB");
}

/// Allocations of the first step that are not reserved in advance: they depend on the size of the latent.
const STEP_ALLOCATIONS: u64 = 12;

#[test]
fn a_job_continues_when_another_process_allocates_gpu_memory() {
    let gpu = FakeGpu::new();
    gpu.lab.write_frames("in.y4m", Size { h: 90, w: 160 }, 7);
    // Loading weights and allocating tensors needs some free memory; a running job has reserved its memory.
    for (vram, left, in_job) in [("--max-vram 1G", 350, false), ("--max-vram 1G", 0, true), ("", 0, true)] {
        let job = format!("upscale in.y4m out.y4m --overwrite --model formula:tiny --size 640x360 --color none {vram}");
        let (undisturbed, _, total) = gpu.run_with_contention(&job, (0, 0));
        assert_eq!(undisturbed.code, Some(0), "{}", undisturbed.stderr);
        let bytes = || fs::metadata(gpu.lab.path("out.y4m")).unwrap().len();
        let length = bytes();
        let (loading, step) = (total - STEP_ALLOCATIONS, total - STEP_ALLOCATIONS + 1);
        for when in if in_job { [step, step + 5, total] } else { [loading / 3, loading - 1, loading] } {
            let (outcome, ..) = gpu.run_with_contention(&job, (when, left));
            assert_eq!(outcome.code, Some(0), "contention at allocation {when} of {total}: {}", outcome.stderr);
            assert_eq!(bytes(), length, "contention at allocation {when} of {total}");
            let reported = outcome.stderr.contains("another process allocated memory");
            assert_eq!(reported, in_job, "contention at allocation {when} of {total}: {}", outcome.stderr);
        }
    }
}

#[test]
fn quantized_weights_allocate_their_quantized_size() {
    let gpu = FakeGpu::new();
    let run = |model: &str| gpu.run(&format!("bench dit --model {model} --layers 2 --latent 1x16x16 --repeat 1"));
    let ((_, float_peak), (quantized, peak)) = (run("formula:7b"), run("formula:7b-q4"));
    // The first and the last layer of the 7B network; the text stream of the last one ends at attention.
    let values = 3 * 113_246_208 + 9216 * 3072;
    let (float_bytes, quantized_bytes) = (2 * values, values / 256 * 144);
    // The largest matrix is dequantized while it is used.
    let expected = float_peak - float_bytes + quantized_bytes + 2 * 12288 * 3072;
    assert!(peak <= expected + (64 << 20), "{peak} bytes quantized, {float_peak} as floats, {expected} expected");
    assert_eq!(quantized.events()[0]["gpu_peak_bytes"].as_u64(), Some(peak));
}
