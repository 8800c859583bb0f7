//! Completions, the manual page, the version, quiet runs and diagnostics.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Lab, outcome};
use reseed_media::Size;

const SMALL: Size = Size { h: 16, w: 16 };

#[test]
fn completions_of_every_shell_contain_commands_and_options() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = lab.succeed(&format!("completions {shell}")).text();
        assert!(script.contains("upscale") && script.contains("max-vram"), "{shell}: {script}");
    }
    assert_eq!(lab.run("completions tcsh").code, Some(2));
}

#[test]
fn the_manual_page_contains_commands_and_options() {
    let page = Lab::new().succeed("man").text();
    assert!(page.starts_with(".ie") && page.contains(".TH"), "{}", &page[..200]);
    for word in ["reseed\\-upscale", "reseed\\-estimate", "\\-\\-max\\-vram", "\\-\\-quiet"] {
        assert!(page.contains(word), "no {word} in the manual page");
    }
}

#[test]
fn the_version_contains_commit_and_kernels() {
    let version = Lab::new().succeed("--version").text();
    assert!(version.starts_with(&format!("reseed {} (commit ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.contains(", kernels "), "{version}");
}

#[test]
fn a_quiet_run_prints_only_errors() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    let outcome = lab.succeed("image in.png out.png --scale 2 --quiet");
    assert_eq!((outcome.text(), outcome.stderr), (String::new(), String::new()));
    let refused = lab.run("--quiet image in.png out.png --scale 2");
    assert_eq!(refused.code, Some(2));
    assert_eq!(refused.stderr, "reseed: out.png: already exists; --overwrite replaces it\n");
    let events = lab.succeed("image in.png out.png --scale 2 --overwrite --quiet --json").events();
    assert_eq!(events.last().unwrap()["event"], "done");
}

#[test]
fn reseed_log_enables_diagnostics_on_stderr() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    let mut command = lab.command("image in.png out.png --scale 2 --model formula:tiny");
    command.env("RESEED_LOG", "reseed=debug");
    let outcome = outcome(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("DEBUG") && outcome.stderr.contains("planned"), "{}", outcome.stderr);
}
