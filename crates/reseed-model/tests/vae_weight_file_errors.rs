//! Errors of invalid VAE weight files: each names the file and the cause.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::Path;

use reseed_model::Vae;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{DType, Shape, TraceOps};
use reseed_testing::files::TempFile;
use reseed_testing::files::{SafetensorsBuilder, smallest, write, write_bytes};
use reseed_testing::formula;
use serde_json::{Value, json};

const CONV: &str = "encoder.conv_out.weight";
const GAIN: &str = "encoder.conv_norm_out.weight";
const SHIFT: &str = "encoder.conv_norm_out.bias";

fn draft() -> SafetensorsBuilder {
    SafetensorsBuilder::new(&smallest())
}

/// The error of loading a file. The tracing device reads no weights, so the error comes from the header.
fn load_error(path: &Path) -> String {
    let loaded = match Safetensors::open(path) {
        Ok(source) => Vae::load(&TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)), &source),
        Err(error) => Err(error),
    };
    match loaded {
        Ok(_) => panic!("{} should not load", path.display()),
        Err(error) => error.to_string(),
    }
}

/// The error must start with the path and contain all of `parts`.
fn assert_error(file: &TempFile, parts: &[&str]) {
    let message = load_error(file.path());
    let path = format!("{}: ", file.path().display());
    assert!(message.starts_with(&path), "{message}");
    let rest = &message[path.len()..];
    assert!(parts.iter().all(|part| rest.contains(part)), "{rest:?} should contain {parts:?}");
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

#[test]
fn a_valid_file_loads() {
    let file = draft().write();
    let source = Safetensors::open(file.path()).unwrap();
    let vae = Vae::load(&TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)), &source).unwrap();
    assert_eq!(vae.config, smallest());
}

#[test]
fn missing_file_is_an_io_error() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("nothing.safetensors");
    match Safetensors::open(&path) {
        Err(error @ reseed_model::Error::Io { .. }) => {
            assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}")
        }
        _ => panic!("expected an I/O error for a missing file"),
    }
}

#[test]
fn empty_and_short_files_are_errors() {
    assert_error(&write_bytes(&[]), &["not a safetensors file", "0 bytes"]);
    assert_error(&write_bytes(&[1, 2, 3]), &["not a safetensors file", "the file has 3"]);
}

#[test]
fn header_longer_than_the_file_is_an_error() {
    let with_length = |length: u64| write_bytes(&[&length.to_le_bytes()[..], b"{}"].concat());
    assert_error(&with_length(3), &["not a safetensors file", "claims 3 bytes", "the file has 10"]);
    // The length must neither overflow nor be allocated.
    assert_error(&with_length(u64::MAX), &["not a safetensors file", &u64::MAX.to_string()]);
}

#[test]
fn header_that_is_not_json_is_an_error() {
    assert_error(&write(b"<html>404</html>", b""), &["not a safetensors file", "header", "line 1"]);
    assert_error(&write(b"", b""), &["not a safetensors file", "header"]);
    assert_error(&write(b"[1, 2]", b""), &["not a safetensors file", "header"]);
}

#[test]
fn header_that_is_not_utf8_is_an_error() {
    assert_error(&write(b"{\"\xff\xfe\": 1}", b""), &["not a safetensors file", "header"]);
}

#[test]
fn metadata_that_is_not_a_string_is_an_error() {
    let mut wrong = draft();
    wrong.header["__metadata__"] = json!(["groups", "2"]);
    assert_error(&wrong.write(), &["`__metadata__`", "not an object"]);
    assert_error(&draft().set("__metadata__", "groups", json!(2)).write(), &["`groups`", "not a string"]);
}

#[test]
fn missing_tensor_field_is_an_error() {
    for field in ["dtype", "shape", "data_offsets"] {
        let mut without = draft();
        without.tensor(CONV).remove(field);
        assert_error(&without.write(), &[&quoted(CONV), &format!("has no {field}")]);
    }
}

