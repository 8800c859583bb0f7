//! Crates know only those below them, and their sources keep to it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate of the workspace and the crates that it may depend on, build scripts included.
const ARROWS: &[(&str, &[&str])] = &[
    ("reseed", &["reseed-cpu", "reseed-cuda", "reseed-media", "reseed-model", "reseed-ops"]),
    ("reseed-check", &["reseed-cpu", "reseed-cuda", "reseed-model", "reseed-ops", "reseed-testing"]),
    ("reseed-cli", &["reseed", "reseed-cpu", "reseed-cuda", "reseed-media", "reseed-model", "reseed-ops"]),
    ("reseed-cpu", &["reseed-ops"]),
    ("reseed-cuda", &["reseed-ops"]),
    ("reseed-media", &[]),
    ("reseed-model", &["reseed-ops"]),
    ("reseed-ops", &[]),
    ("reseed-testing", &["reseed", "reseed-cpu", "reseed-media", "reseed-model", "reseed-ops"]),
];

/// Tests may also use the reference device and the test support.
const TESTS: &[&str] = &["reseed-cpu", "reseed-testing"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn arrows_point_downwards() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: Vec<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert!(["reseed-cli", "reseed-media", "reseed-model", "reseed-ops"].iter().all(|name| names.contains(name)));
    for (package, name) in packages.iter().zip(&names) {
        let allowed = ARROWS.iter().find(|(known, _)| known == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name} is new: say in ARROWS what it may know"));
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies {
            let below = dependency["name"].as_str().unwrap();
            let in_tests = dependency["kind"] == "dev" && TESTS.contains(&below);
            assert!(!names.contains(&below) || allowed.contains(&below) || in_tests, "{name} must not know {below}");
        }
    }
}

/// Every line of code below a folder, with its place: no comments, no unit tests.
fn code(folder: &Path) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            lines.extend(code(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let numbered = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
            let kept = numbered.filter(|(_, line)| !line.trim_start().starts_with("//"));
            lines.extend(kept.map(|(i, line)| (format!("{}:{}", path.display(), i + 1), line.to_string())));
        }
    }
    lines
}

fn assert_silent(krate: &str, about: &[&str]) {
    let lines = code(&root().join("crates").join(krate).join("src"));
    assert!(lines.len() > 100, "{krate} has sources");
    for (place, line) in lines {
        let line = line.to_lowercase();
        assert!(!about.iter().any(|word| line.contains(word)), "{place}: {krate} must not know of {about:?}: {line}");
    }
}

#[test]
fn the_model_names_no_device() {
    assert_silent("reseed-model", &["cuda", "cpuops"]);
}

#[test]
fn media_knows_no_tensors() {
    assert_silent("reseed-media", &["tensor", "reseed_ops", "reseed_model", "reseed_cuda", "reseed"]);
}

#[test]
fn the_pipeline_neither_parses_arguments_nor_prints() {
    assert_silent("reseed", &["clap", "println!", "print!"]);
}
