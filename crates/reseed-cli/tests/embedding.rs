//! A crate outside the workspace depends on `reseed` by path, compiles and upscales a clip.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

/// A complete program that embeds the library.
const PROGRAM: &str = r#"use reseed::{Event, Observer, Session, Settings, Target};

struct Frames(usize);

impl Observer for Frames {
    fn event(&mut self, event: &Event) {
        if let Event::Frames(count) = event {
            self.0 += count;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Session::builder().model("formula:tiny").device("cpu").open()?;
    let mut clip = reseed::media::sample();
    let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
    let sink = reseed::media::create("large.y4m".as_ref(), &settings.output(clip.info())?)?;
    let mut frames = Frames(0);
    session.upscale(&mut *clip, sink, &settings, &mut frames)?;
    println!("{} frames", frames.0);
    Ok(())
}
"#;

/// Workspace crates that cargo compiles again for the other workspace, at a low optimisation level to save time.
const WORKSPACE_CRATES: [&str; 5] = ["reseed", "reseed-cpu", "reseed-media", "reseed-model", "reseed-ops"];

#[test]
fn a_crate_outside_the_workspace_upscales_a_clip() {
    assert!(PROGRAM.lines().count() < 30);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let profiles: String =
        WORKSPACE_CRATES.map(|name| format!("[profile.release.package.{name}]\nopt-level = 1\n")).concat();
    let library = root.join("crates/reseed");
    let manifest = format!(
        "[package]\nname = \"embedding\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nreseed = {{ path = {library:?}, default-features = false }}\n\n\
         [profile.release]\ndebug = \"line-tables-only\"\nstrip = \"debuginfo\"\n\n{profiles}"
    );
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    // The same dependency versions: these are already downloaded, and compiled for the tests.
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), PROGRAM).unwrap();

    let target = Path::new(env!("CARGO_BIN_EXE_reseed")).ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "--offline", "--quiet"]).current_dir(folder.path());
    let output = cargo.env("CARGO_TARGET_DIR", target).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "9 frames\n");
    let large = reseed_media::open(&folder.path().join("large.y4m")).unwrap();
    assert_eq!((large.info().size.to_string(), large.info().frames), ("144x96".to_string(), Some(9)));
}
