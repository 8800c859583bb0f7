//! `reseed vae encode` and `reseed vae decode` read and write tensors.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Lab, Tensor, outcome};
use reseed_model::Config;
use reseed_model::weights::formula;
use reseed_ops::relative_error;
use serde_json::Value;

/// Relative error allowed against a golden result: f32 sums in another order.
const TOLERANCE: f64 = 1e-5;

fn direction(golden: &str) -> &str {
    golden.split('_').nth(1).unwrap()
}

fn assert_golden(name: &str) {
    let lab = Lab::new();
    let (options, want) = lab.golden(name);
    let got = lab.tensor_of(&format!("vae {} in out {options} --dtype f32", direction(name)));
    assert_eq!(got.dims, want.dims, "{name}");
    let error = relative_error(&want.values, &got.values);
    assert!(error < TOLERANCE, "{name}: {error:e}");
}

#[test]
fn images_and_clips_match_the_golden_results() {
    for clip in ["image", "5", "17"] {
        assert_golden(&format!("tiny_encode_{clip}"));
        assert_golden(&format!("tiny_decode_{clip}"));
    }
}

#[test]
fn tiled_results_match_the_golden_results() {
    for name in ["encode_tiled", "decode_tiled", "decode_tiled_no_overlap", "decode_tiled_uneven"] {
        assert_golden(&format!("tiny_{name}"));
    }
}

#[test]
fn the_slice_length_changes_only_rounding() {
    for name in ["tiny_encode_17", "tiny_decode_17", "tiny_decode_tiled_uneven"] {
        let lab = Lab::new();
        let (options, _) = lab.golden(name);
        let command = format!("vae {} in out {options} --dtype f32", direction(name));
        let run = |slice| lab.tensor_of(&format!("{command} --slice {slice}"));
        let one = run(1);
        for slice in [2, 3, 1000] {
            let other = run(slice);
            assert_eq!(other.dims, one.dims);
            let error = relative_error(&one.values, &other.values);
            assert!(error < 1e-6, "{name} --slice {slice}: {error:e}");
        }
    }
}

#[test]
fn the_thread_count_changes_no_byte() {
    for name in ["tiny_encode_17", "tiny_decode_5", "tiny_decode_tiled_no_overlap"] {
        let lab = Lab::new();
        let (options, _) = lab.golden(name);
        let bytes = |threads| {
            lab.succeed(&format!("vae {} in out {options} --threads {threads}", direction(name)));
            fs::read(lab.path("out")).unwrap()
        };
        assert!(bytes(1) == bytes(2) && bytes(2) == bytes(2), "{name}");
    }
}

#[test]
fn bf16_stays_close_to_the_golden_results() {
    for name in ["tiny_encode_5", "tiny_decode_5"] {
        let lab = Lab::new();
        let (options, want) = lab.golden(name);
        let got = lab.tensor_of(&format!("vae {} in out {options} --dtype bf16", direction(name)));
        let error = relative_error(&want.values, &got.values);
        assert!((1e-4..4e-2).contains(&error), "{name}: {error:e}");
    }
}

#[test]
fn the_result_is_one_f32_tensor_named_output() {
    let lab = Lab::new();
    let (options, want) = lab.golden("tiny_encode_5");
    let outcome = lab.succeed(&format!("vae encode in out {options}"));
    assert!(outcome.text().contains("out: output [2, 32, 4, 6]"), "{}", outcome.text());
    assert_eq!(outcome.stderr, "");

    let bytes = fs::read(lab.path("out")).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let names: Vec<&String> = header.as_object().unwrap().keys().filter(|name| *name != "__metadata__").collect();
    assert_eq!(names, ["output"]);
    assert_eq!(header["output"]["dtype"], "F32");
    assert_eq!(bytes.len(), 8 + length + 4 * want.values.len());
    assert_eq!(lab.names(), ["in", "out"]);
}

#[test]
fn an_existing_output_is_replaced() {
    let lab = Lab::new();
    let (options, want) = lab.golden("tiny_encode_image");
    fs::write(lab.path("out"), "older").unwrap();
    assert_eq!(lab.tensor_of(&format!("vae encode in out {options}")).dims, want.dims);
}

#[test]
fn the_input_is_the_tensor_named_input_or_the_only_tensor() {
    let lab = Lab::new();
    let (clip, other) = (Tensor::uniform(&[1, 16, 2, 3]), Tensor::uniform(&[7]));
    lab.write("several", &[("a", &other), ("input", &clip), ("z", &other)], &[]);
    lab.write("only", &[("latent of a clip", &clip)], &[]);
    let run = |file: &str| lab.tensor_of(&format!("vae decode {file} out --weights formula:tiny"));
    assert_eq!(run("several"), run("only"));
}

