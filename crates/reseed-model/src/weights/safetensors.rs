//! Safetensors files, read strictly and by pieces: opening a file reads its header, a tensor is read when it is wanted,
//! so that loading never holds the file beside the model.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use half::{bf16, f16};
use reseed_ops::{Numbers, Quant, Shape};
use serde_json::{Map, Value, json};

use super::{Source, bytes_at};
use crate::error::{Error, Result};

/// No honest header is longer: the public checkpoints have 30 to 150 kB.
const LONGEST_HEADER: u64 = 16 << 20;
/// Values converted at a time.
const CHUNK: usize = 1 << 18;
/// Values from which on a tensor is large.
const LARGE: usize = 1 << 18;
/// Values of address space for a large tensor: an allocator may keep smaller blocks for itself after they are freed, while
/// these come from the system and go back to it, page by page as they are touched.
const OWN_PAGES: usize = (33 << 20) / size_of::<f32>();

/// Element type of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Eight bits, four of them exponent: a cast without a scale.
    F8E4m3,
}

impl FileType {
    fn parse(word: &str) -> Option<FileType> {
        Some(match word {
            "F32" => FileType::F32,
            "F16" => FileType::F16,
            "BF16" => FileType::Bf16,
            "F8_E4M3" => FileType::F8E4m3,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            FileType::F32 => 4,
            FileType::F16 | FileType::Bf16 => 2,
            FileType::F8E4m3 => 1,
        }
    }

    fn widen(self, bytes: &[u8], values: &mut Vec<f32>) {
        let pair = |b: &[u8]| [b[0], b[1]];
        match self {
            FileType::F32 => values.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            FileType::F16 => values.extend(bytes.chunks_exact(2).map(|b| f16::from_le_bytes(pair(b)).to_f32())),
            FileType::Bf16 => values.extend(bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(pair(b)).to_f32())),
            FileType::F8E4m3 => Quant::E4m3.widen(bytes, values),
        }
    }
}

struct Entry {
    kind: FileType,
    start: u64,
}

/// What a file's bytes come from.
trait Bytes: Read + Seek + Send {}

impl<T: Read + Seek + Send> Bytes for T {}

/// An open file.
pub struct Safetensors {
    path: PathBuf,
    file: Mutex<Box<dyn Bytes>>,
    data: u64,
    entries: BTreeMap<String, Entry>,
    shapes: BTreeMap<String, Shape>,
    metadata: BTreeMap<String, String>,
}

impl Safetensors {
    /// Reads and checks the header.
    pub fn open(path: &Path) -> Result<Safetensors> {
        Safetensors::open_some(path, &|_| true)
    }

