//! Help, completions, the manual page, the version, doctor, quiet runs and diagnostics.
#![allow(clippy::unwrap_used)]

use crate::common::{Lab, outcome};
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
fn the_version_contains_commit_kernels_and_features() {
    let version = Lab::new().succeed("--version").text();
    assert!(version.starts_with(&format!("reseed {} (commit ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.contains(", kernels "), "{version}");
    assert!(version.ends_with(", features cluster cuda download ffmpeg serve)\n"), "{version}");
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

#[test]
fn the_help_starts_with_upscale_and_shows_examples() {
    let lab = Lab::new();
    let help = lab.succeed("--help").text();
    let after = |text: &str, heading: &str| text.split_once(heading).unwrap_or_else(|| panic!("{text}")).1.to_owned();
    assert!(after(&help, "Commands:\n").trim_start().starts_with("upscale "), "{help}");
    let is_example = |line: &&str| line.starts_with("  reseed ");
    let examples = |help: &str| after(help, "Examples:\n").lines().take_while(is_example).count();
    assert_eq!(examples(&help), 3, "{help}");
    assert!(help.contains("Exit codes: 0 done, 1 failed, 2 usage, 3 input"), "{help}");

    let upscale = lab.succeed("upscale --help").text();
    assert_eq!(upscale, lab.succeed("upscale -h").text());
    assert_eq!(examples(&upscale), 3, "{upscale}");
    let headings: Vec<&str> = upscale.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    let groups = ["Size:", "Model and result:", "Device:", "Memory:", "Video files:", "Batches:"];
    assert_eq!(headings[..3], ["Arguments:", "Options:", groups[0]], "{upscale}");
    assert_eq!(headings[2..8], groups, "{upscale}");
    for text in [help, upscale] {
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn files_without_a_command_suggest_upscale() {
    let lab = Lab::new();
    for (args, command) in [
        ("in.mp4 out.mp4", "reseed upscale in.mp4 out.mp4"),
        ("--scale 2 in.mp4 out.mp4", "reseed upscale --scale 2 in.mp4 out.mp4"),
    ] {
        let outcome = lab.run(args);
        assert_eq!(outcome.code, Some(2));
        assert_eq!(outcome.stderr, format!("reseed: no command given; did you mean `{command}`?\n"));
    }
    assert!(lab.run("upscal in.mp4 out.mp4").stderr.contains("a similar subcommand exists: 'upscale'"));
}

#[test]
fn doctor_prints_json_on_request() {
    let lab = Lab::new();
    let text = lab.succeed("doctor").text();
    let events = lab.succeed("doctor --json").events();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&event["event"], event["version"].as_str()), (&"doctor".into(), Some(env!("CARGO_PKG_VERSION"))));
    for key in ["device", "cpu", "tuning"] {
        assert!(text.contains(event[key].as_str().unwrap()), "{key}: {event} {text}");
    }
    assert!(event["gpus"].is_array() && event["cpu_levels"].as_array().unwrap().contains(&"reference".into()));
    assert!(event["ffmpeg"].is_string() != event["ffmpeg_error"].is_string(), "{event}");
}
