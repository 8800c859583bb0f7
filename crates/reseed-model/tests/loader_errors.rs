//! What a stranger's weights file can be, and what is said about it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;

use reseed_model::Vae;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{DType, Shape, TraceOps};
use reseed_testing::files::{SafetensorsBuilder, smallest, write, write_bytes};
use reseed_testing::formula;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

const CONV: &str = "encoder.conv_out.weight";
const GAIN: &str = "encoder.conv_norm_out.weight";
const SHIFT: &str = "encoder.conv_norm_out.bias";

fn draft() -> SafetensorsBuilder {
    SafetensorsBuilder::new(&smallest())
}

/// Why a file does not load. Nothing is read on this device, so that all of it comes from the header.
fn refusal(path: &Path) -> String {
    let loaded = match Safetensors::open(path) {
        Ok(source) => Vae::load(&TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)), &source),
        Err(error) => Err(error),
    };
    match loaded {
        Ok(_) => panic!("{} should not load", path.display()),
        Err(error) => error.to_string(),
    }
}

/// The message must name the file first, and say all of `parts`.
fn assert_refused(file: &NamedTempFile, parts: &[&str]) {
    let message = refusal(file.path());
    let path = format!("{}: ", file.path().display());
    assert!(message.starts_with(&path), "{message}");
    let rest = &message[path.len()..];
    assert!(parts.iter().all(|part| rest.contains(part)), "{rest:?} should say {parts:?}");
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

#[test]
fn a_whole_file_loads() {
    let file = draft().write();
    let source = Safetensors::open(file.path()).unwrap();
    let vae = Vae::load(&TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)), &source).unwrap();
    assert_eq!(vae.config, smallest());
}

#[test]
fn a_file_that_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nothing.safetensors");
    match Safetensors::open(&path) {
        Err(error @ reseed_model::Error::Io { .. }) => {
            assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}")
        }
        _ => panic!("there is no such file"),
    }
}

#[test]
fn an_empty_file() {
    assert_refused(&write_bytes(&[]), &["not a safetensors file", "0 bytes"]);
    assert_refused(&write_bytes(&[1, 2, 3]), &["not a safetensors file", "the file has 3"]);
}

#[test]
fn a_header_longer_than_the_file() {
    let with_length = |length: u64| write_bytes(&[&length.to_le_bytes()[..], b"{}"].concat());
    assert_refused(&with_length(3), &["not a safetensors file", "claims 3 bytes", "the file has 10"]);
    // Must not be added to anything, nor allocated.
    assert_refused(&with_length(u64::MAX), &["not a safetensors file", &u64::MAX.to_string()]);
}

#[test]
fn a_header_that_is_not_json() {
    assert_refused(&write(b"<html>404</html>", b""), &["not a safetensors file", "header", "line 1"]);
    assert_refused(&write(b"", b""), &["not a safetensors file", "header"]);
    assert_refused(&write(b"[1, 2]", b""), &["not a safetensors file", "header"]);
}

#[test]
fn a_header_that_is_not_utf8() {
    assert_refused(&write(b"{\"\xff\xfe\": 1}", b""), &["not a safetensors file", "header"]);
}

#[test]
fn metadata_that_are_not_strings() {
    let mut wrong = draft();
    wrong.header["__metadata__"] = json!(["groups", "2"]);
    assert_refused(&wrong.write(), &["`__metadata__`", "not an object"]);
    assert_refused(&draft().set("__metadata__", "groups", json!(2)).write(), &["`groups`", "no string"]);
}

#[test]
fn a_tensor_that_lacks_a_field() {
    for field in ["dtype", "shape", "data_offsets"] {
        let mut without = draft();
        without.tensor(CONV).remove(field);
        assert_refused(&without.write(), &[&quoted(CONV), &format!("has no {field}")]);
    }
}

#[test]
fn a_tensor_whose_fields_make_no_sense() {
    let wrong = |field: &str, value: Value| draft().set(CONV, field, value).write();
    assert_refused(&wrong("dtype", json!(32)), &[&quoted(CONV), "F32, F16, BF16 or F8_E4M3"]);
    for shape in [json!("3x3"), json!([2, 4, 3, 3, "3"]), json!([2, 4, 3, 3, -3]), json!([2.5, 4, 3, 3, 3])] {
        assert_refused(&wrong("shape", shape), &[&quoted(CONV), "shape", "whole numbers"]);
    }
    assert_refused(&wrong("shape", json!([1, 2, 4, 3, 3, 3])), &[&quoted(CONV), "6 dimensions"]);
    assert_refused(&wrong("data_offsets", json!([0, 1, 2])), &[&quoted(CONV), "two numbers"]);
    assert_refused(&wrong("data_offsets", json!([864, 0])), &[&quoted(CONV), "864..0", "cut short or damaged"]);
    let mut no_object = draft();
    no_object.header[CONV] = json!(7);
    assert_refused(&no_object.write(), &[&quoted(CONV), "has no dtype"]);
}

