//! The distribution of a latent: its mean and samples from it.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::CpuOps;
use reseed_model::weights::formula::{Formula, uniform};
use reseed_model::{Config, Vae, noise};
use reseed_ops::{DType, Ops, Shape};

const PIXELS: usize = 2 * 3 * 5;

fn model() -> (CpuOps, Vae) {
    let (cpu, config) = (CpuOps::new(DType::F32, Some(1)).unwrap(), Config::tiny());
    let vae = Vae::load(&cpu, &Formula::new(config.tensors(), config.groups, 1)).unwrap();
    (cpu, vae)
}

/// Means around zero, and log-variances from below the lower clamp to above the upper clamp.
fn moments(latent: usize) -> Vec<f32> {
    let values = uniform("moments", PIXELS * 2 * latent, 1);
    let scaled = values.iter().enumerate().map(|(i, v)| if (i / latent).is_multiple_of(2) { *v } else { 45.0 * v });
    scaled.map(|v| v as f32).collect()
}

#[test]
fn mean_is_the_first_half_of_the_moments_times_the_scaling_factor() {
    let (cpu, vae) = model();
    let latent = vae.config.latent;
    let moments = moments(latent);
    let tensor = cpu.upload(Shape::from([2, 3, 5, 2 * latent]), &moments).unwrap();
    let mean = cpu.download(&vae.mean(&cpu, &tensor).unwrap()).unwrap();
    let want: Vec<f32> = moments.chunks(2 * latent).flat_map(|m| &m[..latent]).map(|v| v * 0.9152).collect();
    assert!(mean.iter().zip(&want).all(|(got, want)| (got - want).abs() <= f32::EPSILON * want.abs()));
}

#[test]
fn samples_add_the_clamped_deviation_times_seeded_noise() {
    let (cpu, vae) = model();
    let latent = vae.config.latent;
    let moments = moments(latent);
    let tensor = cpu.upload(Shape::from([2, 3, 5, 2 * latent]), &moments).unwrap();
    let sample = |seed| cpu.download(&vae.sample(&cpu, &tensor, seed).unwrap()).unwrap();
    let noise = noise::normal(7, PIXELS * latent);
    for (i, got) in sample(7).into_iter().enumerate() {
        let pixel = &moments[i / latent * 2 * latent..][..2 * latent];
        let deviation = (0.5 * f64::from(pixel[latent + i % latent]).clamp(-30.0, 20.0)).exp();
        let want = (f64::from(pixel[i % latent]) + deviation * f64::from(noise[i])) * f64::from(0.9152f32);
        assert!((f64::from(got) - want).abs() <= f64::from(f32::EPSILON) * want.abs(), "value {i}: {got}, not {want}");
    }
    assert_eq!(sample(7), sample(7));
    assert_ne!(sample(7), sample(8));
}
