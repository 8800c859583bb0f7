//! User errors of `reseed vae` end with one error line, the documented exit code and no leftover files.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Lab, Outcome, Tensor, outcome, smooth_frame};
use reseed_media::{Depth, Info, Kind, Rate, Size};
use reseed_model::Config;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const INPUT: i32 = 3;
const MODEL: i32 = 4;
const DEVICE: i32 = 6;

const ENCODE: &str = "vae encode in out --weights formula:tiny";
const DECODE: &str = "vae decode in out --weights formula:tiny";

/// A folder with a clip that `ENCODE` accepts.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.input("in", &Tensor::uniform(&[1, 3, 16, 24]));
    lab
}

/// Runs and asserts that no file and no standard output was written.
fn fails(lab: &Lab, args: &str) -> Outcome {
    let before = lab.names();
    let outcome = lab.run(args);
    assert_eq!(lab.names(), before, "reseed {args} left files");
    assert_eq!(outcome.text(), "", "reseed {args} wrote to standard output");
    outcome
}

/// Asserts that the run fails with this exit code and one error line that contains all of `needed`.
fn refused(lab: &Lab, args: &str, code: i32, needed: &[&str]) {
    one_line(&fails(lab, args), args, code, needed);
}

fn one_line(outcome: &Outcome, args: &str, code: i32, needed: &[&str]) {
    let line = &outcome.stderr;
    assert_eq!(outcome.code, Some(code), "reseed {args}: {line}");
    assert!(line.starts_with("reseed: ") && line.ends_with('\n') && line.lines().count() == 1, "{line}");
    for needed in needed {
        assert!(line.contains(needed), "reseed {args}: no `{needed}` in: {line}");
    }
}

/// Asserts that the command line is rejected as invalid, with an error text that contains all of `needed`.
fn usage_error(lab: &Lab, args: &str, needed: &[&str]) {
    let outcome = fails(lab, args);
    assert_eq!(outcome.code, Some(USAGE), "reseed {args}: {}", outcome.stderr);
    for needed in needed {
        assert!(outcome.stderr.contains(needed), "reseed {args}: no `{needed}` in: {}", outcome.stderr);
    }
}

#[test]
fn a_missing_input_is_refused() {
    refused(&Lab::new(), ENCODE, INPUT, &["in: "]);
    refused(&Lab::new(), "vae roundtrip in.png out.png --weights formula:tiny", INPUT, &["in.png: cannot read"]);
}

#[test]
fn an_input_that_is_not_safetensors_is_refused() {
    let lab = lab();
    for text in ["", "{}", "a letter to a friend, longer than eight bytes"] {
        fs::write(lab.path("in"), text).unwrap();
        refused(&lab, ENCODE, INPUT, &["in: not a safetensors file"]);
    }
}

#[test]
fn a_truncated_input_is_refused() {
    let lab = lab();
    let bytes = fs::read(lab.path("in")).unwrap();
    fs::write(lab.path("in"), &bytes[..bytes.len() - 100]).unwrap();
    refused(&lab, ENCODE, INPUT, &["in: `input`", "cut short"]);
}

#[test]
fn an_input_without_four_dimensions_is_refused() {
    let lab = lab();
    lab.input("in", &Tensor::uniform(&[3, 16, 24]));
    refused(&lab, ENCODE, INPUT, &["in: `input` is [3, 16, 24]", "[frames, channels, height, width]"]);
}

#[test]
fn an_input_with_a_wrong_channel_count_is_refused() {
    let lab = lab();
    refused(&lab, DECODE, INPUT, &["in: `input` has 3 channels", "16 or 32"]);
    lab.input("in", &Tensor::uniform(&[1, 4, 16, 24]));
    refused(&lab, ENCODE, INPUT, &["in: `input` has 4 channels", "have 3"]);
}

#[test]
fn an_empty_input_is_refused() {
    let lab = lab();
    for dims in [[0, 3, 16, 24], [1, 0, 16, 24], [1, 3, 0, 24], [1, 3, 16, 0]] {
        lab.input("in", &Tensor::uniform(&dims));
        refused(&lab, ENCODE, INPUT, &["in: `input` is", "nothing in it"]);
    }
    lab.write("in", &[], &[]);
    refused(&lab, ENCODE, INPUT, &["in: none of its 0 tensors"]);
}

#[test]
fn several_tensors_without_one_named_input_are_refused() {
    let lab = lab();
    let clip = Tensor::uniform(&[1, 3, 16, 24]);
    lab.write("in", &[("a", &clip), ("b", &clip)], &[]);
    refused(&lab, ENCODE, INPUT, &["in: none of its 2 tensors is called `input`"]);
}

#[test]
fn missing_weights_are_refused() {
    refused(&lab(), "vae encode in out --weights vae.safetensors", MODEL, &["vae.safetensors: "]);
    usage_error(&lab(), "vae encode in out", &["--weights"]);
}

#[test]
fn weights_of_another_model_are_refused() {
    let lab = lab();
    lab.write("dit.safetensors", &[("blocks.0.weight", &Tensor::uniform(&[4]))], &[]);
    refused(
        &lab,
        "vae encode in out --weights dit.safetensors",
        MODEL,
        &["dit.safetensors: `encoder.conv_in.weight` is missing", "ema_vae_fp16.safetensors"],
    );
}

