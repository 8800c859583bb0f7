//! Mutations: bytes anywhere, and changes that keep the outer structure of a format, so that inner parsers are reached.

use serde_json::Value;

/// A small generator of random numbers with a fixed sequence (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.number() >> 16) % end as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A number at the edge of a type or of a size, or any number.
    fn edge(&mut self) -> u64 {
        let power = 1u64 << self.below(64);
        match self.below(4) {
            0 => power,
            1 => power - 1,
            2 => power.wrapping_neg(),
            _ => self.number() >> self.below(64),
        }
    }
}

/// How the inputs of a format are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Bytes anywhere, more of them at the start.
    Bytes,
    /// JSON after a length of eight bytes: values of the JSON, with a correct length.
    Safetensors,
    /// Chunks with a checksum: content of chunks, with a correct checksum.
    Png,
    /// JSON: its values.
    Json,
    /// Lines of JSON: values in a line, lines left out, repeated or exchanged.
    JsonLines,
}

impl Mutation {
    /// A changed copy of an input.
    pub fn apply(self, input: &[u8], random: &mut Random) -> Vec<u8> {
        let mut bytes = input.to_vec();
        // Every structure is also damaged from outside.
        let structured = random.below(4) > 0;
        match self {
            Mutation::Safetensors if structured => safetensors(&bytes, random).unwrap_or(bytes),
            Mutation::Png if structured => png(&bytes, random).unwrap_or(bytes),
            Mutation::Json if structured => json(&bytes, random).unwrap_or(bytes),
            Mutation::JsonLines if structured => json_lines(&bytes, random),
            _ => {
                for _ in 0..=random.below(4) {
                    change(&mut bytes, random);
                }
                bytes
            }
        }
    }
}

/// Changes some bytes.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.number() as u8);
    }
    // Headers are at the start.
    let reach = if random.below(2) == 0 { bytes.len() } else { bytes.len().min(128) };
    let at = random.below(reach);
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.number() as u8,
        2 => bytes[at] = bytes[at].wrapping_add(random.below(5) as u8).wrapping_sub(2),
        3 => {
            let (number, width) = (random.edge(), *random.pick(&[1usize, 2, 4, 8]));
            let number = if random.below(2) == 0 { number.to_le_bytes() } else { number.swap_bytes().to_le_bytes() };
            let end = bytes.len().min(at + width);
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        4 => {
            let end = bytes.len().min(at + 1 + random.below(32));
            bytes.drain(at..end);
        }
        5 => {
            let end = bytes.len().min(at + 1 + random.below(64));
            let part = bytes[at..end].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, part);
        }
        6 => {
            let new: Vec<u8> = (0..=random.below(16)).map(|_| random.number() as u8).collect();
            bytes.splice(at..at, new);
        }
        _ => bytes.truncate(at),
    }
}

fn safetensors(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) as usize;
    let (text, data) = (bytes.get(8..length.checked_add(8)?)?, &bytes[8 + length..]);
    let text = json(text, random)?;
    Some([&(text.len() as u64).to_le_bytes()[..], &text, data].concat())
}

fn json(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    for _ in 0..=random.below(3) {
        change_value(&mut value, random);
    }
    Some(value.to_string().into_bytes())
}

fn json_lines(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return text.to_vec();
    }
    let at = random.below(lines.len());
    match random.below(6) {
        0 => drop(lines.remove(at)),
        1 => {
            let line = lines[at].clone();
            let to = random.below(lines.len() + 1);
            lines.insert(to, line);
        }
        2 => {
            let other = random.below(lines.len());
            lines.swap(at, other);
        }
        _ => {
            if let Some(mut line) = json(&lines[at], random) {
                line.push(b'\n');
                lines[at] = line;
            }
        }
    }
    lines.concat()
}

