//! The configuration file, presets, and what overrides them.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Lab, slashes};
use reseed_media::Size;

const UPSCALE: &str = "upscale in.y4m out.y4m --dry-run --model formula:tiny";

/// A folder with an input and a configuration file.
fn configured(config: &str) -> Lab {
    let lab = Lab::new();
    lab.write_frames("in.y4m", Size { h: 18, w: 26 }, 7);
    fs::create_dir_all(lab.path(".config/reseed")).unwrap();
    fs::write(lab.path(".config/reseed/reseed.toml"), config).unwrap();
    lab
}

/// The sizes that a dry run prints.
fn sizes(lab: &Lab, args: &str) -> String {
    lab.succeed(&format!("{UPSCALE} {args}")).text().lines().next().unwrap().to_owned()
}

#[test]
fn options_override_presets_and_presets_override_the_file() {
    let lab = configured("scale = 3\nbatch_size = 9\n[presets.mine]\nresolution = 36\n");
    assert_eq!(sizes(&lab, ""), "in.y4m: 26x18 -> 78x54, 7 frames");
    assert_eq!(sizes(&lab, "--preset mine"), "in.y4m: 26x18 -> 52x36, 7 frames");
    assert_eq!(sizes(&lab, "--preset=4x"), "in.y4m: 26x18 -> 104x72, 7 frames");
    assert_eq!(sizes(&lab, "--preset mine --scale 1.5"), "in.y4m: 26x18 -> 39x27, 7 frames");
    assert_eq!(sizes(&lab, "--size 30x20"), "in.y4m: 26x18 -> 30x20, 7 frames");
    let plan = lab.succeed(UPSCALE).text();
    assert!(plan.contains("batches     1 of 9 frames"), "{plan}");
    let plan = lab.succeed(&format!("{UPSCALE} --batch-size 5")).text();
    assert!(plan.contains("batches     2 of 5 frames"), "{plan}");
    let estimate = lab.succeed("estimate upscale in.y4m --model formula:tiny").text();
    assert_eq!(estimate.lines().next(), Some("in.y4m: 26x18 -> 78x54, 7 frames"));
}

#[test]
fn an_image_takes_the_settings_that_it_has() {
    let lab = configured("batch-size = 9\nscale = 3\nno-audio = true\n");
    lab.write_frames("in.png", Size { h: 18, w: 26 }, 1);
    let text = lab.succeed("image in.png out.png --dry-run --model formula:tiny").text();
    assert_eq!(text.lines().next(), Some("in.png: 26x18 -> 78x54, 1 frame"));
}

#[test]
fn mistakes_in_the_file_are_one_line() {
    let file = ".config/reseed/reseed.toml";
    for (config, args, message) in [
        ("scal = 3\n", "", "no setting is called `scal`; `reseed upscale --help` lists all"),
        ("preset = \"4k\"\n", "", "no setting is called `preset`; `reseed upscale --help` lists all"),
        ("scale = \"big\"\n", "", "invalid value 'big' for '--scale <X>': invalid float literal"),
        ("no-audio = 3\n", "", "unexpected value '3' for '--no-audio' found; no more were expected"),
        ("scale = \n", "", "line 1: "),
        ("", "--preset 8k", "8k: no such preset; the presets are "),
        ("[presets.a]\ncrf = \"x\"\n", "--preset a", "preset `a`: invalid value 'x' for '--crf <N>'"),
    ] {
        let lab = configured(config);
        let outcome = lab.run(&format!("{UPSCALE} {args}"));
        assert_eq!(outcome.code, Some(2), "{config}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{config}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{config}: {}", outcome.stderr);
        assert_eq!(args.is_empty(), slashes(&outcome.stderr).contains(file), "{config}: {}", outcome.stderr);
    }
    let lab = configured("scal = 3\n");
    let outcome = lab.run(&format!("{UPSCALE} --json"));
    assert_eq!(outcome.events()[0]["kind"], "usage");
    // Other commands do not read it.
    lab.succeed("doctor");
}

#[test]
fn config_prints_what_is_in_force() {
    let lab = configured("scale = 3\ndevice = \"cpu\"\n");
    let text = lab.succeed("config --preset 1080p").text();
    for part in ["reseed.toml", "device = cpu    from ", "resolution = 1080p    from preset `1080p`", "archive"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("scale = 3"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&lab.succeed("config --json").text()).unwrap();
    assert_eq!(value["file"]["exists"], true);
    assert_eq!(value["settings"].as_array().unwrap().len(), 2);
    let empty = Lab::new();
    assert!(empty.succeed("config").text().contains("(does not exist)"));
    let mut missing = empty.command("config");
    missing.env("RESEED_CONFIG", empty.path("none.toml"));
    assert_eq!(crate::common::outcome(missing).code, Some(2));
}
