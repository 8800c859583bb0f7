//! Transformers in the quantised formats of ComfyUI: exact values, whole networks, and errors of one line.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::CpuOps;
use reseed_model::dit::{self, B3, B7, Config};
use reseed_model::weights::Source;
use reseed_model::weights::quantized::QuantizedSafetensors;
use reseed_model::{Dit, Result};
use reseed_ops::{DType, Quant, Shape, Thw};
use reseed_testing::dit::velocity;
use reseed_testing::files::write_bytes;
use reseed_testing::golden::golden_path;
use reseed_testing::quantized::{StoredFormat, StoredTensor, file, transformer};

const LATENT: Thw = Thw::new(1, 4, 6);

fn result(source: &dyn Source) -> Vec<f32> {
    let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
    velocity(&ops, &Dit::load(&ops, source).unwrap(), LATENT)
}

fn open(tensors: &[StoredTensor], metadata: &[(&str, &str)]) -> Result<QuantizedSafetensors> {
    dit::open(write_bytes(&file(tensors, metadata)).path())
}

fn is_equal(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Matrices of a golden file and their formats on a device.
type Matrices = &'static [(&'static str, Option<Quant>)];

const GOLDENS: &[(&str, Matrices)] = &[
    ("fp8", &[("one", Some(Quant::ScaledE4m3)), ("rows", Some(Quant::ScaledE4m3)), ("odd", None)]),
    ("fp8_scaled", &[("a", Some(Quant::ScaledE4m3)), ("b", None)]),
    ("fp8_metadata", &[("c", Some(Quant::ScaledE4m3))]),
    (
        "int8",
        &[
            ("one", None),
            ("rows", None),
            ("rotated_256", Some(Quant::Int8ConvRot)),
            ("rotated_16", None),
            ("rotated_64", None),
        ],
    ),
    ("mxfp8", &[("tiles", Some(Quant::Mxfp8)), ("odd", None), ("wide", Some(Quant::Mxfp8))]),
    ("nvfp4", &[("tiles", Some(Quant::Nvfp4)), ("odd", None), ("wide", Some(Quant::Nvfp4))]),
];

#[test]
fn golden_matrices_have_exactly_their_values() {
    for (name, matrices) in GOLDENS {
        let file = QuantizedSafetensors::open(&golden_path("formats", name)).unwrap();
        assert_eq!(file.shapes().len(), 2 * matrices.len(), "{name}: scales and descriptions are hidden");
        for (matrix, quant) in *matrices {
            let (stored, expected) = (format!("{matrix}.weight"), format!("expected.{matrix}"));
            assert_eq!(file.shapes()[&stored], file.shapes()[&expected], "{name} {matrix}");
            let want = file.read(&expected).unwrap();
            assert!(want.iter().any(|v| *v != 0.0), "{name} {matrix}");
            assert!(is_equal(&file.read(&stored).unwrap(), &want), "{name} {matrix}");
            assert_eq!(file.quant(&stored), *quant, "{name} {matrix}");
            let numbers = file.numbers(&stored).unwrap();
            assert_eq!(numbers.quant(), *quant, "{name} {matrix}");
            assert!(is_equal(&numbers.floats(), &want), "{name} {matrix}: blocks for a device");
        }
    }
}

#[test]
fn whole_transformers_compute_the_same_as_from_their_values() {
    for layout in [B3, B7] {
        let mut results = Vec::new();
        for format in StoredFormat::ALL {
            let config = Config::tiny(layout, 3);
            let (tensors, held) = transformer(&config, format, |name| name.starts_with("blocks."));
            let source = open(&tensors, &[]).unwrap();
            assert_eq!(Config::detect(&source).unwrap(), config);
            for (name, values) in &held.values {
                assert!(is_equal(&source.read(name).unwrap(), values), "{name} as {format:?}");
            }
            let got = result(&source);
            assert!(got.iter().all(|v| v.is_finite()) && got == result(&held), "{} {format:?}", layout.name);
            let is_kept = !matches!(format, StoredFormat::E5m2 | StoredFormat::Int8);
            assert_eq!(source.quant("blocks.0.mlp.vid.proj_in.weight").is_some(), is_kept, "{format:?}");
            // Both fp8 files have the same values.
            assert_eq!(results.contains(&got), format == StoredFormat::OldFp8, "{format:?}");
            results.push(got);
        }
    }
}

