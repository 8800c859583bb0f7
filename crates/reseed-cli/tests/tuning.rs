//! `--tune`: measured kernel choices are stored and reused without another measurement; all of this is optional.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;

use crate::common;
use crate::common::fake_gpu::FakeGpu;

const BENCH: &str = "bench dit --model formula:tiny --latent 1x16x16 --repeat 1";

/// Returns the standard error output of a run and the number of matrix products that cuBLASLt computed.
fn run(gpu: &FakeGpu, args: &str) -> (String, usize) {
    let count = gpu.lab.path("products");
    let _ = fs::remove_file(&count);
    let mut command = gpu.command(args);
    command.env("RESEED_STUB_PRODUCTS", &count);
    let outcome = common::outcome(command);
    assert_eq!(outcome.code, Some(0), "reseed {args}: {}", outcome.stderr);
    (outcome.stderr, fs::read_to_string(count).map_or(0, |text| text.parse().unwrap()))
}

#[test]
fn measured_kernel_choices_are_stored_and_reused() {
    let gpu = FakeGpu::new();
    gpu.build("cublaslt.c", "libcublasLt.so.12");
    assert_eq!(run(&gpu, BENCH), (String::new(), 0), "measured without --tune on");
    let record = gpu.lab.path("cache/reseed/linear.txt");
    assert!(!record.exists());

    let (stderr, tried) = run(&gpu, &format!("{BENCH} --tune on"));
    assert!(stderr.is_empty() && tried > 0, "{stderr}");
    let text = fs::read_to_string(&record).unwrap();
    let choices: Vec<&str> = text.lines().skip(1).collect();
    // All kernels take the same time on the fake GPU. Equal times select our own kernel.
    assert!(choices.len() > 4 && choices.iter().all(|line| line.starts_with("stub\t13.0\t120804\t")), "{text}");
    assert!(choices.iter().all(|line| line.ends_with("\town")), "{text}");
    assert_eq!(run(&gpu, &format!("{BENCH} --tune on")), (String::new(), 0), "measured twice");

    fs::write(&record, text.replace("\town", &format!("\tcublaslt {}", "07".repeat(64)))).unwrap();
    let (stderr, products) = run(&gpu, BENCH);
    // Three passes: one warm-up, one profiled, one timed.
    assert!(stderr.is_empty() && products > 3 * choices.len() && products.is_multiple_of(3), "{stderr} {products}");

    fs::remove_file(gpu.lab.path("libcublasLt.so.12")).unwrap();
    assert_eq!(run(&gpu, BENCH), (String::new(), 0), "without the library our own kernels run");
    let (stderr, _) = run(&gpu, &format!("{BENCH} --tune on"));
    assert!(stderr.contains("cannot measure linear layers") && stderr.contains("cuBLASLt not found"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn a_damaged_tuning_file_is_reported_once_and_ignored() {
    let gpu = FakeGpu::new();
    gpu.build("cublaslt.c", "libcublasLt.so.12");
    fs::create_dir_all(gpu.lab.path("cache/reseed")).unwrap();
    fs::write(gpu.lab.path("cache/reseed/linear.txt"), "anything\nelse").unwrap();
    let (stderr, products) = run(&gpu, BENCH);
    assert_eq!((stderr.lines().count(), products), (1, 0), "{stderr}");
    assert!(stderr.contains("linear.txt: line 2 is damaged"), "{stderr}");
    let (stderr, tried) = run(&gpu, &format!("{BENCH} --tune on"));
    assert!(stderr.lines().count() == 1 && tried > 0, "{stderr}");
    assert_eq!(run(&gpu, BENCH), (String::new(), 0), "--tune on did not replace the damaged file");
}

#[test]
fn tune_accepts_only_off_and_on() {
    let outcome = FakeGpu::new().lab.run(&format!("{BENCH} --tune perhaps"));
    assert!(outcome.code == Some(2) && outcome.stderr.contains("`perhaps` is not off or on"), "{}", outcome.stderr);
}
