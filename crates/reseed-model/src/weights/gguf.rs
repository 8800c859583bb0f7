//! Reader of GGUF files of a transformer. Opening a file reads and validates its header; tensors are read on request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use half::{bf16, f16};
use reseed_ops::{Numbers, Quant, Shape};

use super::{Reader, Source, bytes_at, name_problem};
use crate::error::{Error, Result, excerpt};

/// Prefix that some converters add to every name.
const PREFIX: &str = "model.diffusion_model.";
/// Key prefix of the original shape of a tensor, for shapes that GGUF cannot represent.
const ORIGINAL_SHAPE: &str = "comfy.gguf.orig_shape.";
/// A tensor that identifies SeedVR2 transformers.
const IDENTIFYING_TENSOR: &str = "vid_in.proj.weight";
/// Default alignment of tensor data in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Limit of tensors, fields and bytes of a string in a valid file.
const MAX_COUNT: u64 = 1 << 20;
/// Limit of the header length. The headers of the public files have 100 to 200 kB.
const MAX_HEADER: u64 = 64 << 20;
/// Values per read, a multiple of every block size.
const CHUNK: usize = 1 << 18;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GgmlType {
    F32,
    F16,
    Bf16,
    Quant(Quant),
}

impl GgmlType {
    /// Type by its number in the file.
    fn parse(number: u32) -> Option<GgmlType> {
        Some(match number {
            0 => GgmlType::F32,
            1 => GgmlType::F16,
            8 => GgmlType::Quant(Quant::Q8_0),
            12 => GgmlType::Quant(Quant::Q4K),
            30 => GgmlType::Bf16,
            _ => return None,
        })
    }

    /// Name of a type number, supported or not.
    fn name(number: u32) -> String {
        const NAMES: [&str; 15] = [
            "F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K",
            "Q5_K", "Q6_K",
        ];
        NAMES.get(number as usize).map_or_else(|| format!("of type {number}"), |name| name.to_string())
    }

    /// Values per block and bytes per block.
    fn block(self) -> (usize, usize) {
        match self {
            GgmlType::F32 => (1, 4),
            GgmlType::F16 | GgmlType::Bf16 => (1, 2),
            GgmlType::Quant(quant) => quant.block(),
        }
    }

    /// Converts whole blocks to f32 and appends them.
    fn decode(self, bytes: &[u8], values: &mut Vec<f32>) {
        let blocks = bytes.chunks_exact(self.block().1);
        match self {
            GgmlType::F32 => values.extend(blocks.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            GgmlType::F16 => values.extend(blocks.map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())),
            GgmlType::Bf16 => values.extend(blocks.map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())),
            GgmlType::Quant(quant) => quant.widen(bytes, values),
        }
    }
}

struct Entry {
    kind: GgmlType,
    start: u64,
}

/// An open GGUF file.
pub struct Gguf {
    path: PathBuf,
    file: Mutex<Box<dyn Reader>>,
    data: u64,
    entries: BTreeMap<String, Entry>,
    shapes: BTreeMap<String, Shape>,
    metadata: BTreeMap<String, String>,
}

impl Gguf {
    /// Opens a file and validates its header.
    pub fn open(path: &Path) -> Result<Gguf> {
        let io = |source| Error::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        Gguf::from_reader(path, Box::new(file), length)
    }

    pub(crate) fn from_reader(path: &Path, file: Box<dyn Reader>, length: u64) -> Result<Gguf> {
        let mut header = Header { path, reader: BufReader::new(file), at: 0, length };
        let fields = header.fields()?;
        let tensors = (0..fields.tensors).map(|_| header.tensor()).collect::<Result<Vec<_>>>()?;
        let data = header.at.next_multiple_of(fields.alignment);
        let mut gguf = Gguf {
            path: path.into(),
            file: Mutex::new(header.reader.into_inner()),
            data,
            entries: BTreeMap::new(),
            shapes: BTreeMap::new(),
            metadata: fields.strings,
        };
        if !tensors.iter().any(|tensor| stripped(&tensor.name) == IDENTIFYING_TENSOR) {
            let found = gguf.metadata.get("general.architecture").map_or("unknown", String::as_str);
            let found = excerpt(found);
            return Err(Error::WrongArchitecture { path: path.into(), found });
        }
        for tensor in tensors {
            gguf.add(tensor, &fields.shapes, fields.alignment, length.saturating_sub(data))?;
        }
        Ok(gguf)
    }