/// Every matrix is quantised, with rows that are no whole blocks: `vid_in.proj` has 132 columns.
#[test]
fn padding_is_removed() {
    for (format, padded) in [(StoredFormat::Mxfp8, 160), (StoredFormat::Nvfp4, 144)] {
        let config = Config::tiny(B7, 2);
        let (tensors, held) = transformer(&config, format, |_| true);
        let source = open(&tensors, &[]).unwrap();
        let raw = QuantizedSafetensors::open(write_bytes(&file(&tensors, &[])).path()).unwrap();
        assert_eq!(raw.shapes()["vid_in.proj.weight"], Shape::from([256, padded]));
        assert_eq!(source.shapes()["vid_in.proj.weight"], Shape::from([256, 132]));
        assert!(
            is_equal(&source.read("vid_in.proj.weight").unwrap(), &held.values["vid_in.proj.weight"]),
            "{format:?}"
        );
        assert!(result(&source) == result(&held), "{format:?}");
    }
}

/// Files of ComfyUI contain the text embeddings; converters add prefixes and describe layers in the metadata.
#[test]
fn prefixes_text_embeddings_and_metadata_are_read() {
    let config = Config::tiny(B3, 3);
    let (mut tensors, held) = transformer(&config, StoredFormat::Nvfp4, |name| name.starts_with("blocks.1."));
    let descriptions = tensors.extract_if(.., |tensor| tensor.name.ends_with(".comfy_quant"));
    let layers: Vec<String> = descriptions.map(|t| t.name.replace(".comfy_quant", "")).collect();
    let layers: Vec<String> =
        layers.iter().map(|name| format!(r#""model.diffusion_model.{name}": {{"format": "nvfp4"}}"#)).collect();
    let metadata = format!(r#"{{"format_version": "1.0", "layers": {{{}}}}}"#, layers.join(", "));
    for (name, tokens) in [("positive_conditioning", 58), ("negative_conditioning", 64)] {
        tensors.push(StoredTensor::new(name, "BF16", &[tokens, 96], vec![0; 2 * 96 * tokens]));
    }
    for tensor in &mut tensors {
        tensor.name = format!("model.diffusion_model.{}", tensor.name);
    }
    let source = open(&tensors, &[("_quantization_metadata", &metadata)]).unwrap();
    assert_eq!(source.shapes()["positive_conditioning"], Shape::from([58, 96]));
    assert!(result(&source) == result(&held));
}

/// The error must contain all of `parts`, in one line.
fn assert_error<T>(opened: Result<T>, parts: &[&str]) {
    let Err(error) = opened else { panic!("expected an error with {parts:?}") };
    let line = error.to_string();
    assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line:?} should contain {parts:?}");
}

/// A layer of 16x256 in a format, with the tensors whose names end with `end` changed.
fn changed(format: StoredFormat, end: &str, change: &dyn Fn(&mut StoredTensor)) -> Result<Vec<f32>> {
    let values: Vec<f32> = (0..16 * 256).map(|i| (i % 23) as f32 - 11.0).collect();
    let (mut tensors, _) = format.store("layer", &values, [16, 256]);
    let found: Vec<&mut StoredTensor> = tensors.iter_mut().filter(|tensor| tensor.name.ends_with(end)).collect();
    assert!(!found.is_empty(), "{format:?} has no {end}");
    found.into_iter().for_each(change);
    QuantizedSafetensors::open(write_bytes(&file(&tensors, &[])).path())?.read("layer.weight")
}

fn described(text: &str) -> Result<Vec<f32>> {
    changed(StoredFormat::Int8ConvRot, "comfy_quant", &|tensor| {
        *tensor = StoredTensor::description("layer", text);
    })
}

#[test]
fn other_formats_are_named() {
    let advice = "use a file in f16, fp8, int8 ConvRot, MXFP8, NVFP4 or GGUF";
    for format in ["mxfp4", "nf4", "convrot_w4a4", "asym_w4a8_int8", "svdquant_w4a4", "awq_w4a16", "\u{1b}[31mred"] {
        let text = format!(r#"{{"format": {format:?}}}"#).replace("\\u{1b}", "\\u001b");
        let shown = format.escape_debug().to_string();
        assert_error(described(&text), &["`layer.comfy_quant`", &format!("quantised as {shown},"), advice]);
    }
    for (format, shown) in [("nvfp4", "nvfp4 with ConvRot"), ("convrot_w4a4", "convrot_w4a4 with ConvRot")] {
        let text = format!(r#"{{"format": {format:?}, "convrot": true, "convrot_groupsize": 256}}"#);
        assert_error(described(&text), &["`layer.comfy_quant`", shown, advice]);
    }
    let layer = |end: &str| {
        let weight = StoredTensor::new("blocks.0.x.weight", "U8", &[128, 1], vec![0; 128]);
        let other = StoredTensor::new(format!("blocks.0.x.{end}"), "U8", &[4], vec![0; 4]);
        open(&[weight, other], &[])
    };
    assert_error(layer("weight.quant_state.bitsandbytes__nf4"), &["blocks.0.x", "NF4 (bitsandbytes)", advice]);
    assert_error(layer("weight.quant_state.bitsandbytes__fp4"), &["FP4 (bitsandbytes)", advice]);
    assert_error(layer("weight.absmax"), &["bitsandbytes", advice]);
    assert_error(layer("qweight"), &["GPTQ, AWQ or SVDQuant", advice]);
    assert_error(layer("weight_s_rel"), &["asym_w4a8_int8", advice]);
    assert_error(layer("pre_quant_scale"), &["smoothed activations", advice]);
    // Integers without any description.
    assert_error(layer("bias"), &["`blocks.0.x.bias` is U8", "use a file with"]);
    assert_error(layer("weight_scale"), &["`blocks.0.x.weight_scale`", "scaled weights of unknown format"]);
}

#[test]
fn invalid_descriptions_are_errors() {
    assert_error(described(""), &["invalid quantisation", "`layer.comfy_quant`", "not JSON"]);
    assert_error(described("[1, 2]"), &["names no format"]);
    assert_error(described(r#"{"format": 3}"#), &["names no format"]);
    assert_error(described(&"[".repeat(4096)), &["not JSON"]);
    assert_error(described(&" ".repeat(4097)), &["at most 4096 values"]);
    let group = |size: &str| {
        described(&format!(r#"{{"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": {size}}}"#))
    };
    for size in ["0", "1", "2", "8", "512", "-256", "256.5", "\"256\"", "null", "18446744073709551615", "65536"] {
        assert_error(group(size), &["`layer.comfy_quant`", &format!("group size is {}", size.replace('"', "\\\""))]);
    }
    assert_error(group("1024"), &["`layer.weight`", "256 columns are not whole int8 ConvRot blocks of 1024"]);
    assert!(group("64").is_ok() && group("16").is_ok());
    let metadata = |text: &str| open(&[StoredTensor::floats("a", &[1], &[0.0])], &[("_quantization_metadata", text)]);
    for text in ["", "7", "{}", r#"{"layers": 3}"#, "{\"layers\"\n"] {
        assert_error(metadata(text), &["`_quantization_metadata`", "object `layers`"]);
    }
    assert!(metadata(r#"{"layers": {"elsewhere": {"format": "nonsense"}}}"#).is_ok());
    let lone = [StoredTensor::description("gone", r#"{"format": "mxfp8"}"#)];
    assert_error(open(&lone, &[]), &["`gone.comfy_quant`", "`gone.weight` is missing"]);
}

#[test]
fn missing_and_misshapen_scales_are_errors() {
    let renamed: &dyn Fn(&mut StoredTensor) = &|tensor| tensor.name = "elsewhere".into();
    for format in [StoredFormat::Fp8, StoredFormat::Int8, StoredFormat::Mxfp8, StoredFormat::Nvfp4] {
        let parts = ["invalid quantisation", "`layer.weight_scale`", "missing"];
        assert_error(changed(format, ".weight_scale", renamed), &parts);
    }
    assert_error(changed(StoredFormat::Nvfp4, "_scale_2", renamed), &["`layer.weight_scale_2`", "missing", "NVFP4"]);
    let reshaped = |format, end: &str, dims: &'static [usize]| {
        changed(format, end, &|tensor| {
            let size = tensor.bytes.len() / tensor.dims.iter().product::<usize>().max(1);
            tensor.dims = dims.to_vec();
            tensor.bytes = vec![1; size * dims.iter().product::<usize>()];
        })
    };
    let scale = ".weight_scale";
    assert_error(reshaped(StoredFormat::Fp8, scale, &[2]), &["it is [2]; fp8 of 16x256 needs [1] or [16, 1]"]);
    assert_error(reshaped(StoredFormat::Int8, scale, &[1, 16]), &["it is [1, 16]; int8 of 16x256 needs"]);
    assert_error(reshaped(StoredFormat::Int8, scale, &[0]), &["it is [0]; int8"]);
    assert_error(reshaped(StoredFormat::Mxfp8, scale, &[16, 8]), &["it is [16, 8]; MXFP8 of 32x256 needs [128, 8]"]);
    assert_error(reshaped(StoredFormat::Nvfp4, scale, &[128, 12]), &["[128, 12]", "NVFP4 of 16x256 needs [128, 16]"]);
    assert_error(reshaped(StoredFormat::Nvfp4, "_scale_2", &[2]), &["it is [2]; NVFP4 needs one value"]);
    assert_error(reshaped(StoredFormat::Mxfp8, ".weight", &[256, 16]), &["16 columns", "MXFP8 blocks of 32"]);
    assert_error(reshaped(StoredFormat::Nvfp4, ".weight", &[256, 9]), &["18 columns", "NVFP4 blocks of 16"]);
    assert_error(reshaped(StoredFormat::Int8, ".weight", &[4096]), &["`layer.weight`", "needs a matrix"]);
    assert_error(reshaped(StoredFormat::Int8, ".weight", &[0, 256]), &["`layer.weight`", "it is empty"]);
    assert_error(reshaped(StoredFormat::Nvfp4, ".weight", &[16, 0]), &["`layer.weight`", "it is empty"]);
    let typed = |format, end: &str, dtype| changed(format, end, &|tensor| tensor.dtype = dtype);
    assert_error(typed(StoredFormat::Int8, ".weight", "U8"), &["it is U8; int8 needs I8"]);
    assert_error(typed(StoredFormat::Mxfp8, scale, "I8"), &["it is I8; MXFP8 needs U8 or F8_E8M0"]);
}

#[test]
fn scales_that_are_no_numbers_are_errors() {
    for bits in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let set = |tensor: &mut StoredTensor| tensor.bytes[..4].copy_from_slice(&bits.to_le_bytes());
        for format in [StoredFormat::Fp8, StoredFormat::OldFp8, StoredFormat::Int8, StoredFormat::Int8ConvRot] {
            let end = if format == StoredFormat::OldFp8 { ".scale_weight" } else { ".weight_scale" };
            assert_error(changed(format, end, &set), &[&format!("scale 0 is {bits}"), "damaged"]);
        }
        let parts = ["`layer.weight_scale_2`", "scale 0 is", "damaged"];
        assert_error(changed(StoredFormat::Nvfp4, "_scale_2", &set), &parts);
    }
    let byte = |format, at: usize, byte| changed(format, ".weight_scale", &|tensor| tensor.bytes[at] = byte);
    assert_error(byte(StoredFormat::Mxfp8, 5, 0xFF), &["`layer.weight_scale`", "scale 5 is NaN"]);
    assert_error(byte(StoredFormat::Nvfp4, 7, 0x7F), &["`layer.weight_scale`", "scale 7 is NaN"]);
    assert_error(byte(StoredFormat::Nvfp4, 7, 0xFF), &["scale 7 is NaN"]);
    assert!(byte(StoredFormat::Mxfp8, 5, 0xFE).is_ok() && byte(StoredFormat::Nvfp4, 7, 0x7E).is_ok());
}
