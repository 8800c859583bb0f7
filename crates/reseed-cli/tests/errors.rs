//! Every mistake a user can make ends with one clear line, the right exit code and nothing left behind.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{Lab, Outcome, Tensor, outcome, picture};
use reseed_media::{Depth, Info, Kind, Rate, Size};
use reseed_model::Config;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const INPUT: i32 = 3;
const MODEL: i32 = 4;
const DEVICE: i32 = 6;

const ENCODE: &str = "vae encode in out --weights formula:tiny";
const DECODE: &str = "vae decode in out --weights formula:tiny";

/// A folder with a clip that `ENCODE` would accept.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.input("in", &Tensor::uniform(&[1, 3, 16, 24]));
    lab
}

/// Runs and checks that nothing was written.
fn fails(lab: &Lab, words: &str) -> Outcome {
    let before = lab.names();
    let outcome = lab.run(words);
    assert_eq!(lab.names(), before, "reseed {words} left something behind");
    assert_eq!(outcome.text(), "", "reseed {words} has results");
    outcome
}

/// The run ends with this code and one line that holds these words.
fn refused(lab: &Lab, words: &str, code: i32, needed: &[&str]) {
    one_line(&fails(lab, words), words, code, needed);
}

fn one_line(outcome: &Outcome, words: &str, code: i32, needed: &[&str]) {
    let line = &outcome.stderr;
    assert_eq!(outcome.code, Some(code), "reseed {words}: {line}");
    assert!(line.starts_with("reseed: ") && line.ends_with('\n') && line.lines().count() == 1, "{line}");
    for needed in needed {
        assert!(line.contains(needed), "reseed {words}: no `{needed}` in: {line}");
    }
}

/// The command line itself makes no sense.
fn misunderstood(lab: &Lab, words: &str, needed: &[&str]) {
    let outcome = fails(lab, words);
    assert_eq!(outcome.code, Some(USAGE), "reseed {words}: {}", outcome.stderr);
    for needed in needed {
        assert!(outcome.stderr.contains(needed), "reseed {words}: no `{needed}` in: {}", outcome.stderr);
    }
}

#[test]
fn a_missing_input() {
    refused(&Lab::new(), ENCODE, INPUT, &["in: "]);
    refused(&Lab::new(), "vae roundtrip in.png out.png --weights formula:tiny", INPUT, &["in.png: cannot read"]);
}

#[test]
fn an_input_that_is_not_safetensors() {
    let lab = lab();
    for text in ["", "{}", "a letter to a friend, longer than eight bytes"] {
        fs::write(lab.path("in"), text).unwrap();
        refused(&lab, ENCODE, INPUT, &["in: not a safetensors file"]);
    }
}

#[test]
fn a_truncated_input() {
    let lab = lab();
    let bytes = fs::read(lab.path("in")).unwrap();
    fs::write(lab.path("in"), &bytes[..bytes.len() - 100]).unwrap();
    refused(&lab, ENCODE, INPUT, &["in: `input`", "cut short"]);
}

#[test]
fn an_input_with_another_number_of_dimensions() {
    let lab = lab();
    lab.input("in", &Tensor::uniform(&[3, 16, 24]));
    refused(&lab, ENCODE, INPUT, &["in: `input` is [3, 16, 24]", "[frames, channels, height, width]"]);
}

#[test]
fn an_input_with_other_channels() {
    let lab = lab();
    refused(&lab, DECODE, INPUT, &["in: `input` has 3 channels", "16 or 32"]);
    lab.input("in", &Tensor::uniform(&[1, 4, 16, 24]));
    refused(&lab, ENCODE, INPUT, &["in: `input` has 4 channels", "have 3"]);
}

#[test]
fn an_input_with_nothing_in_it() {
    let lab = lab();
    for dims in [[0, 3, 16, 24], [1, 0, 16, 24], [1, 3, 0, 24], [1, 3, 16, 0]] {
        lab.input("in", &Tensor::uniform(&dims));
        refused(&lab, ENCODE, INPUT, &["in: `input` is", "nothing in it"]);
    }
    lab.write("in", &[], &[]);
    refused(&lab, ENCODE, INPUT, &["in: none of its 0 tensors"]);
}

#[test]
fn several_tensors_and_none_called_input() {
    let lab = lab();
    let clip = Tensor::uniform(&[1, 3, 16, 24]);
    lab.write("in", &[("a", &clip), ("b", &clip)], &[]);
    refused(&lab, ENCODE, INPUT, &["in: none of its 2 tensors is called `input`"]);
}

#[test]
fn missing_weights() {
    refused(&lab(), "vae encode in out --weights vae.safetensors", MODEL, &["vae.safetensors: "]);
    misunderstood(&lab(), "vae encode in out", &["--weights"]);
}

