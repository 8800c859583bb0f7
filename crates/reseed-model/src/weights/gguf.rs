//! GGUF files of a transformer, read strictly and by pieces like any other weights.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use half::{bf16, f16};
use reseed_ops::{Numbers, Quant, Shape};

use super::{Source, bytes_at};
use crate::error::{Error, Result};

/// Added to every name by some converters.
const PREFIX: &str = "model.diffusion_model.";
/// Before the true shape of a tensor, where the file's own cannot say it.
const TRUE_SHAPE: &str = "comfy.gguf.orig_shape.";
/// A tensor that only SeedVR2 transformers have.
const MARK: &str = "vid_in.proj.weight";
/// Bytes between starts of tensors, unless the file says otherwise.
const ALIGNMENT: u64 = 32;
/// No honest file of ours has more tensors, fields or letters in a name.
const MOST: u64 = 1 << 20;
/// Values converted at a time, a multiple of every block.
const CHUNK: usize = 1 << 18;

/// How a file stores a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F32,
    F16,
    Bf16,
    Quant(Quant),
}

impl Kind {
    /// By its number in the file.
    fn parse(number: u32) -> Option<Kind> {
        Some(match number {
            0 => Kind::F32,
            1 => Kind::F16,
            8 => Kind::Quant(Quant::Q8_0),
            12 => Kind::Quant(Quant::Q4K),
            30 => Kind::Bf16,
            _ => return None,
        })
    }

    /// The name of any number that a file may hold.
    fn name(number: u32) -> String {
        const NAMES: [&str; 15] = [
            "F32", "F16", "Q4_0", "Q4_1", "Q4_2", "Q4_3", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K",
            "Q5_K", "Q6_K",
        ];
        NAMES.get(number as usize).map_or_else(|| format!("of type {number}"), |name| name.to_string())
    }

    /// Values of a block and its bytes.
    fn block(self) -> (usize, usize) {
        match self {
            Kind::F32 => (1, 4),
            Kind::F16 | Kind::Bf16 => (1, 2),
            Kind::Quant(quant) => quant.block(),
        }
    }

    /// Appends the values of whole blocks.
    fn widen(self, bytes: &[u8], values: &mut Vec<f32>) {
        let blocks = bytes.chunks_exact(self.block().1);
        match self {
            Kind::F32 => values.extend(blocks.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            Kind::F16 => values.extend(blocks.map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())),
            Kind::Bf16 => values.extend(blocks.map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())),
            Kind::Quant(quant) => quant.widen(bytes, values),
        }
    }
}

struct Entry {
    kind: Kind,
    start: u64,
}

/// An open file.
pub struct Gguf {
    path: PathBuf,
    file: Mutex<File>,
    data: u64,
    entries: BTreeMap<String, Entry>,
    shapes: BTreeMap<String, Shape>,
    metadata: BTreeMap<String, String>,
}

impl Gguf {
    /// Reads and checks everything before the values.
    pub fn open(path: &Path) -> Result<Gguf> {
        let io = |source| Error::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
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
            metadata: fields.words,
        };
        if !tensors.iter().any(|tensor| stripped(&tensor.name) == MARK) {
            let found = gguf.metadata.get("general.architecture").map_or("unknown", String::as_str).to_string();
            return Err(Error::Architecture { path: path.into(), found });
        }
        for tensor in tensors {
            gguf.add(tensor, &fields.shapes, fields.alignment, length.saturating_sub(data))?;
        }
        Ok(gguf)
    }

    fn add(&mut self, tensor: Info, shapes: &BTreeMap<String, Vec<u64>>, alignment: u64, available: u64) -> Result<()> {
        let Info { name, dims, kind, start } = tensor;
        let wrong = |reason: &str| Error::Gguf { path: self.path.clone(), reason: format!("`{name}` {reason}") };
        let known = "F32, F16, BF16, Q8_0 or Q4_K";
        let kind = Kind::parse(kind).ok_or_else(|| Error::WrongType {
            path: self.path.clone(),
            name: name.clone(),
            found: Kind::name(kind),
            known,
        })?;
        let (values, bytes) = kind.block();
        let count = dims.iter().try_fold(1u64, |total, &dim| total.checked_mul(dim));
        let count = count.filter(|&n| n <= available.saturating_mul(values as u64)).unwrap_or(u64::MAX);
        if !dims.first().is_some_and(|&row| row.is_multiple_of(values as u64)) {
            return Err(wrong("has rows that are no whole blocks"));
        }
        let end = (count / values as u64).checked_mul(bytes as u64).and_then(|n| n.checked_add(start));
        if !start.is_multiple_of(alignment) || end.is_none_or(|end| end > available) {
            return Err(wrong("reaches beyond the file, which is cut short or damaged"));
        }
        let short = stripped(&name).to_string();
        let shape: Vec<u64> = match shapes.get(&name).or_else(|| shapes.get(&short)) {
            Some(shape) => shape.clone(),
            None => dims.iter().rev().copied().collect(),
        };
        if shape.len() > 5 || shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)) != Some(count) {
            return Err(wrong("has another number of values than its original shape"));
        }
        let shape: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
        if self.entries.insert(short.clone(), Entry { kind, start }).is_some() {
            return Err(wrong("is there twice"));
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
            entry.kind.widen(chunk, &mut all);
        }
        Ok(all)
    }

    fn quant(&self, name: &str) -> Option<Quant> {
        match self.entries[name].kind {
            Kind::Quant(quant) => Some(quant),
            Kind::F32 | Kind::F16 | Kind::Bf16 => None,
        }
    }

    fn numbers(&self, name: &str) -> Result<Numbers> {
        let Some(quant) = self.quant(name) else { return Ok(Numbers::Floats(self.read(name)?)) };
        let (start, count) = (self.data + self.entries[name].start, quant.bytes(self.shapes[name].count()));
        Ok(Numbers::Quant(quant, bytes_at(&self.file, &self.path, start, count)?))
    }
}