#[test]
fn a_tensor_of_a_type_that_cannot_be_used() {
    for dtype in ["I64", "F8_E5M2", "f32", ""] {
        let file = draft().set(CONV, "dtype", dtype.into()).write();
        assert_refused(&file, &[&quoted(CONV), &format!("is {dtype}; use a file with F32, F16, BF16 or F8_E4M3")]);
    }
}

#[test]
fn a_file_cut_short() {
    let mut short = draft();
    short.data.pop();
    assert_refused(&short.write(), &["`decoder.conv_out.bias`", "cut short or damaged"]);
    short.data.clear();
    assert_refused(&short.write(), &["of 0: ", "cut short or damaged"]);
}

#[test]
fn tensors_that_overlap() {
    let mut two = draft();
    let place = two.tensor(GAIN)["data_offsets"].clone();
    assert_refused(&two.set(SHIFT, "data_offsets", place).write(), &[&quoted(GAIN), "overlaps"]);
}

#[test]
fn a_hole_between_tensors() {
    let mut holed = draft();
    holed.header.remove(GAIN);
    assert_refused(&holed.write(), &[&quoted(SHIFT), "hole"]);
}

#[test]
fn bytes_behind_the_last_tensor() {
    let mut long = draft();
    long.data.extend([0; 5]);
    assert_refused(&long.write(), &["5 bytes behind the last tensor"]);
}

#[test]
fn a_shape_that_needs_other_bytes() {
    for shape in [json!([2, 4, 3, 3, 4]), json!([2, 4, 3, 3, 0]), json!([])] {
        assert_refused(&draft().set(CONV, "shape", shape).write(), &[&quoted(CONV), "another number of bytes"]);
    }
}

// The first product is 2^64 bytes, or none at all when it wraps; the second wraps to the true number of bytes.
#[test]
fn a_shape_whose_product_overflows() {
    for shape in [json!([1u64 << 62]), json!([216, (1u64 << 62) + 1]), json!([u64::MAX, u64::MAX, 0])] {
        assert_refused(&draft().set(CONV, "shape", shape).write(), &[&quoted(CONV), "another number of bytes"]);
    }
}

#[test]
fn a_tensor_that_is_missing() {
    let mut without = draft();
    without.header.remove("decoder.conv_out.bias");
    without.data.truncate(without.data.len() - 4);
    assert_refused(&without.write(), &["`decoder.conv_out.bias` is missing", "SeedVR2 VAE"]);
    assert_refused(&write(b"{}", b""), &["`encoder.conv_in.weight` is missing"]);
}

#[test]
fn tensors_that_are_not_part_of_the_model() {
    let mut more = draft();
    let end = more.data.len();
    for (i, name) in ["ema.b", "ema.a"].into_iter().enumerate() {
        let place = [end + 4 * i, end + 4 * (i + 1)];
        more.header.insert(name.into(), json!({"dtype": "F32", "shape": [1], "data_offsets": place}));
    }
    more.data.extend([0; 8]);
    assert_refused(&more.write(), &["2 tensors are not part of this model", "first `ema.a`"]);
}

#[test]
fn a_tensor_of_another_shape() {
    let turned = draft().set(CONV, "shape", json!([4, 2, 3, 3, 3])).write();
    assert_refused(&turned, &[&quoted(CONV), "is [4, 2, 3, 3, 3], this model needs [2, 4, 3, 3, 3]"]);
    // One of those that the sizes are read from.
    let flat = draft().set("encoder.conv_in.weight", "shape", json!([2, 27])).write();
    assert_refused(&flat, &["`encoder.conv_in.weight`", "is [2, 27]"]);
}

#[test]
fn groups_that_divide_no_channels() {
    for groups in ["0", "7", "x", "", "-2", "2.0", "18446744073709551616"] {
        assert_refused(
            &draft().metadata("groups", groups).write(),
            &["metadata `groups`", &format!("\"{groups}\""), "divides the width of every level"],
        );
    }
    // Without a word about groups there are 32, which divide neither two nor four channels.
    let mut silent = draft();
    silent.header.remove("__metadata__");
    assert_refused(&silent.write(), &["metadata `groups`", "not given"]);
}

#[test]
fn a_scaling_factor_that_is_no_positive_number() {
    for factor in ["nan", "inf", "0", "-1", "x", "1e99"] {
        assert_refused(
            &draft().metadata("scaling_factor", factor).write(),
            &["metadata `scaling_factor`", &format!("\"{factor}\""), "positive number"],
        );
    }
}

// Whatever the sizes are read from, no tensor may be absent or of another shape unnoticed.
#[test]
fn no_tensor_can_be_left_out_or_changed() {
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