    fn add(
        &mut self,
        tensor: TensorInfo,
        shapes: &BTreeMap<String, Vec<u64>>,
        alignment: u64,
        available: u64,
    ) -> Result<()> {
        let TensorInfo { name, dims, kind, start } = tensor;
        let invalid =
            |reason: &str| Error::InvalidGguf { path: self.path.clone(), reason: format!("`{name}` {reason}") };
        let supported = "F32, F16, BF16, Q8_0 or Q4_K";
        let kind = GgmlType::parse(kind).ok_or_else(|| Error::UnsupportedType {
            path: self.path.clone(),
            name: name.clone(),
            found: GgmlType::name(kind),
            supported,
        })?;
        let (values, bytes) = kind.block();
        let count = dims.iter().try_fold(1u64, |total, &dim| total.checked_mul(dim));
        let count = count.filter(|&n| n <= available.saturating_mul(values as u64)).unwrap_or(u64::MAX);
        if !dims.first().is_some_and(|&row| row.is_multiple_of(values as u64)) {
            return Err(invalid("has rows that are not whole blocks"));
        }
        let end = (count / values as u64).checked_mul(bytes as u64).and_then(|n| n.checked_add(start));
        if !start.is_multiple_of(alignment) || end.is_none_or(|end| end > available) {
            return Err(invalid(
                "extends beyond the end of the file: the file is cut short or damaged; copy or download it again",
            ));
        }
        let short = stripped(&name).to_string();
        let shape: Vec<u64> = match shapes.get(&name).or_else(|| shapes.get(&short)) {
            Some(shape) => shape.clone(),
            None => dims.iter().rev().copied().collect(),
        };
        if shape.len() > 5 || shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)) != Some(count) {
            return Err(invalid("does not have the number of values of its original shape"));
        }
        let shape: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
        if self.entries.insert(short.clone(), Entry { kind, start }).is_some() {
            return Err(invalid("occurs twice"));
        }
        self.shapes.insert(short, Shape::from(&shape[..]));
        Ok(())
    }
}

fn stripped(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

impl Source for Gguf {
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
        let (entry, count) = (&self.entries[name], self.shapes[name].count());
        let io = |source| Error::Io { path: self.path.clone(), source };
        let (values, bytes) = entry.kind.block();
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.seek(SeekFrom::Start(self.data + entry.start)).map_err(io)?;
        let mut all = Vec::with_capacity(count);
        let mut chunk = vec![0; CHUNK.min(count) / values * bytes];
        while all.len() < count {
            let chunk = &mut chunk[..CHUNK.min(count - all.len()) / values * bytes];
            file.read_exact(chunk).map_err(io)?;
            entry.kind.decode(chunk, &mut all);
        }
        Ok(all)
    }

    fn quant(&self, name: &str) -> Option<Quant> {
        match self.entries[name].kind {
            GgmlType::Quant(quant) => Some(quant),
            GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16 => None,
        }
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        let Some(quant) = self.quant(name) else { return Ok(Numbers::Floats(self.read(name)?)) };
        let (start, count) = (self.data + self.entries[name].start, quant.bytes(self.shapes[name].count()));
        Ok(Numbers::Quant(quant, bytes_at(&self.file, &self.path, start, count)?))
    }
}

/// Header entry of a tensor. The first dimension varies fastest.
struct TensorInfo {
    name: String,
    dims: Vec<u64>,
    kind: u32,
    start: u64,
}

#[derive(Default)]
struct Fields {
    tensors: u64,
    alignment: u64,
    strings: BTreeMap<String, String>,
    shapes: BTreeMap<String, Vec<u64>>,
}

/// Value of a metadata field.
enum Field {
    Text(String),
    Numbers(Vec<u64>),
    Other,
}

struct Header<'a> {
    path: &'a Path,
    reader: BufReader<Box<dyn Reader>>,
    at: u64,
    length: u64,
}

