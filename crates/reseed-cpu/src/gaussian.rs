//! Mean or sample of a diagonal Gaussian.

use crate::CpuOps;
use reseed_ops::reference;
use reseed_ops::{Ops, Result, Shape, Tensor};

/// Runs the op.
pub fn run(cpu: &CpuOps, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
    let thw = moments.thw();
    let channels = moments.channels() / 2;
    let shape = Shape::clip(thw, channels);
    if let Some(noise) = noise {
        assert_eq!(noise.shape(), shape, "gaussian: noise for {moments:?}");
    }
    let noise = noise.map(|n| cpu.clip(n).data);
    let values = reference::gaussian(&cpu.clip(moments).data, channels, noise.as_deref(), f64::from(scale));
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    cpu.upload(shape, &values)
}
