//! A single tensor that PyTorch saved: a zip file without compression whose `data.pkl` tells type and shape and whose
//! `data/0` holds the values. Nothing in it is ever executed.

use std::path::Path;

use half::{bf16, f16};
use reseed_ops::Shape;

use crate::error::{Error, Result};

/// Files of embeddings are less than a megabyte.
const LARGEST: u64 = 64 << 20;

/// The tensor of a file: its shape and values.
pub fn read(path: &Path) -> Result<(Shape, Vec<f32>)> {
    let io = |source| Error::Io { path: path.into(), source };
    let wrong = |reason: &str| Error::Torch { path: path.into(), reason: reason.into() };
    if std::fs::metadata(path).map_err(io)?.len() > LARGEST {
        return Err(wrong("it is too large for one"));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    let entries = entries(&bytes).ok_or_else(|| wrong("it is no zip file, or one that is damaged"))?;
    let entry = |name: &str| entries.iter().find(|(full, _)| full.ends_with(name)).map(|(_, data)| *data);
    let pickle = entry("/data.pkl").ok_or_else(|| wrong("it has no data.pkl without compression"))?;
    let tensor = tensor(pickle).ok_or_else(|| wrong("it holds something other than one tensor"))?;
    let data = entry(&format!("/data/{}", tensor.key)).ok_or_else(|| wrong("its values are missing"))?;
    let size = match tensor.storage.as_str() {
        "torch BFloat16Storage" | "torch HalfStorage" => 2,
        "torch FloatStorage" => 4,
        other => return Err(wrong(&format!("its values are {other}; BFloat16, Coder and Float are known"))),
    };
    if entry("/byteorder").is_some_and(|order| order != b"little") {
        return Err(wrong("its bytes are in the other order"));
    }
    let count = tensor.shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).unwrap_or(usize::MAX);
    if tensor.shape.len() > 5 || !tensor.dense() || count.checked_mul(size) != Some(data.len()) {
        return Err(wrong("its shape and its values do not belong together"));
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

/// Names and contents of the stored entries, by the directory at the file's end.
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
        let word = String::from_utf8(bytes.get(at + 46..at + 46 + name)?.to_vec()).ok()?;
        at += 46 + name + extra + comment;
        if method == 0 {
            // The local header repeats the name and has an extra field of its own length.
            let data = local + 30 + u16_at(bytes, local + 26)? + u16_at(bytes, local + 28)?;
            list.push((word, bytes.get(data..data.checked_add(size)?)?));
        }
    }
    Some(list)
}

/// A tensor as the pickle describes it.
struct Saved {
    storage: String,
    key: String,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Saved {
    fn dense(&self) -> bool {
        let mut step = 1;
        let dense = |(&dim, &stride): (&usize, &usize)| {
            let right = dim == 1 || stride == step;
            step = step.saturating_mul(dim);
            right
        };
        self.offset == 0
            && self.shape.len() == self.strides.len()
            && self.shape.iter().zip(&self.strides).rev().all(dense)
    }
}

enum Value {
    Mark,
    Number(usize),
    Word(String),
    Tuple(Vec<Value>),
    Other,
}

impl Value {
    fn words(&self) -> Option<Vec<&str>> {
        let Value::Tuple(items) = self else { return None };
        Some(items.iter().map(|item| if let Value::Word(word) = item { word } else { "" }).collect())
    }

    fn number(&self) -> Option<usize> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    fn numbers(&self) -> Option<Vec<usize>> {
        let Value::Tuple(items) = self else { return None };
        items.iter().map(Value::number).collect()
    }
}

/// Longer descriptions are of something else.
const LONGEST: usize = 4096;

/// Follows the few instructions that describe a tensor; anything else is not one.
fn tensor(pickle: &[u8]) -> Option<Saved> {
    let mut machine = Machine { pickle, at: 0, stack: Vec::new() };
    while pickle.len() <= LONGEST {
        if let Some(arguments) = machine.step()? {
            return if machine.pickle[machine.at..].ends_with(b".") { saved(&arguments) } else { None };
        }
    }
    None
}

struct Machine<'a> {
    pickle: &'a [u8],
    at: usize,
    stack: Vec<Value>,
}

impl Machine<'_> {
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

    fn word(&mut self) -> Option<String> {
        let length = self.number(4)?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    /// The last `count` values as one.
    fn tuple(&mut self, count: usize) -> Option<Value> {
        let first = self.stack.len().checked_sub(count)?;
        Some(Value::Tuple(self.stack.split_off(first)))
    }

    /// One instruction; the one that makes a tensor returns what it is made of.
    fn step(&mut self) -> Option<Option<Value>> {
        let value = match self.number(1)? as u8 {
            // The version, and notes for later that nobody reads.
            0x80 | b'q' => return self.number(1).map(|_| None),
            b'r' => return self.number(4).map(|_| None),
            // The storage that the tuple on top names.
            b'Q' => return Some(None),
            b'K' => Value::Number(self.number(1)?),
            b'M' => Value::Number(self.number(2)?),
            b'J' => Value::Number(self.number(4)?),
            b'X' => Value::Word(self.word()?),
            b'c' => Value::Word(format!("{} {}", self.line()?, self.line()?)),
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
                (arguments, Value::Word(word)) if word == "torch._utils _rebuild_tensor_v2" => {
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

/// Storage, offset, shape and strides.
fn saved(arguments: &Value) -> Option<Saved> {
    let Value::Tuple(items) = arguments else { return None };
    let [storage, offset, shape, strides, ..] = &items[..] else { return None };
    let &["storage", kind, key, ..] = &storage.words()?[..] else { return None };
    Some(Saved {
        storage: kind.to_string(),
        key: key.to_string(),
        offset: offset.number()?,
        shape: shape.numbers()?,
        strides: strides.numbers()?,
    })
}
