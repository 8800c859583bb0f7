//! The time embedding. There is one sampling step, so it is a constant that the host computes while the model loads.

use rayon::prelude::*;

use super::config::{Config, TIME_DIM};
use crate::error::Result;
use crate::weights::Source;

/// Timestep of the one step: pure noise.
const TIMESTEP: f64 = 1000.0;

/// Sublayer of a transformer layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sublayer {
    /// Attention.
    Attn = 0,
    /// MLP.
    Mlp = 1,
}

impl Sublayer {
    /// Name in the checkpoint.
    pub fn name(self) -> &'static str {
        match self {
            Sublayer::Attn => "attn",
            Sublayer::Mlp => "mlp",
        }
    }
}

/// Vector of the modulation of a sublayer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Added after the norm.
    Shift = 0,
    /// Multiplied after the norm.
    Scale = 1,
    /// Multiplied before the residual sum.
    Gate = 2,
}

/// Six values per channel: `[channel][attn, mlp][shift, scale, gate]`.
pub struct TimeEmbedding(Vec<f64>);

impl TimeEmbedding {
    /// sin, cos → linear → silu → linear → silu → linear
    pub fn new(source: &dyn Source, config: &Config) -> Result<TimeEmbedding> {
        debug_assert_eq!(source.shapes()["emb_in.proj_in.weight"].dims(), [config.width, TIME_DIM]);
        let e = linear(source, "emb_in.proj_in", &sinusoids(TIMESTEP))?;
        let e = linear(source, "emb_in.proj_hid", &silu(e))?;
        Ok(TimeEmbedding(linear(source, "emb_in.proj_out", &silu(e))?))
    }

    /// The embedding plus the vector of a layer.
    pub fn plus(&self, sublayer: Sublayer, part: Part, own: &[f32]) -> Vec<f32> {
        let at = 3 * sublayer as usize + part as usize;
        self.0.chunks_exact(6).zip(own).map(|(time, own)| (time[at] + f64::from(*own)) as f32).collect()
    }
}

/// Sines, then cosines, at frequencies that fall from 1 to 1/10000.
fn sinusoids(t: f64) -> Vec<f64> {
    let half = TIME_DIM / 2;
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

    // The published values are from f32, where the rounding of an angle of 1000 is up to 3e-5.
    #[test]
    fn sinusoids_match_the_published_ones() {
        let sinusoids = sinusoids(TIMESTEP);
        let close = |got: &[f64], want: &[f64]| got.iter().zip(want).all(|(g, w)| (g - w).abs() < 4e-5);
        assert!(close(&sinusoids, &[0.826880, 0.613588, -0.898033, 0.999720]), "{:?}", &sinusoids[..4]);
        assert!(
            close(&sinusoids[127..], &[0.107254, 0.562379, 0.789627, 0.439928, -0.023645]),
            "{:?}",
            &sinusoids[127..132]
        );
        assert!(close(&sinusoids[255..], &[0.994232]));
    }
}
