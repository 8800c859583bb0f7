//! Reader of safetensors files. Opening a file reads and validates its header; tensors are read on request, so that the
//! whole file is never in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use reseed_ops::{Numbers, Quant, Shape};
use serde_json::{Map, Value, json};

use super::element::{ElementType, SUPPORTED};
use super::{Reader, Source, bytes_at, name_problem};
use crate::error::{Error, Result, excerpt};

/// Limit of the header length. The headers of the public checkpoints have 30 to 150 kB.
const MAX_HEADER: u64 = 16 << 20;
/// Values per read: they stay in a core's second-level cache until they are decoded.
const CHUNK: usize = 1 << 15;
/// Minimum number of values of a large tensor.
const LARGE: usize = 1 << 18;
/// Minimum capacity of the buffer for a large tensor, in values. Allocators map blocks of this size directly from the
/// system and return them when freed, while they may cache smaller blocks. Untouched pages use no memory.
const MAPPED_CAPACITY: usize = (33 << 20) / size_of::<f32>();

/// Prefixes that some converters add to every name of a network.
const PREFIXES: [&str; 5] = ["model.diffusion_model.", "diffusion_model.", "model.", "first_stage_model.", "vae."];

/// What a file is expected to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Tensors under their own names.
    Tensors,
    /// A network, whose names may have a prefix.
    Network,
    /// A network that may also have tensors that are no floats.
    Quantized,
}

struct Entry {
    kind: ElementType,
    start: u64,
}

/// An open safetensors file.
pub struct Safetensors {
    path: PathBuf,
    file: Mutex<Box<dyn Reader>>,
    data: u64,
    entries: BTreeMap<String, Entry>,
    shapes: BTreeMap<String, Shape>,
    metadata: BTreeMap<String, String>,
}

impl Safetensors {
    /// Opens a file and validates its header.
    pub fn open(path: &Path) -> Result<Safetensors> {
        Safetensors::open_filtered(path, &|_| true)
    }

    /// Opens a file and ignores all tensors that `wanted` rejects. Ignored tensors may have any type.
    pub fn open_filtered(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Safetensors> {
        let (file, length) = Safetensors::file(path)?;
        Safetensors::from_reader(path, file, length, Content::Tensors, wanted)
    }

    /// Opens the file of a network, whose names may have a prefix.
    pub fn open_network(path: &Path) -> Result<Safetensors> {
        let (file, length) = Safetensors::file(path)?;
        Safetensors::from_reader(path, file, length, Content::Network, &|_| true)
    }

    /// Opens the file of a network that may be quantised: tensors of any element type.
    pub(crate) fn open_quantized(path: &Path) -> Result<Safetensors> {
        let (file, length) = Safetensors::file(path)?;
        Safetensors::from_reader(path, file, length, Content::Quantized, &|_| true)
    }

    fn file(path: &Path) -> Result<(Box<dyn Reader>, u64)> {
        let io = |source| Error::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        Ok((Box::new(file), length))
    }

    pub(crate) fn from_reader(
        path: &Path,
        mut file: Box<dyn Reader>,
        length: u64,
        content: Content,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Safetensors> {
        let io = |source| Error::Io { path: path.into(), source };
        let mut first = [0; 8];
        if length < 8 {
            return Err(Error::InvalidHeaderLength { path: path.into(), header: 0, file: length });
        }
        file.read_exact(&mut first).map_err(io)?;
        let header = u64::from_le_bytes(first);
        if header > MAX_HEADER || header > length - 8 {
            return Err(Error::InvalidHeaderLength { path: path.into(), header, file: length });
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(io)?;
        let (entries, shapes, metadata) =
            Header { path, available: length - 8 - header, content, wanted }.parse(&text)?;
        Ok(Safetensors { path: path.into(), file: Mutex::new(file), data: 8 + header, entries, shapes, metadata })
    }

    /// Element type of a tensor.
    pub(crate) fn element(&self, name: &str) -> Option<ElementType> {
        self.entries.get(name).map(|entry| entry.kind)
    }

    /// Reads the stored bytes of a tensor.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let entry = &self.entries[name];
        bytes_at(&self.file, &self.path, self.data + entry.start, entry.kind.bytes() * self.shapes[name].count())
    }

    /// Reads `count` values of a tensor, starting at value `first`.
    pub fn read_range(&self, name: &str, first: usize, count: usize) -> Result<Vec<f32>> {
        let entry = &self.entries[name];
        assert!(first + count <= self.shapes[name].count(), "values {first}..{} of `{name}`", first + count);
        let io = |source| Error::Io { path: self.path.clone(), source };
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let size = entry.kind.bytes();
        file.seek(SeekFrom::Start(self.data + entry.start + (first * size) as u64)).map_err(io)?;
        let mut values = Vec::with_capacity(if count < LARGE { count } else { count.max(MAPPED_CAPACITY) });
        let mut bytes = vec![0; CHUNK.min(count) * size];
        while values.len() < count {
            let bytes = &mut bytes[..CHUNK.min(count - values.len()) * size];
            file.read_exact(bytes).map_err(io)?;
            entry.kind.decode(bytes, &mut values);
        }
        Ok(values)
    }
}

impl Source for Safetensors {
    fn path(&self) -> &Path {
        &self.path
    }

    fn shapes(&self) -> &BTreeMap<String, Shape> {
        &self.shapes
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        self.read_range(name, 0, self.shapes[name].count())
    }

    fn quant(&self, name: &str) -> Option<Quant> {
        (self.entries[name].kind == ElementType::F8E4m3).then_some(Quant::E4m3)
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        let Some(quant) = self.quant(name) else { return Ok(Numbers::Floats(self.read(name)?)) };
        let (start, count) = (self.data + self.entries[name].start, quant.bytes(self.shapes[name].count()));
        Ok(Numbers::Quant(quant, bytes_at(&self.file, &self.path, start, count)?))
    }
}

/// A name without the prefix of its network.
pub(crate) fn stripped(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

type Parsed = (BTreeMap<String, Entry>, BTreeMap<String, Shape>, BTreeMap<String, String>);

struct Header<'a> {
    path: &'a Path,
    available: u64,
    content: Content,
    wanted: &'a dyn Fn(&str) -> bool,
}

impl Header<'_> {
    fn invalid(&self, reason: impl Into<String>) -> Error {
        Error::InvalidHeader { path: self.path.into(), reason: reason.into() }
    }

    fn parse(&self, text: &[u8]) -> Result<Parsed> {
        let header: Map<String, Value> =
            serde_json::from_slice(text).map_err(|e| self.invalid(format!("header: {e}")))?;
        let (mut entries, mut shapes, mut metadata) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut extents, mut all) = (Vec::new(), true);
        for (name, value) in header {
            if name == "__metadata__" {
                let strings = value.as_object().ok_or_else(|| self.invalid("`__metadata__` is not an object"))?;
                for (key, value) in strings {
                    let not_text = || self.invalid(format!("metadata `{}` is not a string", excerpt(key)));
                    let value = value.as_str().ok_or_else(not_text)?;
                    metadata.insert(key.clone(), value.to_string());
                }
                continue;
            }
            if let Some(problem) = name_problem(&name) {
                return Err(self.invalid(problem));
            }
            if !(self.wanted)(&name) {
                all = false;
                continue;
            }
            let (entry, shape, end) = self.tensor(&name, &value)?;
            let short = if self.content == Content::Tensors { &name } else { stripped(&name) }.to_string();
            extents.push((entry.start, end, name));
            if entries.insert(short.clone(), entry).is_some() {
                return Err(self.invalid(format!("`{short}` occurs twice, with and without a prefix")));
            }
            shapes.insert(short, shape);
        }
        if all {
            self.check_coverage(extents)?;
        }
        Ok((entries, shapes, metadata))
    }

