//! Diffusion transformers with formula weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reseed_model::dit::Config;
use reseed_model::weights::Source;
use reseed_model::weights::formula::{self, Formula};
use reseed_model::{Dit, Result};
use reseed_ops::{Device, Hw, Shape, Thw};

use super::Clip;
use super::golden::dit::text;

/// The velocity of a uniform pseudo-random latent, with six text tokens.
pub fn velocity(ops: &dyn Device, dit: &Dit, latent: Thw) -> Vec<f32> {
    let plane = Hw::new(latent.h, latent.w);
    let latents = Clip::uniform("latents", 2 * latent.t, plane, dit.config.latent).upload(ops, 0..2 * latent.t);
    let words = formula::uniform("text", 6 * dit.config.text_width, 1);
    let text = text(ops, &dit.config, &words.into_iter().map(|v| v as f32).collect::<Vec<_>>());
    let plan = dit.plan(ops, latent, 6).unwrap();
    ops.download(&dit.velocity(ops, &latents, &text, &plan).unwrap()).unwrap()
}

/// Weights in memory, with a count of the reads of each tensor.
pub struct MemoryWeights {
    pub path: PathBuf,
    pub shapes: BTreeMap<String, Shape>,
    pub values: BTreeMap<String, Vec<f32>>,
    pub reads: Mutex<BTreeMap<String, usize>>,
}

impl MemoryWeights {
    /// The formula weights of a model, mapped tensor by tensor through `change`.
    pub fn new(config: &Config, change: impl Fn(&str, Vec<f32>) -> Vec<f32>) -> MemoryWeights {
        let source = Formula::plain(config.tensors(), 1);
        let values = config.tensors().into_iter().map(|(name, _)| {
            let values = change(&name, source.read(&name).unwrap());
            (name, values)
        });
        MemoryWeights {
            path: "memory".into(),
            values: values.collect(),
            shapes: source.shapes().clone(),
            reads: Mutex::default(),
        }
    }
}

impl Source for MemoryWeights {
    fn path(&self) -> &Path {
        &self.path
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        &self.shapes
    }

    fn metadata(&self, _: &str) -> Option<&str> {
        None
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        *self.reads.lock().unwrap().entry(name.into()).or_default() += 1;
        Ok(self.values[name].clone())
    }
}