#[test]
fn weights_of_another_model() {
    let lab = lab();
    lab.write("dit.safetensors", &[("blocks.0.weight", &Tensor::uniform(&[4]))], &[]);
    refused(
        &lab,
        "vae encode in out --weights dit.safetensors",
        MODEL,
        &["dit.safetensors: `encoder.conv_in.weight` is missing", "ema_vae_fp16.safetensors"],
    );
}

/// The tiny model as a file, with tensors that `change` may change.
fn weights(lab: &Lab, change: impl Fn(&mut Vec<(String, Tensor)>)) {
    let zeros = |dims: &[usize]| Tensor { dims: dims.into(), values: vec![0.0; dims.iter().product()] };
    let tensor = |(name, shape): (String, reseed_ops::Shape)| (name, zeros(shape.dims()));
    let mut tensors: Vec<(String, Tensor)> = Config::tiny().tensors().into_iter().map(tensor).collect();
    change(&mut tensors);
    let tensors: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    lab.write("vae.safetensors", &tensors, &[("groups", "4")]);
}

#[test]
fn weights_with_a_tensor_too_many_or_of_another_shape() {
    let lab = lab();
    let command = "vae encode in out --weights vae.safetensors";
    weights(&lab, |tensors| tensors.push(("decoder.stray".into(), Tensor::uniform(&[2]))));
    refused(&lab, command, MODEL, &["vae.safetensors: 1 tensors are not part of this model, first `decoder.stray`"]);
    weights(&lab, |tensors| tensors[5].1 = Tensor::uniform(&[9]));
    refused(&lab, command, MODEL, &["vae.safetensors: `encoder.", "is [9], this model needs"]);
    // What the encoder does not use is checked all the same.
    weights(&lab, |tensors| drop(tensors.pop()));
    refused(&lab, command, MODEL, &["vae.safetensors: `decoder.conv_out.bias` is missing"]);
}

#[test]
fn truncated_weights() {
    let lab = lab();
    weights(&lab, |_| ());
    let bytes = fs::read(lab.path("vae.safetensors")).unwrap();
    fs::write(lab.path("vae.safetensors"), &bytes[..bytes.len() / 2]).unwrap();
    refused(&lab, "vae encode in out --weights vae.safetensors", MODEL, &["vae.safetensors: `", "cut short"]);
}

#[test]
fn a_formula_of_no_known_size() {
    refused(&lab(), "vae encode in out --weights formula:huge", MODEL, &["formula:huge", "tiny and full"]);
}

#[test]
fn tiles_too_small() {
    for tile in ["0x0", "4x4", "64x7"] {
        refused(&lab(), &format!("{ENCODE} --tile {tile}"), USAGE, &[&format!("--tile {tile}"), "at least 8 pixels"]);
    }
    misunderstood(&lab(), &format!("{ENCODE} --tile 64"), &["HEIGHTxWIDTH", "such as 512x512"]);
}

#[test]
fn overlap_as_large_as_the_tile() {
    for overlap in ["16x8", "8x16", "1000x1000"] {
        let command = format!("{ENCODE} --tile 16x16 --overlap {overlap}");
        refused(&lab(), &command, USAGE, &[&format!("overlap {overlap}"), "smaller than --tile 16x16"]);
    }
}

#[test]
fn overlap_without_tiles() {
    misunderstood(&lab(), &format!("{ENCODE} --overlap 8x8"), &["--tile"]);
}

#[test]
fn numbers_and_types_that_make_no_sense() {
    misunderstood(&lab(), &format!("{ENCODE} --slice 0"), &["--slice", "'0'"]);
    misunderstood(&lab(), &format!("{ENCODE} --threads 0"), &["--threads", "'0'"]);
    misunderstood(&lab(), &format!("{ENCODE} --dtype f64"), &["--dtype", "f32, tf32, f16 or bf16"]);
    let needs = "--dtype tf32 needs tensor cores; use --device cuda";
    refused(&lab(), &format!("{ENCODE} --dtype tf32"), USAGE, &[needs]);
}

#[test]
fn a_device_this_machine_does_not_have() {
    // With no driver the line says so and names the cpu; with one it counts the cards.
    refused(&lab(), &format!("{ENCODE} --device cuda:99"), DEVICE, &["cuda"]);
    refused(&lab(), &format!("{ENCODE} --device tpu"), USAGE, &["--device tpu", "cpu, cuda and cuda:N"]);
}

#[test]
fn a_level_this_cpu_does_not_have() {
    let lab = lab();
    let mut command = lab.command(ENCODE);
    command.env("RESEED_CPU", "nonsense");
    one_line(&outcome(command), ENCODE, USAGE, &["RESEED_CPU=nonsense", "reference"]);
    assert_eq!(lab.names(), ["in"]);
}

#[test]
fn a_check_that_is_neither_on_nor_off() {
    let lab = lab();
    let mut command = lab.command(ENCODE);
    command.env("RESEED_CHECK", "perhaps");
    one_line(&outcome(command), ENCODE, USAGE, &["RESEED_CHECK=perhaps"]);
}