/// A tensor as the header tells of it; dimensions fastest first.
struct Info {
    name: String,
    dims: Vec<u64>,
    kind: u32,
    start: u64,
}

#[derive(Default)]
struct Fields {
    tensors: u64,
    alignment: u64,
    words: BTreeMap<String, String>,
    shapes: BTreeMap<String, Vec<u64>>,
}

/// A value of the header, as far as anybody here wants to know it.
enum Field {
    Word(String),
    Numbers(Vec<u64>),
    Other,
}

struct Header<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    at: u64,
    length: u64,
}

impl Header<'_> {
    fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::Gguf { path: self.path.into(), reason: reason.into() }
    }

    fn take(&mut self, count: u64) -> Result<()> {
        match self.at.checked_add(count) {
            Some(at) if at <= self.length => self.at = at,
            _ => return Err(self.wrong("the header reaches beyond the end of the file")),
        }
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N as u64)?;
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

    /// A number of things of which there cannot be more than `MOST`.
    fn count(&mut self, what: &str) -> Result<u64> {
        match self.u64()? {
            count if count <= MOST => Ok(count),
            count => Err(self.wrong(format!("it claims {count} {what}"))),
        }
    }

    fn word(&mut self) -> Result<String> {
        let count = self.count("letters in a word")?;
        self.take(count)?;
        let mut bytes = vec![0; count as usize];
        self.reader.read_exact(&mut bytes).map_err(|source| Error::Io { path: self.path.into(), source })?;
        String::from_utf8(bytes).map_err(|_| self.wrong("a word is not UTF-8"))
    }

    fn skip(&mut self, count: u64) -> Result<Field> {
        self.take(count)?;
        self.reader.seek_relative(count as i64).map_err(|source| Error::Io { path: self.path.into(), source })?;
        Ok(Field::Other)
    }

    fn fields(&mut self) -> Result<Fields> {
        if self.length < 4 || &self.bytes::<4>()? != b"GGUF" {
            return Err(self.wrong("it does not begin with GGUF"));
        }
        let version = self.u32()?;
        if !(2..=3).contains(&version) {
            return Err(self.wrong(format!("version {version}; 2 and 3 are known")));
        }
        let mut fields = Fields { tensors: self.count("tensors")?, alignment: ALIGNMENT, ..Fields::default() };
        for _ in 0..self.count("fields")? {
            let key = self.word()?;
            let kind = self.u32()?;
            match self.field(kind)? {
                Field::Word(word) => drop(fields.words.insert(key, word)),
                Field::Numbers(numbers) => match (key.as_str(), &numbers[..]) {
                    ("general.alignment", &[n]) if n > 0 && n.is_power_of_two() && n <= MOST => fields.alignment = n,
                    ("general.alignment", _) => return Err(self.wrong("its alignment is no power of two")),
                    _ => {
                        if let Some(name) = key.strip_prefix(TRUE_SHAPE) {
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
            8 => Ok(Field::Word(self.word()?)),
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
                    self.word()?;
                }
                Ok(Field::Other)
            }
            _ => {
                let bytes = self.size(kind)?.saturating_mul(count);
                self.skip(bytes)
            }
        }
    }

    /// Bytes of a number.
    fn size(&self, kind: u32) -> Result<u64> {
        match kind {
            0 | 1 | 7 => Ok(1),
            2 | 3 => Ok(2),
            4..=6 => Ok(4),
            10..=12 => Ok(8),
            _ => Err(self.wrong(format!("a field of type {kind}"))),
        }
    }

    fn tensor(&mut self) -> Result<Info> {
        let name = self.word()?;
        let rank = self.u32()?;
        if rank > 4 {
            return Err(self.wrong(format!("`{name}` has {rank} dimensions")));
        }
        let dims = (0..rank).map(|_| self.u64()).collect::<Result<_>>()?;
        Ok(Info { name, dims, kind: self.u32()?, start: self.u64()? })
    }
}
