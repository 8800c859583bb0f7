//! Saved states: a state written between two slices restores to identical results, and other files are errors.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use reseed_cpu::CpuOps;
use reseed_model::plan::CachePlan;
use reseed_model::weights::safetensors::{header, write_values};
use reseed_model::{Config, Error, State};
use reseed_ops::{DType, Device, Hw, MathMode, Shape};
use reseed_testing::files::TempFile;
use reseed_testing::{Side, load, step};

fn cpu(dtype: DType) -> CpuOps {
    CpuOps::new(dtype, Some(2)).unwrap()
}

fn save(ops: &dyn Device, state: &State) -> TempFile {
    let file = TempFile::new();
    state.save(ops, &mut file.create(), file.path()).unwrap();
    file
}

/// A safetensors file with one tensor of zeros and this metadata.
fn file_with(metadata: &[(&str, &str)], tensor: &str) -> TempFile {
    let metadata: BTreeMap<String, String> = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let shape = Shape::from([1, 2, 2, 8]);
    let file = TempFile::new();
    let mut content = file.create();
    content.write_all(&header(&[(tensor, shape)], &metadata)).unwrap();
    write_values(&mut content, &vec![0.0; shape.count()]).unwrap();
    file
}

/// The error of restoring a file.
fn restore_error(ops: &dyn Device, path: &Path) -> String {
    match State::restore(ops, path, CachePlan::default()) {
        Ok(_) => panic!("{} should not be a state", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_state_that_may_hold_bytes_is_not_saved() {
    let (ops, file) = (cpu(DType::F32).with_math(MathMode::Int8), TempFile::new());
    let error = State::new().save(&ops, &mut file.create(), file.path()).unwrap_err();
    assert!(error.to_string().contains("--precision int8"), "{error}");
}

// The state after one frame differs in kind from later states: both are saved and restored.
#[test]
fn a_restored_state_continues_bit_exactly() {
    for dtype in [DType::F32, DType::Bf16] {
        let ops = cpu(dtype);
        let vae = load(&ops, &Config::tiny());
        for side in Side::BOTH {
            let clip = side.input(&vae.config, 5, Hw::new(3, 5));
            let (mut kept, mut restored) = (State::new(), State::new());
            for slice in side.slices(&vae.config, &[1, 1, 2, 1]) {
                let want = step(&ops, side.coder(&vae), &clip, slice.clone(), &mut kept);
                // A new device stands for another process. All devices of one type can use the same weights.
                let fresh = cpu(dtype);
                let got = step(&fresh, side.coder(&vae), &clip, slice.clone(), &mut restored);
                assert!(got == want, "{dtype} {side:?}, frames {slice:?}");
                let file = save(&fresh, &restored);
                restored = State::restore(&cpu(dtype), file.path(), CachePlan::default()).unwrap();
                assert_eq!(restored.bytes(), kept.bytes(), "{dtype} {side:?}, frames {slice:?}");
            }
        }
    }
}

#[test]
fn a_state_saved_before_the_first_slice_starts_a_clip() {
    let ops = cpu(DType::F32);
    let file = save(&ops, &State::new());
    assert!(State::restore(&ops, file.path(), CachePlan::default()).unwrap().starts());
}

#[test]
fn a_state_of_another_type_is_an_error() {
    let (f32, bf16) = (cpu(DType::F32), cpu(DType::Bf16));
    let vae = load(&f32, &Config::tiny());
    let clip = Side::Decode.input(&vae.config, 1, Hw::new(2, 2));
    let mut state = State::new();
    step(&f32, &vae.decoder, &clip, 0..1, &mut state);
    let file = save(&f32, &state);
    let path = file.path().display();
    assert_eq!(restore_error(&bf16, file.path()), format!("saved state: {path} is f32, this run is bf16"));
}

#[test]
fn files_that_are_not_states_are_errors() {
    let ops = cpu(DType::F32);
    let files = [
        file_with(&[], "encoder.conv_in.weight"),
        file_with(&[("dtype", "f32")], "cache.0"),
        file_with(&[("dtype", "f32"), ("seen", "Everything")], "cache.0"),
        file_with(&[("dtype", "f32"), ("seen", "More")], "encoder.conv_in.weight"),
        file_with(&[("dtype", "f32"), ("seen", "More")], "cache.last"),
    ];
    for file in files {
        let path = file.path().display();
        assert_eq!(restore_error(&ops, file.path()), format!("saved state: {path} does not hold the state of a clip"));
    }
}

#[test]
fn a_missing_state_is_an_io_error() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("state.safetensors");
    match State::restore(&cpu(DType::F32), &path, CachePlan::default()) {
        Err(Error::Io { path: named, source }) => {
            assert_eq!((named, source.kind()), (path, std::io::ErrorKind::NotFound));
        }
        _ => panic!("expected an I/O error for a missing file"),
    }
}
