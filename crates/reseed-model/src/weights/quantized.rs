//! Transformers in safetensors files whose matrices are quantised as ComfyUI writes them. Each matrix `NAME.weight` has
//! its scales beside it. Its format is described by JSON: in the tensor `NAME.comfy_quant`, in the metadata
//! `_quantization_metadata`, or in older files by the tensor `scaled_fp8` for all matrices. Files without any of these
//! are read as they are.

mod layer;

use std::collections::BTreeMap;
use std::path::Path;

use reseed_ops::{Numbers, Quant, Shape};
use serde_json::Value;

use self::layer::{Format, Layer};
use super::element::{ElementType, SUPPORTED};
use super::safetensors::{Safetensors, stripped};
use super::{Source, TensorList};
use crate::error::{Error, Result, excerpt};

/// Metadata with the formats of all layers.
const METADATA: &str = "_quantization_metadata";
/// Limit of the description of one layer. The public ones have less than 80 bytes.
const MAX_DESCRIPTION: usize = 4096;
/// Tensor that marks a file of the older fp8 format.
const MARKER: &str = "scaled_fp8";

const WEIGHT: &str = ".weight";
const DESCRIPTION: &str = ".comfy_quant";
const SCALE: &str = ".weight_scale";
const SECOND_SCALE: &str = ".weight_scale_2";
/// The name of [`SCALE`] in the older fp8 format.
const OLD_SCALE: &str = ".scale_weight";
/// Scales of activations. Activations are never quantised here, so these are not needed.
const INPUT_SCALES: [&str; 2] = [".input_scale", ".scale_input"];
/// Factors of activations, which the matrix does not contain.
const SMOOTHING: &str = ".pre_quant_scale";

/// Ends of tensor names that identify formats of other libraries.
const OTHER_FORMATS: [(&str, &str); 7] = [
    (".quant_state.bitsandbytes__nf4", "NF4 (bitsandbytes)"),
    (".quant_state.bitsandbytes__fp4", "FP4 (bitsandbytes)"),
    (".weight.absmax", "8 or 4 bits of bitsandbytes"),
    (".weight.SCB", "INT8 of bitsandbytes"),
    (".qweight", "GPTQ, AWQ or SVDQuant"),
    (".weight_s_rel", "4 bits with a code book (asym_w4a8_int8)"),
    (".weight_scale_inv", "fp8 with inverse block scales"),
];

/// An open safetensors file of a transformer, quantised or not.
pub struct QuantizedSafetensors {
    file: Safetensors,
    /// Quantised matrices by the name of their tensor.
    layers: BTreeMap<String, Layer>,
    shapes: BTreeMap<String, Shape>,
}

impl QuantizedSafetensors {
    /// Opens a file, validates its header and the formats, shapes and element types of its quantised matrices.
    pub fn open(path: &Path) -> Result<QuantizedSafetensors> {
        QuantizedSafetensors::new(Safetensors::open_quantized(path)?)
    }

    pub(crate) fn new(file: Safetensors) -> Result<QuantizedSafetensors> {
        reject_other_formats(&file)?;
        let mut layers = BTreeMap::new();
        for (base, format) in formats(&file)? {
            layers.insert(format!("{base}{WEIGHT}"), Layer::new(&file, &base, format)?);
        }
        if let Some(name) = file.shapes().keys().find(|name| is_scale(name) && !belongs_to(name, &layers)) {
            return Err(Error::ScaledWeights { path: file.path().into(), name: name.clone() });
        }
        let mut shapes = BTreeMap::new();
        for (name, shape) in file.shapes() {
            let element = file.element(name).unwrap_or(ElementType::F32);
            match layers.get(name) {
                Some(layer) => drop(shapes.insert(name.clone(), layer.shape())),
                None if belongs_to(name, &layers) => {}
                None if element.is_float() => drop(shapes.insert(name.clone(), *shape)),
                None => {
                    let (path, name, found) = (file.path().into(), name.clone(), element.name().into());
                    return Err(Error::UnsupportedType { path, name, found, supported: SUPPORTED });
                }
            }
        }
        Ok(QuantizedSafetensors { file, layers, shapes })
    }

    /// Removes the padding of matrices: some formats store whole blocks of rows and columns. `expected` has the shapes
    /// of the network.
    pub(crate) fn crop(&mut self, expected: &TensorList) {
        for (name, shape) in expected {
            if let Some(layer) = self.layers.get_mut(name) {
                layer.crop(*shape);
                self.shapes.insert(name.clone(), layer.shape());
            }
        }
    }
}