/// Goes down to a random value and changes it.
fn change_value(value: &mut Value, random: &mut Random) {
    let stop = random.below(12) == 0;
    match value {
        Value::Object(map) if !map.is_empty() && !stop => {
            let key = map.keys().nth(random.below(map.len())).unwrap().clone();
            match random.below(24) {
                0 => drop(map.remove(&key)),
                1 => {
                    let copy = map[&key].clone();
                    map.insert(format!("{key}{}", random.below(40)), copy);
                }
                _ => change_value(&mut map[&key], random),
            }
        }
        Value::Array(list) if !list.is_empty() && !stop => {
            let at = random.below(list.len());
            match random.below(12) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => change_value(&mut list[at], random),
            }
        }
        Value::String(text) if !stop => *text = change_text(text, random),
        value => *value = any_value(random),
    }
}

fn any_value(random: &mut Random) -> Value {
    match random.below(10) {
        0 => Value::Null,
        1 => Value::Bool(random.below(2) == 0),
        2 => Value::Array(Vec::new()),
        3 => Value::from(random.edge() as i64),
        4 => Value::from(f64::from_bits(random.number())),
        5 => Value::String(change_text("24000/1001", random)),
        6 => Value::from(random.below(40)),
        _ => Value::from(random.edge()),
    }
}

/// Texts of files often hold numbers: times, fractions, sizes.
fn change_text(text: &str, random: &mut Random) -> String {
    match random.below(8) {
        0 => random.edge().to_string(),
        1 => (random.edge() as i64).to_string(),
        2 => format!("{}/{}", random.edge() as i32, random.edge() as i32),
        3 => format!("{}:{}", random.edge() as i32, random.edge() as i32),
        4 => format!("{:?}", f64::from_bits(random.number())),
        5 => (*random.pick(&["", "nan", "inf", "-1", "N/A", "0/0", "1e308", "\u{0}", "\n", "99:99:99"])).to_string(),
        6 => {
            let mut bytes = text.as_bytes().to_vec();
            change(&mut bytes, random);
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => text.chars().rev().collect(),
    }
}

/// Changes a chunk of a PNG file and its checksum.
fn png(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut chunks: Vec<([u8; 4], Vec<u8>)> = Vec::new();
    let mut rest = bytes.get(8..)?;
    while let Some(head) = rest.get(..8) {
        let length = u32::from_be_bytes(head[..4].try_into().ok()?) as usize;
        chunks.push((head[4..].try_into().ok()?, rest.get(8..length.checked_add(8)?)?.to_vec()));
        rest = rest.get(length + 12..)?;
    }
    for _ in 0..=random.below(3) {
        let at = random.below(chunks.len().max(1));
        match random.below(6) {
            0 if chunks.len() > 1 => drop(chunks.remove(at)),
            1 => chunks.insert(at, chunks.get(at)?.clone()),
            2 => {
                let name = **random.pick(&[b"PLTE", b"tRNS", b"acTL", b"fcTL", b"iCCP", b"eXIf", b"IDAT", b"gAMA"]);
                let length = random.below(40);
                chunks.insert(at, (name, (0..length).map(|_| random.number() as u8).collect()));
            }
            3 => {
                let header = &mut chunks.first_mut()?.1;
                let (field, number) = (random.below(7), random.edge());
                match field {
                    0 | 1 => header.get_mut(4 * field..4 * field + 4)?.copy_from_slice(&(number as u32).to_be_bytes()),
                    _ => *header.get_mut(6 + field)? = random.below(20) as u8,
                }
            }
            _ => change(&mut chunks.get_mut(at)?.1, random),
        }
    }
    let mut to = bytes[..8].to_vec();
    for (name, content) in chunks {
        to.extend((content.len() as u32).to_be_bytes());
        let named = [&name[..], &content].concat();
        to.extend(&named);
        to.extend(crc32(&named).to_be_bytes());
    }
    Some(to)
}

/// The checksum of PNG chunks.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_png() {
        assert_eq!(crc32(b"IEND"), 0xae42_6082);
    }

    #[test]
    fn equal_seeds_give_equal_mutations() {
        let mutations = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| Mutation::Bytes.apply(b"any input of a parser", &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(mutations(1), mutations(1));
        assert_ne!(mutations(1), mutations(2));
    }
}
