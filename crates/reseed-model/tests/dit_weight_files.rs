//! Weight files of transformers: every element type loads the same model up to rounding, and errors name the cause.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::Path;

use half::f16;
use proptest::prelude::*;
use reseed_cpu::CpuOps;
use reseed_model::dit::{B3, B7, Config, Layout};
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::gguf::Gguf;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Dit, Result};
use reseed_ops::{DType, Shape, Thw};
use reseed_testing::dit::{MemoryWeights, velocity};
use reseed_testing::files::write_bytes;
use reseed_testing::gguf::{GgufBuilder, GgufTensor, GgufType};
use serde_json::{Map, Value, json};

const LATENT: Thw = Thw::new(1, 4, 6);

fn cpu() -> CpuOps {
    CpuOps::new(DType::F32, Some(2)).unwrap()
}

fn result(source: &dyn Source) -> Vec<f32> {
    let ops = cpu();
    velocity(&ops, &Dit::load(&ops, source).unwrap(), LATENT)
}

/// Whether a tensor is a matrix of a layer. Public files quantise these.
fn is_layer_matrix(name: &str, shape: Shape) -> bool {
    name.starts_with("blocks.") && shape.dims().len() == 2
}

/// A file with layer matrices of type `kind`, and a source with the same values.
fn quantised(layout: Layout, kind: GgufType) -> (GgufBuilder, MemoryWeights) {
    let config = Config::tiny(layout, 3);
    let shapes: std::collections::BTreeMap<String, Shape> = config.tensors().into_iter().collect();
    let kind_of = |name: &str| if is_layer_matrix(name, shapes[name]) { kind } else { GgufType::F16 };
    let held = MemoryWeights::new(&config, |name, values| kind_of(name).store(&values).1);
    let source = Formula::plain(config.tensors(), 1);
    let tensor = |(name, shape): (String, Shape)| GgufTensor {
        kind: kind_of(&name).number(),
        bytes: kind_of(&name).store(&source.read(&name).unwrap()).0,
        dims: shape.dims().iter().map(|&dim| dim as u64).collect(),
        name,
    };
    (GgufBuilder::new(config.tensors().into_iter().map(tensor).collect()), held)
}

fn open(draft: &GgufBuilder) -> Result<Gguf> {
    Gguf::open(write_bytes(&draft.bytes()).path())
}

#[test]
fn gguf_files_of_any_type_load_their_rounded_values() {
    for layout in [B3, B7] {
        let mut results = Vec::new();
        for kind in [GgufType::F32, GgufType::F16, GgufType::Q8_0, GgufType::Q4K] {
            let (draft, held) = quantised(layout, kind);
            let file = write_bytes(&draft.bytes());
            let gguf = Gguf::open(file.path()).unwrap();
            for (name, values) in &held.values {
                assert!(gguf.read(name).unwrap() == *values, "{name} of {kind:?}");
            }
            let got = result(&gguf);
            assert!(got.iter().all(|v| v.is_finite()) && got == result(&held), "{} {kind:?}", layout.name);
            assert!(!results.contains(&got), "a different rounding must change the result");
            results.push(got);
        }
    }
}

#[test]
fn gguf_files_may_have_a_prefix_original_shapes_and_an_alignment() {
    let (mut draft, held) = quantised(B3, GgufType::Q8_0);
    draft.version = 2;
    draft.alignment = Some(128);
    for tensor in &mut draft.tensors {
        tensor.name = format!("model.diffusion_model.{}", tensor.name);
    }
    let bias = draft.tensors.iter_mut().find(|t| t.name.ends_with("vid_in.proj.bias")).unwrap();
    draft.shapes.push((bias.name.clone(), vec![256]));
    bias.dims = vec![2, 128];
    let file = write_bytes(&draft.bytes());
    assert!(result(&Gguf::open(file.path()).unwrap()) == result(&held));
}

/// The error must contain all of `parts`.
fn assert_error<T>(opened: Result<T>, parts: &[&str]) {
    let Err(error) = opened else { panic!("expected an error with {parts:?}") };
    let line = error.to_string();
    assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line:?} should contain {parts:?}");
}

#[test]
fn gguf_errors_name_the_cause() {
    let (draft, _) = quantised(B7, GgufType::Q8_0);
    let changed = |change: &dyn Fn(&mut GgufBuilder)| {
        let mut draft = draft.clone();
        change(&mut draft);
        open(&draft)
    };
    assert_error(changed(&|d| d.magic = *b"GGML"), &["not a usable GGUF file", "does not begin with GGUF"]);
    assert_error(changed(&|d| d.version = 1), &["version 1", "2 or 3"]);
    assert_error(changed(&|d| d.alignment = Some(24)), &["alignment"]);
    let other = changed(&|d| {
        d.strings[0].1 = "llama".into();
        d.tensors.retain(|t| !t.name.starts_with("vid_in"));
    });
    assert_error(other, &["architecture `llama`", "SeedVR2 transformer"]);
    let name = draft.tensors.iter().find(|t| t.kind == 8).unwrap().name.clone();
    let quoted = format!("`{name}`");
    let tensor =
        |change: &dyn Fn(&mut GgufTensor)| changed(&|d| change(d.tensors.iter_mut().find(|t| t.name == name).unwrap()));
    assert_error(tensor(&|t| t.kind = 13), &[&quoted, "is Q5_K", "Q8_0 or Q4_K"]);
    assert_error(tensor(&|t| t.kind = 99), &[&quoted, "of type 99"]);
    assert_error(tensor(&|t| t.dims = vec![256, 255]), &[&quoted, "whole blocks"]);
    assert_error(tensor(&|t| t.dims = vec![1 << 40, 1 << 40]), &[&quoted, "cut short or damaged"]);
    assert_error(tensor(&|t| t.dims = vec![1; 6]), &[&quoted, "6 dimensions"]);
    let mut twice = draft.clone();
    twice.tensors.push(twice.tensors[0].clone());
    assert_error(open(&twice), &["occurs twice"]);
    let mut shaped = draft.clone();
    shaped.shapes.push((name.clone(), vec![3, 5]));
    assert_error(open(&shaped), &[&quoted, "original shape"]);
    let bytes = draft.bytes();
    for length in [0, 3, 20, 300, bytes.len() / 2, bytes.len() - 1] {
        let cut = write_bytes(&bytes[..length]);
        assert_error(Gguf::open(cut.path()), &["not a usable GGUF file"]);
    }
}

