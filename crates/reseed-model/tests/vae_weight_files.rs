//! Weight files of the VAE: every element type loads the same model up to rounding, and damaged files do not panic.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use half::{bf16, f16};
use proptest::prelude::*;
use reseed_cpu::CpuOps;
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Config, Result, Vae};
use reseed_ops::{DType, Hw, Shape, TraceOps};
use reseed_testing::files::{SafetensorsBuilder, smallest, write, write_bytes};
use reseed_testing::{Side, formula, run_slices};
use serde_json::{Value, json};

fn cpu() -> CpuOps {
    CpuOps::new(DType::F32, Some(2)).unwrap()
}

/// Formula weights with `change` applied to every value, and a count of the reads of each tensor.
struct CountingSource {
    inner: Formula,
    change: fn(f32) -> f32,
    reads: Mutex<BTreeMap<String, usize>>,
}

impl CountingSource {
    fn new(config: &Config, change: fn(f32) -> f32) -> CountingSource {
        CountingSource { inner: formula(config), change, reads: Mutex::default() }
    }
}

impl Source for CountingSource {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        self.inner.shapes()
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.inner.metadata(key)
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        *self.reads.lock().unwrap().entry(name.into()).or_default() += 1;
        Ok(self.inner.read(name)?.into_iter().map(self.change).collect())
    }
}

/// An f32 draft with its values converted to a type of two bytes.
fn narrowed(mut draft: SafetensorsBuilder, dtype: &str, narrow: fn(f32) -> [u8; 2]) -> SafetensorsBuilder {
    let values = draft.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    draft.data = values.flat_map(narrow).collect();
    for (_, tensor) in draft.header.iter_mut().filter(|(name, _)| *name != "__metadata__") {
        let offsets =
            tensor["data_offsets"].as_array().unwrap().iter().map(|at| json!(at.as_u64().unwrap() / 2)).collect();
        tensor["data_offsets"] = Value::Array(offsets);
        tensor["dtype"] = dtype.into();
    }
    draft
}

#[test]
fn files_of_any_type_load_their_rounded_values() {
    let (ops, config) = (cpu(), Config::tiny());
    let files = [
        (SafetensorsBuilder::new(&config), CountingSource::new(&config, |v| v)),
        (
            narrowed(SafetensorsBuilder::new(&config), "F16", |v| f16::from_f32(v).to_le_bytes()),
            CountingSource::new(&config, |v| f16::from_f32(v).to_f32()),
        ),
        (
            narrowed(SafetensorsBuilder::new(&config), "BF16", |v| bf16::from_f32(v).to_le_bytes()),
            CountingSource::new(&config, |v| bf16::from_f32(v).to_f32()),
        ),
    ];
    let mut results = Vec::new();
    for (draft, rounded) in files {
        let file = draft.write();
        let from_file = Vae::load(&ops, &Safetensors::open(file.path()).unwrap()).unwrap();
        let from_formula = Vae::load(&ops, &rounded).unwrap();
        for side in Side::BOTH {
            let clip = side.input(&config, 2, Hw::new(2, 3));
            let got = run_slices(&ops, &from_file, side, &clip, &[2]);
            assert!(got == run_slices(&ops, &from_formula, side, &clip, &[2]), "{side:?} {:?}", draft.header[FIRST]);
            assert!(!results.contains(&got), "a different rounding must change the result");
            results.push(got);
        }
    }
}

const FIRST: &str = "encoder.conv_in.weight";

#[test]
fn loading_reads_every_tensor_once() {
    let source = CountingSource::new(&Config::tiny(), |v| v);
    Vae::load(&cpu(), &source).unwrap();
    let reads = source.reads.into_inner().unwrap();
    assert_eq!(reads.keys().collect::<Vec<_>>(), source.inner.shapes().keys().collect::<Vec<_>>());
    assert!(reads.values().all(|&count| count == 1), "{reads:?}");
}

