//! A VAE without attention equals one whose attention outputs zero.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::path::Path;

use reseed_cpu::CpuOps;
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, Result, Vae};
use reseed_ops::{DType, Hw, Shape, relative_error};
use reseed_testing::{Side, formula, load, run_slices};

/// Fewer residual blocks than the public VAE, no attention, one group.
fn reduced() -> Config {
    Config { layers: 1, decoder_layers: 1, attention: false, latent: 12, ..Config::with_channels(&[6, 10, 16, 16], 1) }
}

/// Weights whose attention outputs zero.
struct ZeroAttention(Formula);

impl Source for ZeroAttention {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        self.0.shapes()
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.0.metadata(key)
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        let values = self.0.read(name)?;
        Ok(if name.contains(".to_out.0.") { vec![0.0; values.len()] } else { values })
    }
}

#[test]
fn missing_attention_equals_zero_attention() {
    let (ops, config) = (CpuOps::new(DType::F32, Some(1)).unwrap(), reduced());
    let zero = ZeroAttention(formula(&Config { attention: true, ..config.clone() }));
    let (without, with) = (load(&ops, &config), Vae::load(&ops, &zero).unwrap());
    for side in Side::BOTH {
        let clip = side.input(&config, 3, Hw::new(3, 5));
        let [a, b] = [&without, &with].map(|vae| run_slices(&ops, vae, side, &clip, &[1, 2]));
        // After attention the norm computes its statistics from the tensor, not in the convolution: rounding differs.
        assert!(relative_error(&a, &b) < 1e-5, "{side:?}: {:.1e}", relative_error(&a, &b));
    }
}