/// Writes the tiny model to a file, after `change` has modified its tensors.
fn weights(lab: &Lab, change: impl Fn(&mut Vec<(String, Tensor)>)) {
    let zeros = |dims: &[usize]| Tensor { dims: dims.into(), values: vec![0.0; dims.iter().product()] };
    let tensor = |(name, shape): (String, reseed_ops::Shape)| (name, zeros(shape.dims()));
    let mut tensors: Vec<(String, Tensor)> = Config::tiny().tensors().into_iter().map(tensor).collect();
    change(&mut tensors);
    let tensors: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    lab.write("vae.safetensors", &tensors, &[("groups", "4")]);
}

#[test]
fn weights_with_extra_missing_or_misshapen_tensors_are_refused() {
    let lab = lab();
    let command = "vae encode in out --weights vae.safetensors";
    weights(&lab, |tensors| tensors.push(("decoder.stray".into(), Tensor::uniform(&[2]))));
    refused(&lab, command, MODEL, &["vae.safetensors: 1 tensors are not part of this model, first `decoder.stray`"]);
    weights(&lab, |tensors| tensors[5].1 = Tensor::uniform(&[9]));
    refused(&lab, command, MODEL, &["vae.safetensors: `encoder.", "is [9], this model needs"]);
    // Tensors of the decoder are checked too.
    weights(&lab, |tensors| drop(tensors.pop()));
    refused(&lab, command, MODEL, &["vae.safetensors: `decoder.conv_out.bias` is missing"]);
}

#[test]
fn truncated_weights_are_refused() {
    let lab = lab();
    weights(&lab, |_| ());
    let bytes = fs::read(lab.path("vae.safetensors")).unwrap();
    fs::write(lab.path("vae.safetensors"), &bytes[..bytes.len() / 2]).unwrap();
    refused(&lab, "vae encode in out --weights vae.safetensors", MODEL, &["vae.safetensors: `", "cut short"]);
}

#[test]
fn an_unknown_formula_size_is_refused() {
    refused(&lab(), "vae encode in out --weights formula:huge", MODEL, &["formula:huge", "tiny and full"]);
}

#[test]
fn tiles_under_eight_pixels_are_refused() {
    for tile in ["0x0", "4x4", "64x7"] {
        refused(&lab(), &format!("{ENCODE} --tile {tile}"), USAGE, &[&format!("--tile {tile}"), "at least 8 pixels"]);
    }
    usage_error(&lab(), &format!("{ENCODE} --tile 64"), &["HEIGHTxWIDTH", "such as 512x512"]);
}

#[test]
fn an_overlap_as_large_as_the_tile_is_refused() {
    for overlap in ["16x8", "8x16", "1000x1000"] {
        let command = format!("{ENCODE} --tile 16x16 --overlap {overlap}");
        refused(&lab(), &command, USAGE, &[&format!("overlap {overlap}"), "smaller than --tile 16x16"]);
    }
}

#[test]
fn an_overlap_without_tiles_is_refused() {
    usage_error(&lab(), &format!("{ENCODE} --overlap 8x8"), &["--tile"]);
}

#[test]
fn invalid_numbers_and_dtypes_are_refused() {
    usage_error(&lab(), &format!("{ENCODE} --slice 0"), &["--slice", "'0'"]);
    usage_error(&lab(), &format!("{ENCODE} --threads 0"), &["--threads", "'0'"]);
    usage_error(&lab(), &format!("{ENCODE} --dtype f64"), &["--dtype", "f32, tf32, f16 or bf16"]);
    let needs = "--dtype tf32 needs tensor cores; use --device cuda";
    refused(&lab(), &format!("{ENCODE} --dtype tf32"), USAGE, &[needs]);
}

#[test]
fn an_unavailable_or_unknown_device_is_refused() {
    // The text depends on the machine: driver not found, or the number of GPUs.
    refused(&lab(), &format!("{ENCODE} --device cuda:99"), DEVICE, &["cuda"]);
    refused(&lab(), &format!("{ENCODE} --device tpu"), USAGE, &["--device tpu", "cpu, cuda and cuda:N"]);
}

#[test]
fn an_unknown_cpu_level_is_refused() {
    let lab = lab();
    let mut command = lab.command(ENCODE);
    command.env("RESEED_CPU", "nonsense");
    one_line(&outcome(command), ENCODE, USAGE, &["RESEED_CPU=nonsense", "reference"]);
    assert_eq!(lab.names(), ["in"]);
}

#[test]
fn an_invalid_reseed_check_value_is_refused() {
    let lab = lab();
    let mut command = lab.command(ENCODE);
    command.env("RESEED_CHECK", "perhaps");
    one_line(&outcome(command), ENCODE, USAGE, &["RESEED_CHECK=perhaps"]);
}

