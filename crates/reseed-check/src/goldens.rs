//! Stored inputs and outputs of the published networks, and of whole jobs with them, on a device.

use std::fs;
use std::path::{Path, PathBuf};

use reseed_model::Dit;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{Device, Error, Precision, Result, relative_error};
use reseed_testing::golden::{VaeGolden, dit, run_all};
pub use reseed_testing::pipeline::golden_jobs::Devices;
use reseed_testing::pipeline::golden_jobs::{GoldenError, GoldenJob};

/// Stored cases, each with what it is a case of, in the order of their names.
pub struct Cases(Vec<(PathBuf, String)>);

impl Cases {
    /// Those in the folders; other files may lie there too.
    pub fn find(folders: &[PathBuf]) -> Result<Cases> {
        let mut paths = Vec::new();
        for folder in folders {
            let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
            paths.extend(entries.map_err(refused)?.into_iter().map(|entry| entry.path()));
        }
        paths.retain(|path| path.extension().is_some_and(|end| end == "safetensors"));
        paths.sort();
        let mut cases = paths.into_iter().map(|path| op(&path).map(|op| (path, op))).collect::<Result<Vec<_>>>()?;
        cases.retain(|(_, op)| ["encode", "decode", "velocity", "sample", "pipeline"].contains(&op.as_str()));
        Ok(Cases(cases))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, ops: &'static [&str]) -> impl Iterator<Item = &Path> {
        self.0.iter().filter(|(_, op)| ops.contains(&op.as_str())).map(|(path, _)| path.as_path())
    }

    /// Runs every case of a network and tells how far its result is from the stored one; returns how many are too far.
    pub fn networks(&self, ops: &dyn Device) -> Result<usize> {
        let (precision, mut wrong) = (ops.precision(), 0);
        let mut compare = |network: &str, name: &str, (want, got): (&[f32], &[f32]), allowed: f64| {
            assert_eq!(want.len(), got.len(), "{name}");
            let off = GoldenError { name: name.into(), error: relative_error(want, got), allowed };
            wrong += tell(network, precision, &off);
        };
        run_all(ops, self.of(&["encode", "decode"]).map(VaeGolden::read).collect(), |golden, result| {
            compare("autoencoder", &golden.name, (&golden.output.values, &result), golden.allowed(precision));
        });
        for golden in self.of(&["velocity", "sample"]).map(dit::DitGolden::read) {
            let result = golden.run(ops, &Dit::load(ops, &golden.source()).map_err(refused)?);
            compare("transformer", &golden.name, (&golden.output.values, &result), dit::allowed(precision));
        }
        Ok(wrong)
    }

    /// The same with whole jobs, for all that is stored of each.
    pub fn jobs(&self, devices: Devices) -> usize {
        let seen = self.of(&["pipeline"]).map(GoldenJob::read).flat_map(|job| job.check(devices));
        seen.map(|off| tell("pipeline", devices.vae.precision(), &off)).sum()
    }
}

/// One when it is too far off.
fn tell(what: &str, precision: Precision, off: &GoldenError) -> usize {
    println!("golden {what} {precision} {}: {:.1e}, allowed {:.1e}", off.name, off.error, off.allowed);
    usize::from(!off.is_allowed())
}

/// What a file is a case of; nothing where it does not say.
fn op(path: &Path) -> Result<String> {
    let file = Safetensors::open_filtered(path, &|_| false).map_err(refused)?;
    let case: serde_json::Value =
        file.metadata("case").and_then(|case| serde_json::from_str(case).ok()).unwrap_or_default();
    Ok(case["op"].as_str().unwrap_or_default().to_string())
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Weight(Box::new(error))
}