impl Header<'_> {
    fn invalid(&self, reason: impl Into<String>) -> Error {
        Error::InvalidGguf { path: self.path.into(), reason: reason.into() }
    }

    /// Advances the position after checking that the file is long enough.
    fn advance(&mut self, count: u64) -> Result<()> {
        match self.at.checked_add(count) {
            Some(at) if at <= self.length.min(MAX_HEADER) => self.at = at,
            Some(at) if at <= self.length => return Err(self.invalid("its header has more than 64 MiB")),
            _ => return Err(self.invalid("the header extends beyond the end of the file")),
        }
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.advance(N as u64)?;
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|source| Error::Io { path: self.path.into(), source })?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// Reads a count and checks that it is at most [`MAX_COUNT`].
    fn count(&mut self, what: &str) -> Result<u64> {
        match self.u64()? {
            count if count <= MAX_COUNT => Ok(count),
            count => Err(self.invalid(format!("its header claims {count} {what}"))),
        }
    }

    fn string(&mut self) -> Result<String> {
        let count = self.count("bytes in a string")?;
        self.advance(count)?;
        let mut bytes = vec![0; count as usize];
        self.reader.read_exact(&mut bytes).map_err(|source| Error::Io { path: self.path.into(), source })?;
        String::from_utf8(bytes).map_err(|_| self.invalid("a string is not UTF-8"))
    }

    fn skip(&mut self, count: u64) -> Result<Field> {
        self.advance(count)?;
        self.reader.seek_relative(count as i64).map_err(|source| Error::Io { path: self.path.into(), source })?;
        Ok(Field::Other)
    }

    fn fields(&mut self) -> Result<Fields> {
        if self.length < 4 || &self.bytes::<4>()? != b"GGUF" {
            return Err(self.invalid("it does not begin with GGUF"));
        }
        let version = self.u32()?;
        if !(2..=3).contains(&version) {
            return Err(self.invalid(format!("version {version} is not supported; use version 2 or 3")));
        }
        let mut fields = Fields { tensors: self.count("tensors")?, alignment: DEFAULT_ALIGNMENT, ..Fields::default() };
        for _ in 0..self.count("fields")? {
            let key = self.string()?;
            let kind = self.u32()?;
            match self.field(kind)? {
                Field::Text(text) => drop(fields.strings.insert(key, text)),
                Field::Numbers(numbers) => match (key.as_str(), &numbers[..]) {
                    ("general.alignment", &[n]) if n > 0 && n.is_power_of_two() && n <= MAX_COUNT => {
                        fields.alignment = n
                    }
                    ("general.alignment", _) => return Err(self.invalid("its alignment is not a power of two")),
                    _ => {
                        if let Some(name) = key.strip_prefix(ORIGINAL_SHAPE) {
                            fields.shapes.insert(name.to_string(), numbers);
                        }
                    }
                },
                Field::Other => {}
            }
        }
        Ok(fields)
    }

    fn field(&mut self, kind: u32) -> Result<Field> {
        match kind {
            8 => Ok(Field::Text(self.string()?)),
            4 | 5 => Ok(Field::Numbers(vec![self.u32()?.into()])),
            9 => self.array(),
            _ => {
                let bytes = self.size(kind)?;
                self.skip(bytes)
            }
        }
    }

    fn array(&mut self) -> Result<Field> {
        let (kind, count) = (self.u32()?, self.u64()?);
        match kind {
            4 | 5 if count <= 5 => {
                let numbers = (0..count).map(|_| Ok(self.u32()?.into())).collect::<Result<_>>()?;
                Ok(Field::Numbers(numbers))
            }
            8 => {
                for _ in 0..count {
                    self.string()?;
                }
                Ok(Field::Other)
            }
            _ => {
                let bytes = self.size(kind)?.saturating_mul(count);
                self.skip(bytes)
            }
        }
    }

    /// Size in bytes of a numeric field type.
    fn size(&self, kind: u32) -> Result<u64> {
        match kind {
            0 | 1 | 7 => Ok(1),
            2 | 3 => Ok(2),
            4..=6 => Ok(4),
            10..=12 => Ok(8),
            _ => Err(self.invalid(format!("unknown field type {kind}"))),
        }
    }

    fn tensor(&mut self) -> Result<TensorInfo> {
        let name = self.string()?;
        if let Some(problem) = name_problem(&name) {
            return Err(self.invalid(problem));
        }
        let rank = self.u32()?;
        if rank > 4 {
            return Err(self.invalid(format!("`{name}` has {rank} dimensions")));
        }
        let dims = (0..rank).map(|_| self.u64()).collect::<Result<_>>()?;
        Ok(TensorInfo { name, dims, kind: self.u32()?, start: self.u64()? })
    }
}
