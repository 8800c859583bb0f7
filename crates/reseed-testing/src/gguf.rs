//! A builder of GGUF files that lets a test damage every field.

use half::f16;

/// The storage type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    F32,
    F16,
    Q8_0,
    Q4K,
}

impl GgufType {
    /// The type number of the GGUF format.
    pub fn number(self) -> u32 {
        match self {
            GgufType::F32 => 0,
            GgufType::F16 => 1,
            GgufType::Q8_0 => 8,
            GgufType::Q4K => 12,
        }
    }

    /// Quantises values: returns the stored bytes and the dequantised values.
    pub fn store(self, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let parts: Vec<(Vec<u8>, Vec<f32>)> = match self {
            GgufType::F32 => values.iter().map(|v| (v.to_le_bytes().to_vec(), vec![*v])).collect(),
            GgufType::F16 => {
                values.iter().map(|v| (f16::from_f32(*v).to_le_bytes().to_vec(), vec![round(*v)])).collect()
            }
            GgufType::Q8_0 => values.chunks_exact(32).map(q8_0).collect(),
            GgufType::Q4K => values.chunks_exact(256).map(q4_k).collect(),
        };
        (parts.iter().flat_map(|p| p.0.clone()).collect(), parts.into_iter().flat_map(|p| p.1).collect())
    }
}

/// Rounds to f16.
fn round(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}

fn q8_0(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let scale = round(values.iter().fold(0f32, |top, v| top.max(v.abs())) / 127.0);
    let quants: Vec<i8> = values.iter().map(|v| (v / scale).round() as i8).collect();
    let mut bytes = f16::from_f32(scale).to_le_bytes().to_vec();
    bytes.extend(quants.iter().map(|&q| q as u8));
    (bytes, quants.iter().map(|&q| scale * f32::from(q)).collect())
}

/// Scales and minima are pseudo-random over all six bits, so that a test covers every bit of the packing.
fn q4_k(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (scale, minimum) = (round(2f32.powi(-12)), round(2f32.powi(-9)));
    let part = |v: f32| (v.abs() * 1e6) as usize;
    let scales: Vec<u8> = (0..8).map(|j| (part(values[32 * j]) % 64) as u8).collect();
    let minima: Vec<u8> = (0..8).map(|j| (part(values[32 * j + 1]) % 64) as u8).collect();
    let nibbles: Vec<u8> = values.iter().map(|v| (part(*v) / 64 % 16) as u8).collect();
    let mut packed = [0u8; 12];
    for j in 0..4 {
        packed[j] = scales[j] | scales[j + 4] >> 4 << 6;
        packed[j + 4] = minima[j] | minima[j + 4] >> 4 << 6;
        packed[j + 8] = scales[j + 4] & 15 | (minima[j + 4] & 15) << 4;
    }
    let mut bytes = [f16::from_f32(scale).to_le_bytes(), f16::from_f32(minimum).to_le_bytes()].concat();
    bytes.extend(packed);
    for pair in nibbles.chunks_exact(64) {
        bytes.extend((0..32).map(|i| pair[i] | pair[i + 32] << 4));
    }
    let value =
        |(i, q): (usize, &u8)| scale * f32::from(scales[i / 32]) * f32::from(*q) - minimum * f32::from(minima[i / 32]);
    (bytes, nibbles.iter().enumerate().map(value).collect())
}

/// A tensor of a [`GgufBuilder`].
#[derive(Clone)]
pub struct GgufTensor {
    pub name: String,
    /// Outermost first.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub bytes: Vec<u8>,
}

/// The contents of a GGUF file.
#[derive(Clone)]
pub struct GgufBuilder {
    pub magic: [u8; 4],
    pub version: u32,
    /// Metadata fields with string values.
    pub strings: Vec<(String, String)>,
    pub shapes: Vec<(String, Vec<u32>)>,
    pub alignment: Option<u32>,
    pub tensors: Vec<GgufTensor>,
}

fn write_string(to: &mut Vec<u8>, string: &str) {
    to.extend((string.len() as u64).to_le_bytes());
    to.extend(string.as_bytes());
}

impl GgufBuilder {
    pub fn new(tensors: Vec<GgufTensor>) -> GgufBuilder {
        let strings = vec![("general.architecture".to_string(), "seedvr2".to_string())];
        GgufBuilder { magic: *b"GGUF", version: 3, strings, shapes: Vec::new(), alignment: None, tensors }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let alignment = self.alignment.unwrap_or(32) as usize;
        let mut to = [&self.magic[..], &self.version.to_le_bytes()].concat();
        to.extend((self.tensors.len() as u64).to_le_bytes());
        // Four more fields of types that the reader skips: a bool, an f64, an array of strings, an array of bytes.
        let fields = self.strings.len() + self.shapes.len() + usize::from(self.alignment.is_some()) + 4;
        to.extend((fields as u64).to_le_bytes());
        self.fields(&mut to);
        let mut start = 0;
        for tensor in &self.tensors {
            write_string(&mut to, &tensor.name);
            to.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().rev().for_each(|dim| to.extend(dim.to_le_bytes()));
            to.extend(tensor.kind.to_le_bytes());
            to.extend((start as u64).to_le_bytes());
            start += tensor.bytes.len().next_multiple_of(alignment);
        }
        for tensor in &self.tensors {
            to.resize(to.len().next_multiple_of(alignment), 0);
            to.extend(&tensor.bytes);
        }
        to
    }

    fn fields(&self, to: &mut Vec<u8>) {
        let mut field = |key: &str, kind: u32, value: &[u8]| {
            write_string(to, key);
            to.extend(kind.to_le_bytes());
            to.extend(value);
        };
        for (key, value) in &self.strings {
            let mut bytes = Vec::new();
            write_string(&mut bytes, value);
            field(key, 8, &bytes);
        }
        let array = |of: u32, count: u64, items: &[u8]| [&of.to_le_bytes()[..], &count.to_le_bytes(), items].concat();
        for (name, shape) in &self.shapes {
            let items: Vec<u8> = shape.iter().flat_map(|n| n.to_le_bytes()).collect();
            field(&format!("comfy.gguf.orig_shape.{name}"), 9, &array(5, shape.len() as u64, &items));
        }
        if let Some(alignment) = self.alignment {
            field("general.alignment", 4, &alignment.to_le_bytes());
        }
        field("test.bool", 7, &[1]);
        field("test.f64", 12, &0.5f64.to_le_bytes());
        let mut strings = Vec::new();
        ["one", "two"].into_iter().for_each(|string| write_string(&mut strings, string));
        field("test.strings", 9, &array(8, 2, &strings));
        field("test.bytes", 9, &array(0, 3, &[1, 2, 3]));
    }
}
