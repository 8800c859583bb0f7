//! Reader of a single tensor saved by PyTorch: an uncompressed zip file. The pickle `data.pkl` has its type and shape,
//! `data/0` its values. The pickle is parsed, never executed.

use std::path::Path;

use half::{bf16, f16};
use reseed_ops::Shape;

use crate::error::{Error, Result, excerpt};

/// Limit of the file size. Embeddings have less than one megabyte.
const MAX_FILE: u64 = 64 << 20;

/// Reads the shape and the values of the tensor in a file.
pub fn read(path: &Path) -> Result<(Shape, Vec<f32>)> {
    let io = |source| Error::Io { path: path.into(), source };
    if std::fs::metadata(path).map_err(io)?.len() > MAX_FILE {
        return Err(Error::InvalidTorchFile { path: path.into(), reason: "it has more than 64 MiB".into() });
    }
    parse(path, &std::fs::read(path).map_err(io)?)
}

/// Reads the tensor in the bytes of a file.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<(Shape, Vec<f32>)> {
    let invalid = |reason: &str| Error::InvalidTorchFile { path: path.into(), reason: reason.into() };
    let entries = entries(bytes).ok_or_else(|| invalid("it is not a zip file, or it is damaged"))?;
    let entry = |name: &str| entries.iter().find(|(full, _)| full.ends_with(name)).map(|(_, data)| *data);
    let pickle = entry("/data.pkl").ok_or_else(|| invalid("it has no uncompressed data.pkl"))?;
    let tensor = tensor(pickle).ok_or_else(|| invalid("it does not contain exactly one tensor"))?;
    let data = entry(&format!("/data/{}", tensor.key)).ok_or_else(|| invalid("its values are missing"))?;
    let size = match tensor.storage.as_str() {
        "torch BFloat16Storage" | "torch HalfStorage" => 2,
        "torch FloatStorage" => 4,
        other => {
            let other = excerpt(other);
            return Err(invalid(&format!("its values are {other}; save them as bfloat16, float16 or float32")));
        }
    };
    if entry("/byteorder").is_some_and(|order| order != b"little") {
        return Err(invalid("its byte order is not little-endian"));
    }
    let count = tensor.shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).unwrap_or(usize::MAX);
    if tensor.shape.len() > 5 || !tensor.is_contiguous() || count.checked_mul(size) != Some(data.len()) {
        return Err(invalid("its shape does not match its values"));
    }
    let values = data.chunks_exact(size).map(|b| match tensor.storage.as_str() {
        "torch BFloat16Storage" => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        "torch HalfStorage" => f16::from_le_bytes([b[0], b[1]]).to_f32(),
        _ => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
    });
    Ok((Shape::from(&tensor.shape[..]), values.collect()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)).ok()
}

/// Names and data of the uncompressed entries in the central directory of the zip file.
fn entries(bytes: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let end = (0..=bytes.len().checked_sub(22)?).rev().find(|&at| bytes[at..].starts_with(b"PK\x05\x06"))?;
    let (count, mut at) = (u16_at(bytes, end + 10)?, u32_at(bytes, end + 16)?);
    let mut list = Vec::new();
    for _ in 0..count {
        if !bytes.get(at..)?.starts_with(b"PK\x01\x02") {
            return None;
        }
        let (method, size, local) = (u16_at(bytes, at + 10)?, u32_at(bytes, at + 24)?, u32_at(bytes, at + 42)?);
        let (name, extra, comment) = (u16_at(bytes, at + 28)?, u16_at(bytes, at + 30)?, u16_at(bytes, at + 32)?);
        let path = String::from_utf8(bytes.get(at + 46..at + 46 + name)?.to_vec()).ok()?;
        at += 46 + name + extra + comment;
        if method == 0 {
            // The local header repeats the name; its extra field has a length of its own.
            let data = local + 30 + u16_at(bytes, local + 26)? + u16_at(bytes, local + 28)?;
            list.push((path, bytes.get(data..data.checked_add(size)?)?));
        }
    }
    Some(list)
}

