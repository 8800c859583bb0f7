//! A fast 64-bit digest, by which damaged files are found. It is not cryptographic.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const LANES: usize = 8;
const BLOCK: usize = 8 * LANES;
/// Bytes per read of a file.
const READ: usize = 1 << 16;

/// A digest of bytes that arrive in pieces. Every change of a single word changes it.
#[derive(Clone, Debug)]
pub struct Digest {
    lanes: [u64; LANES],
    /// Bytes of an incomplete block.
    pending: [u8; BLOCK],
    length: u64,
}

fn mix(sum: u64, word: u64) -> u64 {
    let product = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

impl Digest {
    /// The digest of nothing. The seed says what the bytes are, so that equal bytes in another place differ.
    pub fn new(seed: u64) -> Digest {
        Digest { lanes: std::array::from_fn(|lane| mix(seed, lane as u64)), pending: [0; BLOCK], length: 0 }
    }

    /// Adds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let filled = (self.length % BLOCK as u64) as usize;
        self.length += bytes.len() as u64;
        if filled > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - filled));
            self.pending[filled..][..now.len()].copy_from_slice(now);
            bytes = later;
            if filled + now.len() < BLOCK {
                return;
            }
            let block = self.pending;
            self.add(&block);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        blocks.iter().for_each(|block| self.add(block));
        self.pending[..rest.len()].copy_from_slice(rest);
    }

    fn add(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        self.lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane = mix(*lane, u64::from_le_bytes(*word)));
    }

    /// The digest of all bytes so far.
    pub fn value(&self) -> u64 {
        let rest = &self.pending[..(self.length % BLOCK as u64) as usize];
        let rest = rest.iter().map(|byte| u64::from(*byte));
        self.lanes.into_iter().chain(rest).fold(self.length, mix)
    }
}

/// The digest of bytes.
pub fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new(seed);
    digest.update(bytes);
    digest.value()
}

/// Adds the next `bytes` bytes of a reader, or all that are left, to a digest. Returns how many there were.
pub(crate) fn read_into(digest: &mut Digest, reader: impl Read, bytes: u64) -> io::Result<u64> {
    let (mut reader, mut buffer, mut read) = (reader.take(bytes), vec![0; READ], 0);
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(read),
            Ok(count) => {
                digest.update(&buffer[..count]);
                read += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digest of the content of a file.
pub fn digest_of_file(path: &Path) -> io::Result<u64> {
    of_file(0, path)
}

/// The digest of a file.
pub(crate) fn of_file(seed: u64, path: &Path) -> io::Result<u64> {
    let mut digest = Digest::new(seed);
    read_into(&mut digest, File::open(path)?, u64::MAX)?;
    Ok(digest.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter_and_every_bit_does() {
        let bytes: Vec<u8> = (0..333).map(|i| (i * 7) as u8).collect();
        let whole = digest(3, &bytes);
        for piece in [1, 5, 63, 64, 65, 200] {
            let mut digest = Digest::new(3);
            bytes.chunks(piece).for_each(|piece| digest.update(piece));
            assert_eq!(digest.value(), whole, "pieces of {piece}");
        }
        let mut seen =
            vec![whole, digest(4, &bytes), digest(3, &bytes[1..]), digest(3, &[bytes.clone(), vec![0]].concat())];
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            seen.push(digest(3, &other));
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