#[test]
fn invalid_tensor_fields_are_errors() {
    let wrong = |field: &str, value: Value| draft().set(CONV, field, value).write();
    assert_error(&wrong("dtype", json!(32)), &[&quoted(CONV), "F32, F16, BF16 or F8_E4M3"]);
    for shape in [json!("3x3"), json!([2, 4, 3, 3, "3"]), json!([2, 4, 3, 3, -3]), json!([2.5, 4, 3, 3, 3])] {
        assert_error(&wrong("shape", shape), &[&quoted(CONV), "shape", "integers"]);
    }
    assert_error(&wrong("shape", json!([1, 2, 4, 3, 3, 3])), &[&quoted(CONV), "6 dimensions"]);
    assert_error(&wrong("data_offsets", json!([0, 1, 2])), &[&quoted(CONV), "two numbers"]);
    assert_error(&wrong("data_offsets", json!([864, 0])), &[&quoted(CONV), "864..0", "cut short or damaged"]);
    let mut no_object = draft();
    no_object.header[CONV] = json!(7);
    assert_error(&no_object.write(), &[&quoted(CONV), "has no dtype"]);
}

#[test]
fn unsupported_type_is_an_error() {
    for dtype in ["I64", "F8_E5M2", "f32", ""] {
        let file = draft().set(CONV, "dtype", dtype.into()).write();
        assert_error(&file, &[&quoted(CONV), &format!("is {dtype}; use a file with F32, F16, BF16 or F8_E4M3")]);
    }
}

#[test]
fn truncated_file_is_an_error() {
    let mut short = draft();
    short.data.pop();
    assert_error(&short.write(), &["`decoder.conv_out.bias`", "cut short or damaged"]);
    short.data.clear();
    assert_error(&short.write(), &["of 0 bytes: ", "cut short or damaged"]);
}

#[test]
fn overlapping_tensors_are_an_error() {
    let mut two = draft();
    let place = two.tensor(GAIN)["data_offsets"].clone();
    assert_error(&two.set(SHIFT, "data_offsets", place).write(), &[&quoted(GAIN), "overlaps"]);
}

#[test]
fn gap_between_tensors_is_an_error() {
    let mut gapped = draft();
    gapped.header.remove(GAIN);
    assert_error(&gapped.write(), &[&quoted(SHIFT), "gap"]);
}

#[test]
fn bytes_after_the_last_tensor_are_an_error() {
    let mut long = draft();
    long.data.extend([0; 5]);
    assert_error(&long.write(), &["5 bytes after the last tensor"]);
}

#[test]
fn shape_with_a_different_size_is_an_error() {
    for shape in [json!([2, 4, 3, 3, 4]), json!([2, 4, 3, 3, 0]), json!([])] {
        assert_error(&draft().set(CONV, "shape", shape).write(), &[&quoted(CONV), "a different number of bytes"]);
    }
}

// The first size is 2^64 bytes and wraps to zero; the second wraps to the actual number of bytes.
#[test]
fn shape_whose_size_overflows_is_an_error() {
    for shape in [json!([1u64 << 62]), json!([216, (1u64 << 62) + 1]), json!([u64::MAX, u64::MAX, 0])] {
        assert_error(&draft().set(CONV, "shape", shape).write(), &[&quoted(CONV), "a different number of bytes"]);
    }
}

#[test]
fn missing_tensor_is_an_error() {
    let mut without = draft();
    without.header.remove("decoder.conv_out.bias");
    without.data.truncate(without.data.len() - 4);
    assert_error(&without.write(), &["`decoder.conv_out.bias` is missing", "SeedVR2 VAE"]);
    assert_error(&write(b"{}", b""), &["`encoder.conv_in.weight` is missing"]);
}

#[test]
fn unexpected_tensors_are_an_error() {
    let mut more = draft();
    let end = more.data.len();
    for (i, name) in ["ema.b", "ema.a"].into_iter().enumerate() {
        let place = [end + 4 * i, end + 4 * (i + 1)];
        more.header.insert(name.into(), json!({"dtype": "F32", "shape": [1], "data_offsets": place}));
    }
    more.data.extend([0; 8]);
    assert_error(&more.write(), &["2 tensors are not part of this model", "first `ema.a`"]);
}

#[test]
fn wrong_tensor_shape_is_an_error() {
    let transposed = draft().set(CONV, "shape", json!([4, 2, 3, 3, 3])).write();
    assert_error(&transposed, &[&quoted(CONV), "is [4, 2, 3, 3, 3], this model needs [2, 4, 3, 3, 3]"]);
    // The configuration is detected from this tensor.
    let flat = draft().set("encoder.conv_in.weight", "shape", json!([2, 27])).write();
    assert_error(&flat, &["`encoder.conv_in.weight`", "is [2, 27]"]);
}