#[test]
fn an_output_where_there_is_no_folder() {
    let lab = lab();
    let needed = ["the folder nowhere does not exist", "create it"];
    refused(&lab, "vae encode in nowhere/out --weights formula:tiny", FAILED, &needed);
    lab.film("in.y4m", SIZE, 1);
    refused(&lab, "vae roundtrip in.y4m nowhere/out.y4m --weights formula:tiny", FAILED, &needed);
}

#[test]
fn an_output_that_is_the_input() {
    let lab = lab();
    refused(&lab, "vae encode in in --weights formula:tiny", USAGE, &["in is both input and output"]);
    refused(&lab, "vae decode in ./in --weights formula:tiny", USAGE, &["in is both input and output"]);
    lab.film("in.y4m", SIZE, 1);
    let before = fs::read(lab.path("in.y4m")).unwrap();
    refused(&lab, "vae roundtrip in.y4m in.y4m --weights formula:tiny", USAGE, &["in.y4m is both input and output"]);
    assert!(fs::read(lab.path("in.y4m")).unwrap() == before);
}

#[test]
fn an_output_that_is_a_folder() {
    let lab = lab();
    fs::create_dir(lab.path("out")).unwrap();
    refused(&lab, ENCODE, FAILED, &["out: is a folder; give the name of a file"]);
    refused(&lab, "vae encode in / --weights formula:tiny", FAILED, &["/: is a folder"]);
    lab.film("in.y4m", SIZE, 1);
    fs::create_dir(lab.path("out.y4m")).unwrap();
    refused(&lab, "vae roundtrip in.y4m out.y4m --weights formula:tiny", FAILED, &["out.y4m: is a folder"]);
}

const SIZE: Size = Size { h: 16, w: 24 };

#[test]
fn a_text_that_calls_itself_a_picture() {
    let lab = lab();
    fs::write(lab.path("letter.png"), "Dear friend,").unwrap();
    let command = "vae roundtrip letter.png out.png --weights formula:tiny";
    refused(&lab, command, INPUT, &["letter.png", "its content is not PNG"]);
}

#[test]
fn a_folder_without_pictures() {
    let lab = lab();
    fs::create_dir(lab.path("album")).unwrap();
    refused(&lab, "vae roundtrip album out --weights formula:tiny", INPUT, &["album: no images in this folder"]);
}

#[test]
fn a_folder_of_pictures_that_differ_in_size() {
    let lab = lab();
    lab.film("album", SIZE, 6);
    let (size, kind) = (Size { h: 16, w: 25 }, Kind::Image);
    let info = Info {
        size,
        frames: None,
        rate: Rate::default(),
        depth: Depth::Eight,
        alpha: false,
        kind,
        names: vec![],
        icc: None,
    };
    let mut sink = reseed_media::create(&lab.path("album/99.png"), &info).unwrap();
    sink.write(&picture(size, 0)).unwrap();
    sink.finish().unwrap();
    let needed = ["9.png is 24x16", "99.png is 25x16", "must have the same size"];
    refused(&lab, "vae roundtrip album out --weights formula:tiny", INPUT, &needed);
}

#[test]
fn a_video_without_frames_or_with_half_a_frame() {
    let lab = lab();
    lab.film("in.y4m", SIZE, 6);
    let bytes = fs::read(lab.path("in.y4m")).unwrap();
    let command = "vae roundtrip in.y4m out.y4m --weights formula:tiny";
    fs::write(lab.path("in.y4m"), &bytes[..bytes.len() - 10]).unwrap();
    refused(&lab, command, INPUT, &["in.y4m: ends in the middle of frame 6"]);
    let header = 1 + bytes.iter().position(|&b| b == b'\n').unwrap();
    fs::write(lab.path("in.y4m"), &bytes[..header]).unwrap();
    refused(&lab, command, INPUT, &["in.y4m: ", "no frames"]);
}

#[test]
fn a_round_trip_to_a_name_of_no_known_kind() {
    let lab = lab();
    lab.film("in.y4m", SIZE, 1);
    lab.film("in.png", SIZE, 1);
    lab.film("album", SIZE, 1);
    let run = |from, to| format!("vae roundtrip {from} {to} --weights formula:tiny");
    refused(&lab, &run("in.y4m", "out.avi"), USAGE, &["out.avi", ".y4m"]);
    refused(&lab, &run("in.png", "out.gif"), USAGE, &["out.gif", ".png"]);
    refused(&lab, &run("album", "out.png"), USAGE, &["out.png", "the name of a folder"]);
}

#[test]
fn an_older_result_survives_a_failed_run() {
    let lab = lab();
    fs::write(lab.path("out"), "older").unwrap();
    refused(&lab, &format!("{ENCODE} --tile 0x0"), USAGE, &["--tile"]);
    assert_eq!(fs::read(lab.path("out")).unwrap(), b"older");
}

#[test]
fn no_command_at_all() {
    for words in ["", "vae", "estimate", "nonsense"] {
        misunderstood(&lab(), words, &["Usage: reseed"]);
    }
}