    fn tensor(&self, name: &str, value: &Value) -> Result<(Entry, Shape, u64)> {
        let field = |key: &str| value.get(key).ok_or_else(|| self.invalid(format!("`{name}` has no {key}")));
        let numbers = |key: &str| -> Result<Vec<u64>> {
            let list = field(key)?.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
            list.ok_or_else(|| self.invalid(format!("{key} of `{name}` is not a list of integers")))
        };
        let dtype = excerpt(field("dtype")?.as_str().unwrap_or("of no type"));
        let kind = ElementType::parse(&dtype).filter(|kind| self.content == Content::Quantized || kind.is_common());
        let kind = kind.ok_or_else(|| Error::UnsupportedType {
            path: self.path.into(),
            name: name.into(),
            found: dtype,
            supported: SUPPORTED,
        })?;
        let dims = numbers("shape")?;
        if dims.len() > 5 {
            return Err(self.invalid(format!("`{name}` has {} dimensions; at most 5 are supported", dims.len())));
        }
        let [start, end] = numbers("data_offsets")?[..] else {
            return Err(self.invalid(format!("data_offsets of `{name}` are not two numbers")));
        };
        let bytes = dims.iter().try_fold(kind.bytes() as u64, |total, &dim| total.checked_mul(dim));
        let reason = match bytes {
            _ if start > end || end > self.available => "the file is cut short or damaged; copy or download it again",
            Some(bytes) if bytes == end - start => {
                let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
                return Ok((Entry { kind, start }, Shape::from(&dims[..]), end));
            }
            _ => "its shape has a different number of bytes",
        };
        Err(self.invalid_offsets(name, start, end, reason))
    }

    /// Checks that the tensors cover the data without gaps and overlaps.
    fn check_coverage(&self, mut extents: Vec<(u64, u64, String)>) -> Result<()> {
        extents.sort();
        let mut next = 0;
        for (start, end, name) in extents {
            if start != next {
                return Err(self.invalid_offsets(&name, start, end, "it overlaps another tensor or leaves a gap"));
            }
            next = end;
        }
        match next == self.available {
            true => Ok(()),
            false => Err(self.invalid(format!("{} bytes after the last tensor", self.available - next))),
        }
    }

    fn invalid_offsets(&self, name: &str, start: u64, end: u64, reason: &'static str) -> Error {
        Error::InvalidOffsets {
            path: self.path.into(),
            name: name.into(),
            start,
            end,
            available: self.available,
            reason,
        }
    }
}

/// Header of a file with these f32 tensors in this order.
pub fn header(tensors: &[(&str, Shape)], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut map = Map::new();
    if !metadata.is_empty() {
        map.insert("__metadata__".into(), json!(metadata));
    }
    let mut start = 0;
    for (name, shape) in tensors {
        let end = start + 4 * shape.count();
        map.insert(name.to_string(), json!({"dtype": "F32", "shape": shape.dims(), "data_offsets": [start, end]}));
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    bytes
}

/// Writes the values of an f32 tensor.
pub fn write_values(to: &mut impl Write, values: &[f32]) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(CHUNK.min(values.len()) * 4);
    for values in values.chunks(CHUNK) {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        to.write_all(&bytes)?;
    }
    Ok(())
}
