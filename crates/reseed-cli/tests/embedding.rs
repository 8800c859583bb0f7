//! A crate outside the workspace depends on `reseed` by path and compiles.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

/// A complete program that embeds the library.
const PROGRAM: &str = include_str!("../../reseed/examples/upscale.rs");

#[test]
fn a_crate_outside_the_workspace_compiles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = temp_dir::TempDir::new().unwrap();
    let library = root.join("crates/reseed");
    // The profile of the workspace, so that procedural macros and build scripts are already compiled.
    let manifest = format!(
        "[package]\nname = \"embedding\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nreseed = {{ path = {library:?}, default-features = false }}\n\n\
         [profile.dev]\ndebug = false\ncodegen-units = 2\n"
    );
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    // The same dependency versions: these are already downloaded.
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), PROGRAM).unwrap();

    let target = Path::new(env!("CARGO_BIN_EXE_reseed")).ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--quiet"]).current_dir(folder.path());
    let output = cargo.env("CARGO_TARGET_DIR", target).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
