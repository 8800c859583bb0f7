//! The time embedding. There is one step, so it is one constant, computed on the host while the model loads.

use rayon::prelude::*;

use super::config::{Config, TIME};
use crate::error::Result;
use crate::weights::Source;

/// Where the one step starts: all noise.
const TIMESTEP: f64 = 1000.0;

/// Which half of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Attention.
    Attn = 0,
    /// The wide matrices.
    Mlp = 1,
}

impl Slot {
    /// Its name in the checkpoint.
    pub fn name(self) -> &'static str {
        match self {
            Slot::Attn => "attn",
            Slot::Mlp => "mlp",
        }
    }
}

/// What is done with the time embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Added behind a norm.
    Shift = 0,
    /// Multiplied behind a norm.
    Scale = 1,
    /// Multiplied before a sum.
    Gate = 2,
}

/// Six numbers for every channel, side by side: `[channel][attn, mlp][shift, scale, gate]`.
pub struct Time(Vec<f64>);

impl Time {
    /// sin, cos → linear → silu → linear → silu → linear
    pub fn new(source: &dyn Source, config: &Config) -> Result<Time> {
        debug_assert_eq!(source.shapes()["emb_in.proj_in.weight"].dims(), [config.width, TIME]);
        let e = linear(source, "emb_in.proj_in", &waves(TIMESTEP))?;
        let e = linear(source, "emb_in.proj_hid", &silu(e))?;
        Ok(Time(linear(source, "emb_in.proj_out", &silu(e))?))
    }

    /// The embedding plus a layer's own vector.
    pub fn plus(&self, slot: Slot, part: Part, own: &[f32]) -> Vec<f32> {
        let at = 3 * slot as usize + part as usize;
        self.0.chunks_exact(6).zip(own).map(|(time, own)| (time[at] + f64::from(*own)) as f32).collect()
    }
}

/// Sines, then cosines, of frequencies that fall from 1 to 1/10000.
fn waves(t: f64) -> Vec<f64> {
    let half = TIME / 2;
    let angle = |k: usize| t * (-(10_000_f64.ln()) * k as f64 / half as f64).exp();
    (0..half).map(|k| angle(k).sin()).chain((0..half).map(|k| angle(k).cos())).collect()
}

fn silu(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(|v| v / (1.0 + (-v).exp())).collect()
}

fn linear(source: &dyn Source, name: &str, x: &[f64]) -> Result<Vec<f64>> {
    let weight = source.read(&format!("{name}.weight"))?;
    let bias = source.read(&format!("{name}.bias"))?;
    let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
    Ok(weight.par_chunks(x.len()).zip(&bias).map(|(row, bias)| dot(row) + f64::from(*bias)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Published from f32, where an angle of 1000 is off by up to half a unit in its last place, 3e-5.
    #[test]
    fn waves_are_the_published_ones() {
        let waves = waves(TIMESTEP);
        let close = |got: &[f64], want: &[f64]| got.iter().zip(want).all(|(g, w)| (g - w).abs() < 4e-5);
        assert!(close(&waves, &[0.826880, 0.613588, -0.898033, 0.999720]), "{:?}", &waves[..4]);
        assert!(close(&waves[127..], &[0.107254, 0.562379, 0.789627, 0.439928, -0.023645]), "{:?}", &waves[127..132]);
        assert!(close(&waves[255..], &[0.994232]));
    }
}