/// Description of a tensor in the pickle.
struct SavedTensor {
    storage: String,
    key: String,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl SavedTensor {
    /// Whether the tensor is contiguous and starts at the first value of its storage.
    fn is_contiguous(&self) -> bool {
        let mut step = 1;
        let contiguous = |(&dim, &stride): (&usize, &usize)| {
            let expected = dim == 1 || stride == step;
            step = step.saturating_mul(dim);
            expected
        };
        self.offset == 0
            && self.shape.len() == self.strides.len()
            && self.shape.iter().zip(&self.strides).rev().all(contiguous)
    }
}

/// Value on the stack of the pickle machine.
enum Value {
    Mark,
    Number(usize),
    Text(String),
    Tuple(Vec<Value>),
    Other,
}

impl Value {
    fn texts(&self) -> Option<Vec<&str>> {
        let Value::Tuple(items) = self else { return None };
        Some(items.iter().map(|item| if let Value::Text(text) = item { text } else { "" }).collect())
    }

    fn number(&self) -> Option<usize> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    fn numbers(&self) -> Option<Vec<usize>> {
        let Value::Tuple(items) = self else { return None };
        items.iter().map(Value::number).collect()
    }
}

/// Limit of the pickle length. The description of one tensor is shorter.
const MAX_PICKLE: usize = 4096;

/// Interprets the opcodes that describe a tensor. Any other opcode is an error.
fn tensor(pickle: &[u8]) -> Option<SavedTensor> {
    let mut machine = PickleMachine { pickle, at: 0, stack: Vec::new() };
    while pickle.len() <= MAX_PICKLE {
        if let Some(arguments) = machine.step()? {
            return if machine.pickle[machine.at..].ends_with(b".") { saved_tensor(&arguments) } else { None };
        }
    }
    None
}

struct PickleMachine<'a> {
    pickle: &'a [u8],
    at: usize,
    stack: Vec<Value>,
}

impl PickleMachine<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let bytes = self.pickle.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte)))
    }

    fn line(&mut self) -> Option<String> {
        let length = self.pickle[self.at..].iter().position(|&byte| byte == b'\n')?;
        let line = String::from_utf8(self.take(length)?.to_vec()).ok()?;
        self.at += 1;
        Some(line)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number(4)?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    /// Pops the last `count` values as a tuple.
    fn tuple(&mut self, count: usize) -> Option<Value> {
        let first = self.stack.len().checked_sub(count)?;
        Some(Value::Tuple(self.stack.split_off(first)))
    }

    /// Executes one opcode. The one that builds a tensor returns its arguments.
    fn step(&mut self) -> Option<Option<Value>> {
        let value = match self.number(1)? as u8 {
            // PROTO and memo opcodes have no effect here.
            0x80 | b'q' => return self.number(1).map(|_| None),
            b'r' => return self.number(4).map(|_| None),
            // BINPERSID: the tuple on the stack describes the storage.
            b'Q' => return Some(None),
            b'K' => Value::Number(self.number(1)?),
            b'M' => Value::Number(self.number(2)?),
            b'J' => Value::Number(self.number(4)?),
            b'X' => Value::Text(self.text()?),
            b'c' => Value::Text(format!("{} {}", self.line()?, self.line()?)),
            b'(' => Value::Mark,
            b')' => Value::Tuple(Vec::new()),
            code @ 0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
            b't' => {
                let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark))?;
                let items = self.tuple(self.stack.len() - mark - 1)?;
                self.stack.pop();
                items
            }
            0x88 | 0x89 => Value::Other,
            b'R' => match (self.stack.pop()?, self.stack.pop()?) {
                (arguments, Value::Text(name)) if name == "torch._utils _rebuild_tensor_v2" => {
                    return Some(Some(arguments));
                }
                _ => Value::Other,
            },
            _ => return None,
        };
        self.stack.push(value);
        Some(None)
    }
}

/// Parses storage, offset, shape and strides.
fn saved_tensor(arguments: &Value) -> Option<SavedTensor> {
    let Value::Tuple(items) = arguments else { return None };
    let [storage, offset, shape, strides, ..] = &items[..] else { return None };
    let &["storage", kind, key, ..] = &storage.texts()?[..] else { return None };
    Some(SavedTensor {
        storage: kind.to_string(),
        key: key.to_string(),
        offset: offset.number()?,
        shape: shape.numbers()?,
        strides: strides.numbers()?,
    })
}