impl Source for QuantizedSafetensors {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        &self.shapes
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.file.metadata(key)
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        match self.layers.get(name) {
            Some(layer) => layer.read(&self.file),
            None => self.file.read(name),
        }
    }

    fn quant(&self, name: &str) -> Option<Quant> {
        match self.layers.get(name) {
            Some(layer) => layer.quant(),
            None => self.file.quant(name),
        }
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        match self.layers.get(name) {
            Some(layer) => layer.numbers(&self.file),
            None => self.file.numbers(name),
        }
    }
}

/// Names the formats that are recognised and not supported.
fn reject_other_formats(file: &Safetensors) -> Result<()> {
    for (end, format) in OTHER_FORMATS {
        if let Some(name) = file.shapes().keys().find(|name| name.ends_with(end)) {
            return Err(unsupported(file, name, format));
        }
    }
    match file.shapes().keys().find(|name| name.ends_with(SMOOTHING)) {
        Some(name) => Err(unsupported(file, name, "NVFP4 with smoothed activations (AWQ)")),
        None => Ok(()),
    }
}

fn unsupported(file: &Safetensors, name: &str, format: &str) -> Error {
    Error::UnsupportedQuantization { path: file.path().into(), name: name.into(), format: format.into() }
}

fn invalid(file: &Safetensors, name: &str, reason: impl Into<String>) -> Error {
    Error::InvalidQuantization { path: file.path().into(), name: name.into(), reason: reason.into() }
}

/// Whether a tensor describes a quantised matrix, or all of them.
fn belongs_to(name: &str, layers: &BTreeMap<String, Layer>) -> bool {
    let ends = [DESCRIPTION, SCALE, SECOND_SCALE, OLD_SCALE].into_iter().chain(INPUT_SCALES);
    let mut bases = ends.filter_map(|end| name.strip_suffix(end));
    name == MARKER || bases.any(|base| layers.contains_key(&format!("{base}{WEIGHT}")))
}

fn is_scale(name: &str) -> bool {
    [DESCRIPTION, SCALE, SECOND_SCALE, OLD_SCALE].iter().any(|end| name.ends_with(end))
}

/// Formats of the quantised matrices by their names without `.weight`.
fn formats(file: &Safetensors) -> Result<BTreeMap<String, Format>> {
    let mut formats = described_by_metadata(file)?;
    for name in file.shapes().keys() {
        if let Some(base) = name.strip_suffix(DESCRIPTION).filter(|base| !formats.contains_key(*base)) {
            if !file.shapes().contains_key(&format!("{base}{WEIGHT}")) {
                return Err(invalid(file, name, format!("`{base}{WEIGHT}` is missing")));
            }
            formats.insert(base.into(), described_by_tensor(file, name)?);
        }
    }
    // The older format has a scale for each fp8 matrix and no descriptions.
    for name in file.shapes().keys() {
        let base = name.strip_suffix(OLD_SCALE).or_else(|| name.strip_suffix(SCALE));
        let Some(base) = base.filter(|base| !formats.contains_key(*base)) else { continue };
        let weight = file.element(&format!("{base}{WEIGHT}"));
        if matches!(weight, Some(ElementType::F8E4m3 | ElementType::F8E5m2)) && !has_second(file, base) {
            formats.insert(base.into(), Format::Fp8);
        }
    }
    Ok(formats)
}

fn has_second(file: &Safetensors, base: &str) -> bool {
    file.shapes().contains_key(&format!("{base}{SECOND_SCALE}"))
}

fn described_by_metadata(file: &Safetensors) -> Result<BTreeMap<String, Format>> {
    let Some(text) = file.metadata(METADATA) else { return Ok(BTreeMap::new()) };
    let json: Option<Value> = serde_json::from_str(text).ok();
    let Some(Value::Object(layers)) = json.as_ref().and_then(|json| json.get("layers")) else {
        return Err(invalid(file, METADATA, "it is not JSON with an object `layers`"));
    };
    let mut formats = BTreeMap::new();
    for (name, description) in layers {
        let (base, name) = (stripped(name), excerpt(name));
        // A file of several networks may describe those that are elsewhere.
        if file.shapes().contains_key(&format!("{base}{WEIGHT}")) {
            formats.insert(base.into(), Format::parse(file, &name, description)?);
        }
    }
    Ok(formats)
}

fn described_by_tensor(file: &Safetensors, name: &str) -> Result<Format> {
    if file.element(name) != Some(ElementType::U8) || file.shapes()[name].count() > MAX_DESCRIPTION {
        return Err(invalid(file, name, format!("it is not U8 with at most {MAX_DESCRIPTION} values")));
    }
    match serde_json::from_slice(&file.bytes(name)?) {
        Ok(description) => Format::parse(file, name, &description),
        Err(_) => Err(invalid(file, name, "it is not JSON")),
    }
}