    /// The same for some of a file's tensors; the others may be of any type and are not there.
    pub fn open_some(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Safetensors> {
        let io = |source| Error::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        Safetensors::over(path, Box::new(file), length, wanted)
    }

    /// A file that is part of the program, under the name that errors call it. Nothing behind its header is touched before
    /// it is wanted.
    pub fn embedded(name: &'static str, bytes: &'static [u8]) -> Result<Safetensors> {
        Safetensors::over(Path::new(name), Box::new(Cursor::new(bytes)), bytes.len() as u64, &|_| true)
    }

    fn over(path: &Path, mut file: Box<dyn Bytes>, length: u64, wanted: &dyn Fn(&str) -> bool) -> Result<Safetensors> {
        let io = |source| Error::Io { path: path.into(), source };
        let mut first = [0; 8];
        if length < 8 {
            return Err(Error::HeaderLength { path: path.into(), header: 0, file: length });
        }
        file.read_exact(&mut first).map_err(io)?;
        let header = u64::from_le_bytes(first);
        if header > LONGEST_HEADER || header > length - 8 {
            return Err(Error::HeaderLength { path: path.into(), header, file: length });
        }
        let mut text = vec![0; header as usize];
        file.read_exact(&mut text).map_err(io)?;
        let parsed = Header { path, available: length - 8 - header, wanted }.parse(&text)?;
        let (entries, shapes, metadata) = parsed;
        Ok(Safetensors { path: path.into(), file: Mutex::new(file), data: 8 + header, entries, shapes, metadata })
    }

    /// `count` values of a tensor from value `first` on.
    pub fn read_range(&self, name: &str, first: usize, count: usize) -> Result<Vec<f32>> {
        let entry = &self.entries[name];
        assert!(first + count <= self.shapes[name].count(), "a range beyond `{name}`");
        let io = |source| Error::Io { path: self.path.clone(), source };
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let size = entry.kind.bytes();
        file.seek(SeekFrom::Start(self.data + entry.start + (first * size) as u64)).map_err(io)?;
        let mut values = Vec::with_capacity(if count < LARGE { count } else { count.max(OWN_PAGES) });
        let mut bytes = vec![0; CHUNK.min(count) * size];
        while values.len() < count {
            let bytes = &mut bytes[..CHUNK.min(count - values.len()) * size];
            file.read_exact(bytes).map_err(io)?;
            entry.kind.widen(bytes, &mut values);
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
        (self.entries[name].kind == FileType::F8E4m3).then_some(Quant::E4m3)
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        let Some(quant) = self.quant(name) else { return Ok(Numbers::Floats(self.read(name)?)) };
        let (start, count) = (self.data + self.entries[name].start, quant.bytes(self.shapes[name].count()));
        Ok(Numbers::Quant(quant, bytes_at(&self.file, &self.path, start, count)?))
    }
}

type Parsed = (BTreeMap<String, Entry>, BTreeMap<String, Shape>, BTreeMap<String, String>);

struct Header<'a> {
    path: &'a Path,
    available: u64,
    wanted: &'a dyn Fn(&str) -> bool,
}

impl Header<'_> {
    fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Header { path: self.path.into(), reason: reason.into() }
    }

    fn parse(&self, text: &[u8]) -> Result<Parsed> {
        let header: Map<String, Value> =
            serde_json::from_slice(text).map_err(|e| self.wrong(format!("header: {e}")))?;
        let (mut entries, mut shapes, mut metadata) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut extents, mut all) = (Vec::new(), true);
        for (name, value) in header {
            if name == "__metadata__" {
                let strings = value.as_object().ok_or_else(|| self.wrong("`__metadata__` is not an object"))?;
                for (key, value) in strings {
                    let value = value.as_str().ok_or_else(|| self.wrong(format!("metadata `{key}` is no string")))?;
                    metadata.insert(key.clone(), value.to_string());
                }
                continue;
            }
            if !(self.wanted)(&name) {
                all = false;
                continue;
            }
            let (entry, shape, end) = self.tensor(&name, &value)?;
            extents.push((entry.start, end, name.clone()));
            entries.insert(name.clone(), entry);
            shapes.insert(name, shape);
        }
        if all {
            self.cover(extents)?;
        }
        Ok((entries, shapes, metadata))
    }

    fn tensor(&self, name: &str, value: &Value) -> Result<(Entry, Shape, u64)> {
        let field = |key: &str| value.get(key).ok_or_else(|| self.wrong(format!("`{name}` has no {key}")));
        let numbers = |key: &str| -> Result<Vec<u64>> {
            let list = field(key)?.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
            list.ok_or_else(|| self.wrong(format!("{key} of `{name}` is not a list of whole numbers")))
        };
        let word = field("dtype")?.as_str().unwrap_or("of no type").to_string();
        let known = "F32, F16, BF16 or F8_E4M3";
        let wrong_type = || Error::WrongType { path: self.path.into(), name: name.into(), found: word.clone(), known };
        let kind = FileType::parse(&word).ok_or_else(wrong_type)?;
        let dims = numbers("shape")?;
        if dims.len() > 5 {
            return Err(self.wrong(format!("`{name}` has {} dimensions", dims.len())));
        }
        let [start, end] = numbers("data_offsets")?[..] else {
            return Err(self.wrong(format!("data_offsets of `{name}` are not two numbers")));
        };
        let bytes = dims.iter().try_fold(kind.bytes() as u64, |total, &dim| total.checked_mul(dim));
        let reason = match bytes {
            _ if start > end || end > self.available => "the file is cut short or damaged",
            Some(bytes) if bytes == end - start => {
                let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
                return Ok((Entry { kind, start }, Shape::from(&dims[..]), end));
            }
            _ => "its shape needs another number of bytes",
        };
        Err(self.extent(name, start, end, reason))
    }

    /// Tensors stand side by side, without holes or overlaps, up to the end of the file.
    fn cover(&self, mut extents: Vec<(u64, u64, String)>) -> Result<()> {
        extents.sort();
        let mut next = 0;
        for (start, end, name) in extents {
            if start != next {
                return Err(self.extent(&name, start, end, "it overlaps its neighbour or leaves a hole"));
            }
            next = end;
        }
        match next == self.available {
            true => Ok(()),
            false => Err(self.wrong(format!("{} bytes behind the last tensor", self.available - next))),
        }
    }

    fn extent(&self, name: &str, start: u64, end: u64, reason: &'static str) -> Error {
        Error::Extent { path: self.path.into(), name: name.into(), start, end, available: self.available, reason }
    }
}

/// The bytes before the data of a file that holds these f32 tensors one behind the other.
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

/// Appends values as a file holds them.
pub fn write_values(to: &mut impl Write, values: &[f32]) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(CHUNK.min(values.len()) * 4);
    for values in values.chunks(CHUNK) {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        to.write_all(&bytes)?;
    }
    Ok(())
}