#[test]
fn decode_restores_odd_sizes_and_lengths() {
    let lab = Lab::new();
    lab.input("in", &Tensor::uniform(&[6, 3, 30, 41]));
    lab.succeed("vae encode in moments --weights formula:tiny");
    assert_eq!(lab.read("moments", "output").dims, [3, 32, 4, 6]);
    let cropped = lab.tensor_of("vae decode moments out --weights formula:tiny");
    assert_eq!(cropped.dims, [6, 3, 30, 41]);

    // Without the encoder's metadata, or with metadata of another clip, nothing is cropped.
    let moments = lab.read("moments", "output");
    lab.input("plain", &moments);
    let whole = lab.tensor_of("vae decode plain out --weights formula:tiny");
    assert_eq!(whole.dims, [9, 3, 32, 48]);
    assert_eq!(cropped, Tensor::new(&cropped.dims, |place| whole.at(place)));
    lab.write("other", &[("output", &moments)], &[("frames", "60"), ("height", "30"), ("width", "41")]);
    assert_eq!(lab.tensor_of("vae decode other out --weights formula:tiny"), whole);
}

#[test]
fn clips_are_padded_with_black_and_extended_by_mirrored_frames() {
    let lab = Lab::new();
    for (frames, order) in [(6, &[0, 1, 2, 3, 4, 5, 4, 3, 2][..]), (2, &[0, 1, 1, 1, 1])] {
        let clip = Tensor::uniform(&[frames, 3, 30, 41]);
        let explicit = Tensor::new(&[order.len(), 3, 32, 48], |[t, c, y, x]| match y < 30 && x < 41 {
            true => clip.at([order[t], c, y, x]),
            false => -1.0,
        });
        lab.input("in", &clip);
        lab.input("explicit", &explicit);
        for slice in [1, 2] {
            let run = |file| lab.tensor_of(&format!("vae encode {file} out --weights formula:tiny --slice {slice}"));
            assert!(run("in") == run("explicit"), "{frames} frames, slices of {slice}");
        }
    }
}

#[test]
fn moments_are_decoded_from_their_mean() {
    let lab = Lab::new();
    let (_, moments) = lab.golden("tiny_encode_5");
    let mean = Tensor::new(&[2, 16, 4, 6], |place| moments.at(place));
    lab.input("moments", &moments);
    lab.input("mean", &mean);
    let run = |file| lab.tensor_of(&format!("vae decode {file} out --weights formula:tiny"));
    assert!(run("moments") == run("mean"));
}

#[test]
fn a_weight_file_gives_the_same_result_as_its_formula() {
    let lab = Lab::new();
    let tensor = |(name, shape): (String, reseed_ops::Shape)| {
        let values = formula::tensor(&name, shape, 1);
        (name, Tensor { dims: shape.dims().into(), values })
    };
    let tensors: Vec<(String, Tensor)> = Config::tiny().tensors().into_iter().map(tensor).collect();
    let tensors: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    lab.write("tiny.safetensors", &tensors, &[("groups", "4")]);
    for name in ["tiny_encode_5", "tiny_decode_5"] {
        lab.golden(name);
        let run = |weights| lab.tensor_of(&format!("vae {} in out --weights {weights}", direction(name)));
        assert!(run("tiny.safetensors") == run("formula:tiny"), "{name}");
    }
}

#[test]
fn json_output_is_events_only_and_ends_with_done() {
    for name in ["tiny_encode_17", "tiny_decode_17"] {
        let lab = Lab::new();
        let (options, _) = lab.golden(name);
        let events = lab.succeed(&format!("vae {} in out {options} --json --profile", direction(name))).events();
        let progress: Vec<&Value> = events.iter().filter(|e| e["event"] == "progress").map(|e| &e["frame"]).collect();
        assert_eq!(progress, [5, 9, 13, 17]);
        assert!(events.iter().any(|e| e["event"] == "profile" && e["flops"].as_u64() > Some(0)), "{events:?}");
        let done = events.last().unwrap();
        assert_eq!(done["event"], "done");
        assert_eq!(done["command"], format!("vae {}", direction(name)));
        assert_eq!(done["frames"], 17);
    }
}

#[test]
fn reseed_check_compares_every_op_with_the_reference() {
    let lab = Lab::new();
    let (options, want) = lab.golden("tiny_decode_5");
    let mut command = lab.command(&format!("vae decode in out {options} --dtype f32"));
    command.env("RESEED_CHECK", "1");
    let outcome = outcome(command);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert!(outcome.text().contains(" against cpu reference"), "{}", outcome.text());
    let error = relative_error(&want.values, &lab.read("out", "output").values);
    assert!(error <= 1e-5, "{error}");
}
