//! Files of transformers: every type gives the model it should, and what cannot be used is named.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

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

/// The block matrices are packed, as in the public files.
fn packed(name: &str, shape: Shape) -> bool {
    name.starts_with("blocks.") && shape.dims().len() == 2
}

/// A file whose block matrices are of `kind`, and what it stands for.
fn quantised(layout: Layout, kind: GgufType) -> (GgufBuilder, MemoryWeights) {
    let config = Config::tiny(layout, 3);
    let shapes: std::collections::BTreeMap<String, Shape> = config.tensors().into_iter().collect();
    let kind_of = |name: &str| if packed(name, shapes[name]) { kind } else { GgufType::F16 };
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
fn a_gguf_file_of_any_type_is_the_model_with_its_values_rounded() {
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
            assert!(!results.contains(&got), "another rounding must give another result");
            results.push(got);
        }
    }
}

#[test]
fn a_gguf_file_may_use_a_prefix_original_shapes_and_another_alignment() {
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

/// The message must say all of `parts`.
fn assert_refused<T>(opened: Result<T>, parts: &[&str]) {
    let Err(error) = opened else { panic!("should be refused: {parts:?}") };
    let line = error.to_string();
    assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line:?} should say {parts:?}");
}

#[test]
fn a_gguf_file_that_cannot_be_used_says_why() {
    let (draft, _) = quantised(B7, GgufType::Q8_0);
    let changed = |change: &dyn Fn(&mut GgufBuilder)| {
        let mut draft = draft.clone();
        change(&mut draft);
        open(&draft)
    };
    assert_refused(changed(&|d| d.magic = *b"GGML"), &["not a usable GGUF file", "does not begin with GGUF"]);
    assert_refused(changed(&|d| d.version = 1), &["version 1", "2 and 3"]);
    assert_refused(changed(&|d| d.alignment = Some(24)), &["alignment"]);
    let other = changed(&|d| {
        d.strings[0].1 = "llama".into();
        d.tensors.retain(|t| !t.name.starts_with("vid_in"));
    });
    assert_refused(other, &["architecture `llama`", "SeedVR2 transformer"]);
    let name = draft.tensors.iter().find(|t| t.kind == 8).unwrap().name.clone();
    let quoted = format!("`{name}`");
    let tensor =
        |change: &dyn Fn(&mut GgufTensor)| changed(&|d| change(d.tensors.iter_mut().find(|t| t.name == name).unwrap()));
    assert_refused(tensor(&|t| t.kind = 13), &[&quoted, "is Q5_K", "Q8_0 or Q4_K"]);
    assert_refused(tensor(&|t| t.kind = 99), &[&quoted, "of type 99"]);
    assert_refused(tensor(&|t| t.dims = vec![256, 255]), &[&quoted, "whole blocks"]);
    assert_refused(tensor(&|t| t.dims = vec![1 << 40, 1 << 40]), &[&quoted, "cut short or damaged"]);
    assert_refused(tensor(&|t| t.dims = vec![1; 6]), &[&quoted, "6 dimensions"]);
    let mut twice = draft.clone();
    twice.tensors.push(twice.tensors[0].clone());
    assert_refused(open(&twice), &["is there twice"]);
    let mut shaped = draft.clone();
    shaped.shapes.push((name.clone(), vec![3, 5]));
    assert_refused(open(&shaped), &[&quoted, "original shape"]);
    let bytes = draft.bytes();
    for length in [0, 3, 20, 300, bytes.len() / 2, bytes.len() - 1] {
        let cut = write_bytes(&bytes[..length]);
        assert_refused(Gguf::open(cut.path()), &["not a usable GGUF file"]);
    }
}

#[test]
fn a_gguf_file_that_lacks_a_tensor_is_no_model() {
    let (mut draft, _) = quantised(B7, GgufType::F16);
    draft.tensors.retain(|t| t.name != "blocks.1.mlp.txt.proj_out.bias");
    let gguf = open(&draft).unwrap();
    assert_refused(Dit::load(&cpu(), &gguf), &["`blocks.1.mlp.txt.proj_out.bias` is missing", "SeedVR2 transformer"]);
}

#[test]
fn a_damaged_gguf_header_does_no_harm() {
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

/// By way of f16, whose exponent is eight larger.
fn e4m3(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte & 0x80) << 8 | u16::from(byte & 0x7F) << 7).to_f32() * 256.0
}

/// The nearest number: its magnitude lies between two bytes that follow each other.
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

/// A safetensors file of bytes.
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
fn an_fp8_file_is_the_model_of_exactly_its_numbers() {
    for layout in [B3, B7] {
        let config = Config::tiny(layout, 3);
        let source = Formula::plain(config.tensors(), 1);
        let tensors = config.tensors();
        let stored = tensors.iter().map(|(name, shape)| {
            let values = source.read(name).unwrap();
            // The last layer stays in f16, as in the public mixed files.
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
fn a_file_cut_short_is_named() {
    let shape = Shape::from([64, 16]);
    let bytes = safetensors(&[("vid_in.proj.weight", "F8_E4M3", shape, vec![0; 1024])]);
    let file = write_bytes(&bytes[..bytes.len() - 1]);
    let path = |path: &Path| path.display().to_string();
    let refused = Safetensors::open(file.path());
    assert_refused(refused, &[&path(file.path()), "`vid_in.proj.weight`", "cut short or damaged"]);
}

#[test]
fn a_vae_in_place_of_a_transformer_is_told_apart() {
    let vae = reseed_testing::formula(&reseed_model::Config::tiny());
    assert_refused(Dit::load(&cpu(), &vae), &["`vid_in.proj.weight` is missing", "SeedVR2 transformer"]);
    let dit = Formula::plain(Config::tiny(B3, 3).tensors(), 1);
    assert_refused(reseed_model::Vae::load(&cpu(), &dit), &["is missing", "SeedVR2 VAE"]);
}
