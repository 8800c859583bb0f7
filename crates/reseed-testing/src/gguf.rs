//! A writer of GGUF files, field by field, so that each can be wrong.

use half::f16;

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    Q8_0,
    Q4K,
}

impl Kind {
    pub fn number(self) -> u32 {
        match self {
            Kind::F32 => 0,
            Kind::F16 => 1,
            Kind::Q8_0 => 8,
            Kind::Q4K => 12,
        }
    }

    /// The bytes of some values, and the values that those bytes stand for.
    pub fn store(self, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let parts: Vec<(Vec<u8>, Vec<f32>)> = match self {
            Kind::F32 => values.iter().map(|v| (v.to_le_bytes().to_vec(), vec![*v])).collect(),
            Kind::F16 => values.iter().map(|v| (f16::from_f32(*v).to_le_bytes().to_vec(), vec![round(*v)])).collect(),
            Kind::Q8_0 => values.chunks_exact(32).map(q8_0).collect(),
            Kind::Q4K => values.chunks_exact(256).map(q4_k).collect(),
        };
        (parts.iter().flat_map(|p| p.0.clone()).collect(), parts.into_iter().flat_map(|p| p.1).collect())
    }
}

fn round(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}

fn q8_0(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let scale = round(values.iter().fold(0f32, |top, v| top.max(v.abs())) / 127.0);
    let whole: Vec<i8> = values.iter().map(|v| (v / scale).round() as i8).collect();
    let mut bytes = f16::from_f32(scale).to_le_bytes().to_vec();
    bytes.extend(whole.iter().map(|&q| q as u8));
    (bytes, whole.iter().map(|&q| scale * f32::from(q)).collect())
}

/// Every sub-block gets a scale and a minimum of its own, spread over all six bits.
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

/// A tensor before it is written.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    /// Outermost first.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub bytes: Vec<u8>,
}

/// A file before it is written.
#[derive(Clone)]
pub struct Draft {
    pub magic: [u8; 4],
    pub version: u32,
    pub words: Vec<(String, String)>,
    pub shapes: Vec<(String, Vec<u32>)>,
    pub alignment: Option<u32>,
    pub tensors: Vec<Tensor>,
}

fn word(to: &mut Vec<u8>, word: &str) {
    to.extend((word.len() as u64).to_le_bytes());
    to.extend(word.as_bytes());
}

impl Draft {
    pub fn new(tensors: Vec<Tensor>) -> Draft {
        let words = vec![("general.architecture".to_string(), "seedvr2".to_string())];
        Draft { magic: *b"GGUF", version: 3, words, shapes: Vec::new(), alignment: None, tensors }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let alignment = self.alignment.unwrap_or(32) as usize;
        let mut to = [&self.magic[..], &self.version.to_le_bytes()].concat();
        to.extend((self.tensors.len() as u64).to_le_bytes());
        // Beside what matters, a field of every other sort: a truth, a double, words, and bytes.
        let fields = self.words.len() + self.shapes.len() + usize::from(self.alignment.is_some()) + 4;
        to.extend((fields as u64).to_le_bytes());
        self.fields(&mut to);
        let mut start = 0;
        for tensor in &self.tensors {
            word(&mut to, &tensor.name);
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
            word(to, key);
            to.extend(kind.to_le_bytes());
            to.extend(value);
        };
        for (key, value) in &self.words {
            let mut bytes = Vec::new();
            word(&mut bytes, value);
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
        field("a.truth", 7, &[1]);
        field("a.double", 12, &0.5f64.to_le_bytes());
        let mut words = Vec::new();
        ["one", "two"].into_iter().for_each(|w| word(&mut words, w));
        field("some.words", 9, &array(8, 2, &words));
        field("some.bytes", 9, &array(0, 3, &[1, 2, 3]));
    }
}