#[test]
fn a_missing_tensor_in_a_gguf_file_is_an_error() {
    let (mut draft, _) = quantised(B7, GgufType::F16);
    draft.tensors.retain(|t| t.name != "blocks.1.mlp.txt.proj_out.bias");
    let gguf = open(&draft).unwrap();
    assert_error(Dit::load(&cpu(), &gguf), &["`blocks.1.mlp.txt.proj_out.bias` is missing", "SeedVR2 transformer"]);
}

#[test]
fn damaged_gguf_headers_do_not_panic() {
    let tensor = GgufTensor { name: "vid_in.proj.weight".into(), dims: vec![2, 32], kind: 8, bytes: vec![7; 68] };
    let bytes = GgufBuilder::new(vec![tensor]).bytes();
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(edits in prop::collection::vec((0..bytes.len(), any::<u8>()), 1..4))| {
        let mut bytes = bytes.clone();
        edits.iter().for_each(|&(at, byte)| bytes[at] = byte);
        if let Ok(gguf) = Gguf::open(write_bytes(&bytes).path()) {
            gguf.shapes().keys().for_each(|name| drop(gguf.read(name).unwrap()));
        }
    });
}

/// Decodes e4m3 through f16, whose exponent bias is eight larger.
fn e4m3(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte & 0x80) << 8 | u16::from(byte & 0x7F) << 7).to_f32() * 256.0
}

/// Rounds to the nearest e4m3 value by bisection of the magnitude.
fn to_e4m3(value: f32) -> u8 {
    let size = value.abs();
    let (mut below, mut above) = (0, 0x7E);
    while above - below > 1 {
        let middle = (below + above) / 2;
        *if e4m3(middle) <= size { &mut below } else { &mut above } = middle;
    }
    let nearest = if size - e4m3(below) <= e4m3(above) - size { below } else { above };
    nearest | if value < 0.0 { 0x80 } else { 0 }
}

/// A safetensors file with these tensors.
fn safetensors(tensors: &[(&str, &str, Shape, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let place = [data.len(), data.len() + bytes.len()];
        header.insert(name.to_string(), json!({"dtype": dtype, "shape": shape.dims(), "data_offsets": place}));
        data.extend(bytes);
    }
    let text = Value::Object(header).to_string();
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat()
}

#[test]
fn fp8_files_load_exactly_their_values() {
    for layout in [B3, B7] {
        let config = Config::tiny(layout, 3);
        let source = Formula::plain(config.tensors(), 1);
        let tensors = config.tensors();
        let stored = tensors.iter().map(|(name, shape)| {
            let values = source.read(name).unwrap();
            // The last layer is in f16, as in the public mixed files.
            match name.starts_with("blocks.2.") {
                true => {
                    let bytes = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
                    (name.as_str(), "F16", *shape, bytes)
                }
                false => (name.as_str(), "F8_E4M3", *shape, values.iter().map(|v| to_e4m3(*v)).collect()),
            }
        });
        let stored: Vec<_> = stored.collect();
        let held = MemoryWeights::new(&config, |name, values| match name.starts_with("blocks.2.") {
            true => values.iter().map(|v| f16::from_f32(*v).to_f32()).collect(),
            false => values.iter().map(|v| e4m3(to_e4m3(*v))).collect(),
        });
        let file = write_bytes(&safetensors(&stored));
        assert!(result(&Safetensors::open(file.path()).unwrap()) == result(&held), "{}", layout.name);
    }
}

#[test]
fn a_truncated_file_is_an_error() {
    let shape = Shape::from([64, 16]);
    let bytes = safetensors(&[("vid_in.proj.weight", "F8_E4M3", shape, vec![0; 1024])]);
    let file = write_bytes(&bytes[..bytes.len() - 1]);
    let path = |path: &Path| path.display().to_string();
    let opened = Safetensors::open(file.path());
    assert_error(opened, &[&path(file.path()), "`vid_in.proj.weight`", "cut short or damaged"]);
}

#[test]
fn swapped_vae_and_transformer_files_are_errors() {
    let vae = reseed_testing::formula(&reseed_model::Config::tiny());
    assert_error(Dit::load(&cpu(), &vae), &["`vid_in.proj.weight` is missing", "SeedVR2 transformer"]);
    let dit = Formula::plain(Config::tiny(B3, 3).tensors(), 1);
    assert_error(reseed_model::Vae::load(&cpu(), &dit), &["is missing", "SeedVR2 VAE"]);
}
