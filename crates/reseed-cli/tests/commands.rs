//! Completions, the manual page, the version, quiet runs and diagnostics.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Lab, outcome};
use reseed_media::Size;

const SMALL: Size = Size { h: 16, w: 16 };

#[test]
fn shells_complete_commands_and_options() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = lab.succeed(&format!("completions {shell}")).text();
        assert!(script.contains("upscale") && script.contains("max-vram"), "{shell}: {script}");
    }
    assert_eq!(lab.run("completions tcsh").code, Some(2));
}

#[test]
fn the_manual_page_names_every_command() {
    let page = Lab::new().succeed("man").text();
    assert!(page.starts_with(".ie") && page.contains(".TH"), "{}", &page[..200]);
    for word in ["reseed\\-upscale", "reseed\\-estimate", "\\-\\-max\\-vram", "\\-\\-quiet"] {
        assert!(page.contains(word), "no {word} in the manual page");
    }
}

#[test]
fn the_version_names_commit_and_kernels() {
    let version = Lab::new().succeed("--version").text();
    assert!(version.starts_with(&format!("reseed {} (commit ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.contains(", kernels "), "{version}");
}

#[test]
fn a_quiet_run_prints_errors_alone() {
    let lab = Lab::new();
    lab.film("in.png", SMALL, 1);
    let said = lab.succeed("image in.png out.png --scale 2 --quiet");
    assert_eq!((said.text(), said.stderr), (String::new(), String::new()));
    let refused = lab.run("--quiet image in.png out.png --scale 2");
    assert_eq!(refused.code, Some(2));
    assert_eq!(refused.stderr, "reseed: out.png: already exists; --overwrite replaces it\n");
    let events = lab.succeed("image in.png out.png --scale 2 --overwrite --quiet --json").events();
    assert_eq!(events.last().unwrap()["event"], "done");
}

#[test]
fn diagnostics_go_to_stderr_on_request() {
    let lab = Lab::new();
    lab.film("in.png", SMALL, 1);
    let mut command = lab.command("image in.png out.png --scale 2 --model formula:tiny");
    command.env("RESEED_LOG", "reseed=debug");
    let said = outcome(command);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("DEBUG") && said.stderr.contains("planned"), "{}", said.stderr);
}