#[test]
fn groups_that_do_not_divide_the_channels_are_an_error() {
    for groups in ["0", "7", "x", "", "-2", "2.0", "18446744073709551616"] {
        assert_error(
            &draft().metadata("groups", groups).write(),
            &["metadata `groups`", &format!("\"{groups}\""), "divides the channels of every level"],
        );
    }
    // The default of 32 groups divides neither two nor four channels.
    let mut without = draft();
    without.header.remove("__metadata__");
    assert_error(&without.write(), &["metadata `groups`", "not given"]);
}

#[test]
fn scaling_factor_that_is_not_positive_is_an_error() {
    for factor in ["nan", "inf", "0", "-1", "x", "1e99"] {
        assert_error(
            &draft().metadata("scaling_factor", factor).write(),
            &["metadata `scaling_factor`", &format!("\"{factor}\""), "positive number"],
        );
    }
}

// The check must notice every missing and every changed tensor, wherever the configuration is detected from.
#[test]
fn every_missing_or_changed_tensor_is_an_error() {
    let (config, ops) = (smallest(), TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)));
    let tensors = config.tensors();
    assert!(Vae::load(&ops, &formula(&config)).is_ok());
    for i in 0..tensors.len() {
        let mut without = tensors.clone();
        let (name, shape) = without.remove(i);
        assert!(Vae::load(&ops, &Formula::new(without, config.groups, 1)).is_err(), "{name}");
        let mut dims = shape.dims().to_vec();
        for axis in 0..dims.len() {
            dims[axis] += 2;
            let mut changed = tensors.clone();
            changed[i].1 = Shape::from(&dims[..]);
            assert!(Vae::load(&ops, &Formula::new(changed, config.groups, 1)).is_err(), "{name}: {dims:?}");
            dims[axis] -= 2;
        }
    }
}

/// A file with one more tensor for each name, of one value.
fn with_tensors(names: impl Iterator<Item = String>) -> TempFile {
    let mut more = draft();
    for name in names {
        let start = more.data.len();
        more.data.extend([0; 4]);
        let entry = json!({"dtype": "F32", "shape": [1, 1, 1, 1, 1], "data_offsets": [start, start + 4]});
        more.header.insert(name, entry);
    }
    more.write()
}

#[test]
fn more_levels_than_any_public_vae_are_an_error() {
    for levels in [9, 20, 33, 65, 300] {
        let names = (2..levels).map(|i| format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"));
        let message = format!("{levels} levels; at most 8 are supported: use a SeedVR2 VAE");
        assert_error(&with_tensors(names), &[&message]);
    }
}

#[test]
fn more_blocks_per_level_than_any_public_vae_are_an_error() {
    for block in ["encoder.down_blocks", "decoder.up_blocks"] {
        let names = (3..40).map(|j| format!("{block}.0.resnets.{j}.conv1.weight"));
        // The smallest model has one block in the encoder and three in the decoder.
        let missing = (1..3).map(|j| format!("{block}.0.resnets.{j}.conv1.weight"));
        let missing = missing.filter(|name| !draft().header.contains_key(name));
        let file = with_tensors(names.chain(missing));
        assert_error(&file, &["40 residual blocks per level; at most 16 are supported"]);
    }
}

// The search for a block was quadratic in the number of names.
#[test]
fn forty_thousand_tensors_are_an_error_at_once() {
    let file = with_tensors((3..40_000).map(|j| format!("decoder.up_blocks.0.resnets.{j}.x")));
    assert_error(&file, &["tensors; at most 16384 are supported"]);
}

#[test]
fn tensor_names_that_fill_the_screen_are_an_error() {
    assert_error(&with_tensors(["x".repeat(1000)].into_iter()), &["a tensor name has 1000 bytes; at most 256"]);
    let message = load_error(with_tensors(["two\nlines\x1b[2J".to_string()].into_iter()).path());
    assert!(message.contains(r#""two\nlines\u{1b}[2J" has control characters"#), "{message}");
    let message = load_error(draft().metadata("groups", &"9\n".repeat(1000)).write().path());
    assert!(message.lines().count() == 1 && message.len() < 1000, "{message}");
}