#[test]
fn loading_one_coder_reads_only_its_tensors() {
    let read = |load: &dyn Fn(&CountingSource)| {
        let source = CountingSource::new(&Config::tiny(), |v| v);
        load(&source);
        source.reads.into_inner().unwrap().into_keys().collect::<Vec<String>>()
    };
    let encoder = read(&|source| drop(Vae::load_encoder(&cpu(), source).unwrap()));
    let decoder = read(&|source| drop(Vae::load_decoder(&cpu(), source).unwrap()));
    assert!(encoder.iter().all(|name| name.starts_with("encoder.")));
    assert!(decoder.iter().all(|name| name.starts_with("decoder.")));
    assert_eq!(encoder.len() + decoder.len(), Config::tiny().tensors().len());
}

#[test]
fn tracing_reads_no_weights() {
    let source = CountingSource::new(&Config::full(), |_| panic!("a value was read"));
    Vae::load(&TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)), &source).unwrap();
}

#[test]
fn read_range_returns_part_of_a_tensor() {
    let file = SafetensorsBuilder::new(&smallest()).write();
    let source = Safetensors::open(file.path()).unwrap();
    let whole = source.read(FIRST).unwrap();
    assert_eq!(whole, formula(&smallest()).read(FIRST).unwrap());
    for range in [0..whole.len(), 0..0, 5..17, whole.len() - 1..whole.len()] {
        assert_eq!(source.read_range(FIRST, range.start, range.len()).unwrap(), whole[range]);
    }
}

/// Opens and loads a file. Errors are allowed, panics are not.
fn load_without_panic(path: &Path, ops: &CpuOps) {
    if let Ok(source) = Safetensors::open(path) {
        for name in source.shapes().keys() {
            source.read(name).unwrap();
        }
        let _ = Vae::load(ops, &source);
    }
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let ops = cpu();
    proptest!(cases(300), |(bytes in prop::collection::vec(any::<u8>(), 0..200), prefixed in any::<bool>())| {
        let file = if prefixed { write(&bytes, &[]) } else { write_bytes(&bytes) };
        load_without_panic(file.path(), &ops);
    });
}

#[test]
fn damaged_header_bytes_do_not_panic() {
    let ops = cpu();
    let draft = SafetensorsBuilder::new(&smallest());
    let text = Value::Object(draft.header.clone()).to_string().into_bytes();
    let edit = (0..text.len(), prop::sample::select(b"0123456789,:[]{}\"-.eE\\ \xff".to_vec()));
    proptest!(cases(500), |(edits in prop::collection::vec(edit, 1..4), cut in 0usize..8)| {
        let mut text = text.clone();
        edits.iter().for_each(|&(at, byte)| text[at] = byte);
        text.truncate(text.len() - cut / 6);
        load_without_panic(write(&text, &draft.data).path(), &ops);
    });
}

/// Any JSON value in place of a number, a list or a string.
fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<u64>(),
        0u64..2000,
        (0u32..64).prop_map(|bit| 1 << bit),
        (0u32..64).prop_map(|bit| u64::MAX >> bit)
    ];
    let word = prop::sample::select(vec!["F32", "F16", "BF16", "I64", "0", "7", "nan", ""]);
    let leaf = prop_oneof![
        8 => number.prop_map(|n| json!(n)),
        1 => any::<i64>().prop_map(|n| json!(n)),
        1 => any::<f64>().prop_map(|n| json!(n)),
        2 => word.prop_map(|w| json!(w)),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(2, 16, 6, |inner| prop::collection::vec(inner, 0..7).prop_map(Value::Array))
}

#[test]
fn arbitrary_header_values_do_not_panic() {
    let ops = cpu();
    let names: Vec<String> = SafetensorsBuilder::new(&smallest()).header.keys().cloned().collect();
    let field = prop::sample::select(vec!["dtype", "shape", "data_offsets", "groups", "scaling_factor"]);
    let edit = (prop::sample::select(names), field, any_json());
    proptest!(cases(500), |(edits in prop::collection::vec(edit, 1..3))| {
        let set =
            |file: SafetensorsBuilder, (name, field, value): (String, &str, Value)| file.set(&name, field, value);
        let draft = edits.into_iter().fold(SafetensorsBuilder::new(&smallest()), set);
        load_without_panic(draft.write().path(), &ops);
    });
}