#[test]
fn an_output_in_a_missing_folder_is_refused() {
    let lab = lab();
    let needed = ["the folder nowhere does not exist", "create it"];
    refused(&lab, "vae encode in nowhere/out --weights formula:tiny", FAILED, &needed);
    lab.write_frames("in.y4m", SIZE, 1);
    refused(&lab, "vae roundtrip in.y4m nowhere/out.y4m --weights formula:tiny", FAILED, &needed);
}

#[test]
fn an_output_that_is_the_input_is_refused() {
    let lab = lab();
    refused(&lab, "vae encode in in --weights formula:tiny", USAGE, &["in is both input and output"]);
    refused(&lab, "vae decode in ./in --weights formula:tiny", USAGE, &["in is both input and output"]);
    lab.write_frames("in.y4m", SIZE, 1);
    let before = fs::read(lab.path("in.y4m")).unwrap();
    refused(&lab, "vae roundtrip in.y4m in.y4m --weights formula:tiny", USAGE, &["in.y4m is both input and output"]);
    assert!(fs::read(lab.path("in.y4m")).unwrap() == before);
}

#[test]
fn an_output_that_is_a_folder_is_refused() {
    let lab = lab();
    fs::create_dir(lab.path("out")).unwrap();
    refused(&lab, ENCODE, FAILED, &["out: is a folder; give the name of a file"]);
    refused(&lab, "vae encode in / --weights formula:tiny", FAILED, &["/: is a folder"]);
    lab.write_frames("in.y4m", SIZE, 1);
    fs::create_dir(lab.path("out.y4m")).unwrap();
    refused(&lab, "vae roundtrip in.y4m out.y4m --weights formula:tiny", FAILED, &["out.y4m: is a folder"]);
}

const SIZE: Size = Size { h: 16, w: 24 };

#[test]
fn a_text_file_named_png_is_refused() {
    let lab = lab();
    fs::write(lab.path("letter.png"), "Dear friend,").unwrap();
    let command = "vae roundtrip letter.png out.png --weights formula:tiny";
    refused(&lab, command, INPUT, &["letter.png", "its content is not PNG"]);
}

#[test]
fn a_folder_without_images_is_refused() {
    let lab = lab();
    fs::create_dir(lab.path("album")).unwrap();
    refused(&lab, "vae roundtrip album out --weights formula:tiny", INPUT, &["album: no images in this folder"]);
}

#[test]
fn a_folder_of_images_with_different_sizes_is_refused() {
    let lab = lab();
    lab.write_frames("album", SIZE, 6);
    let (size, kind) = (Size { h: 16, w: 25 }, Kind::Image);
    let info = Info {
        size,
        frames: None,
        rate: Rate::default(),
        depth: Depth::Eight,
        alpha: false,
        kind,
        names: vec![],
        tags: reseed_media::ImageTags::default(),
    };
    let mut sink = reseed_media::create(&lab.path("album/99.png"), &info).unwrap();
    sink.write(&smooth_frame(size, 0)).unwrap();
    sink.finish().unwrap();
    let needed = ["9.png is 24x16", "99.png is 25x16", "must have the same size"];
    refused(&lab, "vae roundtrip album out --weights formula:tiny", INPUT, &needed);
}

#[test]
fn a_video_without_frames_or_with_a_partial_frame_is_refused() {
    let lab = lab();
    lab.write_frames("in.y4m", SIZE, 6);
    let bytes = fs::read(lab.path("in.y4m")).unwrap();
    let command = "vae roundtrip in.y4m out.y4m --weights formula:tiny";
    fs::write(lab.path("in.y4m"), &bytes[..bytes.len() - 10]).unwrap();
    refused(&lab, command, INPUT, &["in.y4m: ends in the middle of frame 6"]);
    let header = 1 + bytes.iter().position(|&b| b == b'\n').unwrap();
    fs::write(lab.path("in.y4m"), &bytes[..header]).unwrap();
    refused(&lab, command, INPUT, &["in.y4m: ", "no frames"]);
}

#[test]
fn a_roundtrip_output_of_an_unsupported_kind_is_refused() {
    let lab = lab();
    lab.write_frames("in.y4m", SIZE, 1);
    lab.write_frames("in.png", SIZE, 1);
    lab.write_frames("album", SIZE, 1);
    let run = |from, to| format!("vae roundtrip {from} {to} --weights formula:tiny");
    refused(&lab, &run("in.y4m", "out.avi"), USAGE, &["out.avi", ".y4m"]);
    refused(&lab, &run("in.png", "out.gif"), USAGE, &["out.gif", ".png"]);
    refused(&lab, &run("album", "out.png"), USAGE, &["out.png", "the name of a folder"]);
}

#[test]
fn a_failed_run_keeps_the_existing_output() {
    let lab = lab();
    fs::write(lab.path("out"), "older").unwrap();
    refused(&lab, &format!("{ENCODE} --tile 0x0"), USAGE, &["--tile"]);
    assert_eq!(fs::read(lab.path("out")).unwrap(), b"older");
}

#[test]
fn a_missing_or_unknown_command_prints_the_usage() {
    for args in ["", "vae", "estimate", "nonsense"] {
        usage_error(&lab(), args, &["Usage: reseed"]);
    }
}
