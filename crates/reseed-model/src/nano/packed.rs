//! Reads the files of the embedded model, whose format `tools/nano` describes.
//!
//! Every job with the model waits for this. The lower bytes of its f16 values are noise; only bits that are zero in all
//! of them are left out. A part is unpacked when it is read: straight to the reader where all of it is, so that the
//! file is never in memory.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};

use super::codes::{STREAMS, decode, table};

/// Most unpacked bytes of a part: upper bytes, lower bytes and result stay in a core's first and second cache.
const PART: usize = 1 << 15;
/// Unpacked parts that are kept, for small tensors.
const KEPT: usize = 4;

/// An open file.
pub struct Packed {
    parts: Vec<Part>,
    length: usize,
    at: usize,
    kept: VecDeque<(usize, Vec<u8>)>,
}

struct Part {
    start: usize,
    length: usize,
    packed: &'static [u8],
}

impl Packed {
    pub fn new(file: &'static [u8]) -> Packed {
        let (mut fields, mut parts, mut start) = (Fields(file), Vec::new(), 0);
        while !fields.0.is_empty() {
            let (length, packed) = (fields.number(2), fields.sized(2));
            parts.push(Part { start, length, packed });
            start += length;
        }
        Packed { parts, length: start, at: 0, kept: VecDeque::new() }
    }

    /// Bytes of the unpacked file.
    pub fn length(&self) -> usize {
        self.length
    }

    /// All bytes.
    pub fn unpacked(mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read_exact(&mut bytes).expect("memory is read without errors");
        bytes
    }

    /// The bytes of a part.
    fn part(&mut self, index: usize) -> &[u8] {
        let found = self.kept.iter().position(|(kept, _)| *kept == index).unwrap_or_else(|| {
            let mut part = vec![0; self.parts[index].length];
            unpack(self.parts[index].packed, &mut part);
            self.kept.truncate(KEPT - 1);
            self.kept.push_front((index, part));
            0
        });
        &self.kept[found].1
    }
}

impl Read for Packed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(index) = self.parts.partition_point(|part| part.start <= self.at).checked_sub(1) else { return Ok(0) };
        let (skipped, length) = (self.at - self.parts[index].start, self.parts[index].length);
        let count = to.len().min(length.saturating_sub(skipped));
        match count == length {
            true => unpack(self.parts[index].packed, &mut to[..count]),
            false => to[..count].copy_from_slice(&self.part(index)[skipped..][..count]),
        }
        self.at += count;
        Ok(count)
    }
}

impl Seek for Packed {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => (self.at as u64).checked_add_signed(by),
            SeekFrom::End(by) => (self.length as u64).checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)? as usize;
        Ok(self.at as u64)
    }
}

/// Unpacks a part.
fn unpack(part: &[u8], mut to: &mut [u8]) {
    let mut fields = Fields(part);
    let count = fields.number(2);
    let runs: Vec<[usize; 2]> = (0..count).map(|_| [fields.number(2), fields.number(2)]).collect();
    let table = table(fields.sized(1));
    let width = fields.number(1);
    let sizes = [(); STREAMS].map(|()| fields.number(2));
    let mut end = part.len() - fields.0.len();
    let starts = sizes.map(|bytes| {
        end += bytes;
        end - bytes
    });
    let values = runs.iter().map(|[values, _]| values).sum();
    let (mut upper, mut lower) = ([0; PART / 2], [0; PART / 2]);
    decode(&table, part, starts, &mut upper[..values]);
    unpack_lower(&part[end..], width, &mut lower[..values]);
    let (mut upper, mut lower) = (&upper[..], &lower[..]);
    for [values, zeros] in runs {
        let (run, rest) = to.split_at_mut(2 * values);
        interleave(&upper[..values], &lower[..values], run);
        let (zeros, rest) = rest.split_at_mut(2 * zeros);
        zeros.fill(0);
        (upper, lower, to) = (&upper[values..], &lower[values..], rest);
    }
}

/// Sets the highest `width` bits of zero bytes from their planes.
fn unpack_lower(mut planes: &[u8], width: usize, to: &mut [u8]) {
    let mut shift = 8;
    for bits in [8, 4, 2, 1].into_iter().filter(|bits| width & bits != 0) {
        shift -= bits;
        let share = to.len().div_ceil(8 / bits);
        let plane = planes.split_off(..share).expect("the embedded model is whole");
        let mask = (0xff >> (8 - bits)) << shift;
        for (k, to) in to.chunks_mut(share.max(1)).enumerate() {
            to.iter_mut().zip(plane).for_each(|(to, &of)| *to |= (u16::from(of) << shift >> (k * bits)) as u8 & mask);
        }
    }
}

fn interleave(upper: &[u8], lower: &[u8], to: &mut [u8]) {
    let (pairs, _) = to.as_chunks_mut();
    pairs.iter_mut().zip(lower.iter().zip(upper)).for_each(|(to, (&lower, &upper))| *to = [lower, upper]);
}

/// Little-endian numbers and the bytes after them.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        self.0.split_off(..bytes).expect("the embedded model is whole")
    }

    fn number(&mut self, bytes: usize) -> usize {
        self.take(bytes).iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
    }

    /// The bytes after their number, which has `size` bytes.
    fn sized(&mut self, size: usize) -> &'a [u8] {
        let bytes = self.number(size);
        self.take(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(planes: &[u8], width: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        unpack_lower(planes, width, &mut bytes);
        bytes
    }

    #[test]
    fn lower_bytes_are_the_sum_of_their_planes() {
        assert_eq!(unpacked(&[1, 2, 3], 8, 3), [1, 2, 3]);
        // Four bits: bytes 0 and 3 share the first byte of the plane.
        assert_eq!(unpacked(&[0x41, 0x52, 0x03], 4, 5), [0x10, 0x20, 0x30, 0x40, 0x50]);
        // Four bits, then two: bytes 0, 2 and 4 share the first byte of the second plane.
        assert_eq!(unpacked(&[0x41, 0x52, 0x03, 0b11_10_01, 0b00_01], 6, 5), [0x14, 0x24, 0x38, 0x40, 0x5c]);
        assert_eq!(unpacked(&[], 0, 2), [0, 0]);
    }
}
