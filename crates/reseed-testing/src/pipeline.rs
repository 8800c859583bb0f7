//! Golden tests of the pipeline: inputs and outputs of the reference pipeline.

pub mod golden_jobs;
pub mod job;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::bf16;
use reseed_media::{Frame, Samples, Size};
use serde_json::Value;

pub fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pipeline").join(name)
}

pub fn json(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(golden_path(name)).unwrap()).unwrap()
}

pub fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a whole number")) as usize
}

pub fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// A size `[height, width]`.
pub fn size(value: &Value) -> Size {
    let sides = numbers(value);
    Size { h: sides[0], w: sides[1] }
}

/// A tensor of a golden file, converted to f32.
#[derive(Clone)]
pub struct GoldenTensor {
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

/// A golden file of the pipeline: F32, BF16 and U8 tensors, and the settings that produced them.
pub struct PipelineGolden {
    pub case: Value,
    pub tensors: BTreeMap<String, GoldenTensor>,
}

impl PipelineGolden {
    pub fn open(name: &str) -> PipelineGolden {
        PipelineGolden::read(&golden_path(&format!("{name}.safetensors")))
    }

    pub fn read(path: &Path) -> PipelineGolden {
        let bytes = fs::read(path).unwrap();
        let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..start]).unwrap();
        let metadata = header.remove("__metadata__").unwrap();
        let case = serde_json::from_str(metadata["case"].as_str().unwrap()).unwrap();
        let tensor = |entry: &Value| {
            let range = numbers(&entry["data_offsets"]);
            let data = &bytes[start + range[0]..start + range[1]];
            let values = match entry["dtype"].as_str().unwrap() {
                "F32" => data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
                "BF16" => data.chunks_exact(2).map(|b| bf16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect(),
                "U8" => data.iter().map(|b| f32::from(*b)).collect(),
                other => panic!("{}: unknown type {other}", path.display()),
            };
            GoldenTensor { dims: numbers(&entry["shape"]), values }
        };
        let tensors = header.iter().map(|(name, entry)| (name.clone(), tensor(entry))).collect();
        PipelineGolden { case, tensors }
    }

    pub fn tensor(&self, name: &str) -> &GoldenTensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// The frames of a U8 tensor `[N, H, W, 3 or 4]`.
    pub fn frames(&self, name: &str) -> Vec<Frame> {
        let GoldenTensor { dims, values } = self.tensor(name);
        let &[_, h, w, c] = &dims[..] else { panic!("{name}: {dims:?}") };
        let frame = |pixels: &[f32]| {
            let pick = |keep: &dyn Fn(usize) -> bool| {
                let kept = pixels.iter().enumerate().filter(|(i, _)| keep(i % c));
                Samples::U8(kept.map(|(_, v)| *v as u8).collect())
            };
            Frame { size: Size { h, w }, samples: pick(&|i| i < 3), alpha: (c == 4).then(|| pick(&|i| i == 3)) }
        };
        values.chunks_exact(h * w * c).map(frame).collect()
    }

    /// The values `[H, W, C]` of each frame of a tensor `[T, C, H, W]`.
    pub fn frame_values(&self, name: &str) -> Vec<Vec<f32>> {
        let GoldenTensor { dims, values } = self.tensor(name);
        let &[_, c, h, w] = &dims[..] else { panic!("{name}: {dims:?}") };
        let interleaved = |planes: &[f32]| (0..h * w * c).map(|i| planes[i % c * h * w + i / c]).collect();
        values.chunks_exact(h * w * c).map(interleaved).collect()
    }

    /// Height and width of a tensor `[T, C, H, W]`.
    pub fn plane(&self, name: &str) -> Size {
        let dims = &self.tensor(name).dims;
        Size { h: dims[2], w: dims[3] }
    }
}

/// Largest and mean absolute difference.
#[derive(Debug, Default, Clone, Copy)]
pub struct Distance {
    pub max: f64,
    pub mean: f64,
}

pub fn distance(got: &[Vec<f32>], want: &[Vec<f32>]) -> Distance {
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), want.iter().map(Vec::len).collect::<Vec<_>>());
    let mut total = Distance::default();
    let mut count = 0.0;
    for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
        let d = f64::from((got - want).abs());
        assert!(!d.is_nan(), "{got} {want}");
        total.max = total.max.max(d);
        total.mean += d;
        count += 1.0;
    }
    Distance { max: total.max, mean: total.mean / count }
}
