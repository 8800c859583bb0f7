//! Golden tests of the networks and of whole jobs on a device.

use std::fs;
use std::path::{Path, PathBuf};

use reseed_model::Dit;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{Device, Error, Precision, Result, relative_error};
use reseed_testing::golden::{VaeGolden, dit, run_all};
pub use reseed_testing::pipeline::golden_jobs::Devices;
use reseed_testing::pipeline::golden_jobs::{GoldenError, GoldenJob};

/// Golden files and the operation of each, in the order of their names.
pub struct Goldens(Vec<(PathBuf, String)>);

impl Goldens {
    /// The golden files in the folders; other files are ignored.
    pub fn find(folders: &[PathBuf]) -> Result<Goldens> {
        let mut paths = Vec::new();
        for folder in folders {
            let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
            paths.extend(entries.map_err(weight_error)?.into_iter().map(|entry| entry.path()));
        }
        paths.retain(|path| path.extension().is_some_and(|end| end == "safetensors"));
        paths.sort();
        let mut goldens = paths.into_iter().map(|path| op(&path).map(|op| (path, op))).collect::<Result<Vec<_>>>()?;
        goldens.retain(|(_, op)| ["encode", "decode", "velocity", "sample", "pipeline"].contains(&op.as_str()));
        Ok(Goldens(goldens))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, ops: &'static [&str]) -> impl Iterator<Item = &Path> {
        self.0.iter().filter(|(_, op)| ops.contains(&op.as_str())).map(|(path, _)| path.as_path())
    }

    /// Runs every golden test of a network and prints its error; returns how many exceed the allowed error.
    pub fn networks(&self, ops: &dyn Device) -> Result<usize> {
        let (precision, mut disagreements) = (ops.precision(), 0);
        // A layer rounds its input and its weights, with a variance of u²/3 each. Sums of f16 add 64 products in four
        // steps, and the sum after step k has k/4 of the last one's variance: their roundings add 5/2 times u²/3. The
        // deviation grows by the root of (2 + 5/2) / 2.
        let factor = if ops.math_mode().is_fast() { 1.5 } else { 1.0 };
        let mut compare = |network: &str, name: &str, (want, got): (&[f32], &[f32]), allowed: f64| {
            assert_eq!(want.len(), got.len(), "{name}");
            let error = GoldenError { name: name.into(), error: relative_error(want, got), allowed };
            disagreements += report(network, precision, &error);
        };
        run_all(ops, self.of(&["encode", "decode"]).map(VaeGolden::read).collect(), |golden, result| {
            compare("autoencoder", &golden.name, (&golden.output.values, &result), factor * golden.allowed(precision));
        });
        for golden in self.of(&["velocity", "sample"]).map(dit::DitGolden::read) {
            let result = golden.run(ops, &Dit::load(ops, &golden.source()).map_err(weight_error)?);
            compare("transformer", &golden.name, (&golden.output.values, &result), dit::allowed_on(ops));
        }
        Ok(disagreements)
    }

    /// The same for whole jobs and all their golden tensors.
    pub fn jobs(&self, devices: Devices) -> usize {
        let errors = self.of(&["pipeline"]).map(GoldenJob::read).flat_map(|job| job.check(devices));
        errors.map(|error| report("pipeline", devices.vae.precision(), &error)).sum()
    }
}

/// Prints an error; returns 1 where it is too large.
fn report(network: &str, precision: Precision, error: &GoldenError) -> usize {
    println!("golden {network} {precision} {}: {:.1e}, allowed {:.1e}", error.name, error.error, error.allowed);
    usize::from(!error.is_allowed())
}

/// The operation of a golden file; empty for other files.
fn op(path: &Path) -> Result<String> {
    let file = Safetensors::open_filtered(path, &|_| false).map_err(weight_error)?;
    let case: serde_json::Value =
        file.metadata("case").and_then(|case| serde_json::from_str(case).ok()).unwrap_or_default();
    Ok(case["op"].as_str().unwrap_or_default().to_string())
}

fn weight_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Weight(Box::new(error))
}
