//! Stored inputs and outputs of the published networks, on a device.

#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with tests that use more of it; a file that is not whole should stop the check as it stops them"
)]
#[path = "../../../reseed-model/tests/common/golden/mod.rs"]
mod golden;

use std::fs;
use std::path::{Path, PathBuf};

use golden::{Golden, dit, run_all};
use reseed_model::Dit;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{Error, Ops, Result, relative_error};

/// Runs every case of the folders and tells how far its result is from the stored one; returns how many are too far.
pub fn run(ops: &dyn Ops, folders: &[PathBuf]) -> Result<usize> {
    let (precision, mut wrong, mut seen) = (ops.precision(), 0, 0);
    let mut tell = |network: &str, name: &str, (want, got): (&[f32], &[f32]), allowed: f64| {
        let error = relative_error(want, got);
        println!("golden {network} {precision} {name}: {error:.1e}, allowed {allowed:.1e}");
        // What is not a number is too far.
        wrong += usize::from(!(want.len() == got.len() && error <= allowed));
        seen += 1;
    };
    let files = cases(folders)?;
    let of = |ops: [&'static str; 2]| {
        files.iter().filter(move |(_, op)| ops.contains(&op.as_str())).map(|(path, _)| path.as_path())
    };
    run_all(ops, of(["encode", "decode"]).map(Golden::read).collect(), |golden, result| {
        tell("autoencoder", &golden.name, (&golden.output.values, &result), golden.allowed(precision));
    });
    for golden in of(["velocity", "sample"]).map(dit::Golden::read) {
        let result = golden.run(ops, &Dit::load(ops, &golden.source()).map_err(refused)?);
        tell("transformer", &golden.name, (&golden.output.values, &result), golden.allowed(precision));
    }
    if seen == 0 {
        println!("golden {precision}: there are no cases in {folders:?}");
        return Ok(1);
    }
    Ok(wrong)
}

/// Files in the order of their names, each with what it is a case of.
fn cases(folders: &[PathBuf]) -> Result<Vec<(PathBuf, String)>> {
    let mut paths = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(refused)?;
        paths.extend(entries.into_iter().map(|entry| entry.path()));
    }
    paths.retain(|path| path.extension().is_some_and(|end| end == "safetensors"));
    paths.sort();
    paths.into_iter().map(|path| op(&path).map(|op| (path, op))).collect()
}

/// What a file is a case of; nothing where it does not say.
fn op(path: &Path) -> Result<String> {
    let file = Safetensors::open(path).map_err(refused)?;
    let case: serde_json::Value =
        file.metadata("case").and_then(|case| serde_json::from_str(case).ok()).unwrap_or_default();
    Ok(case["op"].as_str().unwrap_or_default().to_string())
}

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Weight(Box::new(error))
}
