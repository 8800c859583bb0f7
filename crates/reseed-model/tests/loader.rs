//! Weights files of every kind give the same model, and no file brings the loader down.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

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

/// The formula's tensors, each value changed on its way, and a count of how often each was read.
struct Watched {
    inner: Formula,
    change: fn(f32) -> f32,
    reads: Mutex<BTreeMap<String, usize>>,
}

impl Watched {
    fn new(config: &Config, change: fn(f32) -> f32) -> Watched {
        Watched { inner: formula(config), change, reads: Mutex::default() }
    }
}

impl Source for Watched {
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

/// An f32 draft with every value stored in two bytes instead.
fn narrowed(mut draft: SafetensorsBuilder, dtype: &str, narrow: fn(f32) -> [u8; 2]) -> SafetensorsBuilder {
    let values = draft.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    draft.data = values.flat_map(narrow).collect();
    for (_, tensor) in draft.header.iter_mut().filter(|(name, _)| *name != "__metadata__") {
        let halves =
            tensor["data_offsets"].as_array().unwrap().iter().map(|at| json!(at.as_u64().unwrap() / 2)).collect();
        tensor["data_offsets"] = Value::Array(halves);
        tensor["dtype"] = dtype.into();
    }
    draft
}

#[test]
fn a_file_of_any_type_is_the_model_with_its_values_rounded() {
    let (ops, config) = (cpu(), Config::tiny());
    let files = [
        (SafetensorsBuilder::new(&config), Watched::new(&config, |v| v)),
        (
            narrowed(SafetensorsBuilder::new(&config), "F16", |v| f16::from_f32(v).to_le_bytes()),
            Watched::new(&config, |v| f16::from_f32(v).to_f32()),
        ),
        (
            narrowed(SafetensorsBuilder::new(&config), "BF16", |v| bf16::from_f32(v).to_le_bytes()),
            Watched::new(&config, |v| bf16::from_f32(v).to_f32()),
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
            assert!(!results.contains(&got), "another rounding must give another result");
            results.push(got);
        }
    }
}

const FIRST: &str = "encoder.conv_in.weight";

#[test]
fn loading_reads_every_tensor_once() {
    let source = Watched::new(&Config::tiny(), |v| v);
    Vae::load(&cpu(), &source).unwrap();
    let reads = source.reads.into_inner().unwrap();
    assert_eq!(reads.keys().collect::<Vec<_>>(), source.inner.shapes().keys().collect::<Vec<_>>());
    assert!(reads.values().all(|&count| count == 1), "{reads:?}");
}

#[test]
fn loading_one_half_reads_that_half_alone() {
    let read = |load: &dyn Fn(&Watched)| {
        let source = Watched::new(&Config::tiny(), |v| v);
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
fn a_device_that_computes_nothing_reads_nothing() {
    let source = Watched::new(&Config::full(), |_| panic!("a value was read"));
    Vae::load(&TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0)), &source).unwrap();
}

#[test]
fn a_range_of_a_tensor_is_that_part_of_it() {
    let file = SafetensorsBuilder::new(&smallest()).write();
    let source = Safetensors::open(file.path()).unwrap();
    let whole = source.read(FIRST).unwrap();
    assert_eq!(whole, formula(&smallest()).read(FIRST).unwrap());
    for range in [0..whole.len(), 0..0, 5..17, whole.len() - 1..whole.len()] {
        assert_eq!(source.read_range(FIRST, range.start, range.len()).unwrap(), whole[range]);
    }
}

/// Opens a file and goes as far as it lets us; an error is as good as a model.
fn survive(path: &Path, ops: &CpuOps) {
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
fn arbitrary_bytes_do_no_harm() {
    let ops = cpu();
    proptest!(cases(300), |(bytes in prop::collection::vec(any::<u8>(), 0..200), prefixed in any::<bool>())| {
        let file = if prefixed { write(&bytes, &[]) } else { write_bytes(&bytes) };
        survive(file.path(), &ops);
    });
}

#[test]
fn a_header_with_damaged_bytes_does_no_harm() {
    let ops = cpu();
    let draft = SafetensorsBuilder::new(&smallest());
    let text = Value::Object(draft.header.clone()).to_string().into_bytes();
    let edit = (0..text.len(), prop::sample::select(b"0123456789,:[]{}\"-.eE\\ \xff".to_vec()));
    proptest!(cases(500), |(edits in prop::collection::vec(edit, 1..4), cut in 0usize..8)| {
        let mut text = text.clone();
        edits.iter().for_each(|&(at, byte)| text[at] = byte);
        text.truncate(text.len() - cut / 6);
        survive(write(&text, &draft.data).path(), &ops);
    });
}

/// Anything that JSON can say where a number, a list or a word is expected.
fn anything() -> impl Strategy<Value = Value> {
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
fn a_header_that_says_anything_does_no_harm() {
    let ops = cpu();
    let names: Vec<String> = SafetensorsBuilder::new(&smallest()).header.keys().cloned().collect();
    let field = prop::sample::select(vec!["dtype", "shape", "data_offsets", "groups", "scaling_factor"]);
    let edit = (prop::sample::select(names), field, anything());
    proptest!(cases(500), |(edits in prop::collection::vec(edit, 1..3))| {
        let whole = SafetensorsBuilder::new(&smallest());
        let draft = edits.into_iter().fold(whole, |d, (name, field, value)| d.set(&name, field, value));
        survive(draft.write().path(), &ops);
    });
}
