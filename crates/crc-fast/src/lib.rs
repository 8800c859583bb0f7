//! CRC-64/NVME, the checksum of uploads to S3 that users select with `AWS_CHECKSUM_ALGORITHM=crc64nvme`. The interface
//! is the part of the public crate `crc-fast` that object_store calls.
//!
//! ```
//! let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
//! digest.update(b"123456789");
//! assert_eq!(digest.finalize(), 0xae8b_1486_0a79_9888);
//! ```

/// The polynomial 0xad93d23594c93659 with its bits in reverse order.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// Row `n` has the remainder of every byte that `n` zero bytes follow, so that eight bytes are one step.
static TABLES: [[u64; 256]; 8] = tables();

/// The checksums that can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcAlgorithm {
    /// CRC-64/NVME.
    Crc64Nvme,
}

/// The checksum of the bytes so far.
#[derive(Clone, Debug)]
pub struct Digest {
    remainder: u64,
}

impl Digest {
    /// The checksum of no bytes.
    pub fn new(algorithm: CrcAlgorithm) -> Digest {
        match algorithm {
            CrcAlgorithm::Crc64Nvme => Digest { remainder: !0 },
        }
    }

    /// Appends bytes.
    pub fn update(&mut self, data: &[u8]) {
        let (words, rest) = data.as_chunks::<8>();
        for word in words {
            let bytes = (self.remainder ^ u64::from_le_bytes(*word)).to_le_bytes();
            let terms = bytes.iter().zip(TABLES.iter().rev()).map(|(&byte, table)| table[usize::from(byte)]);
            self.remainder = terms.fold(0, |sum, term| sum ^ term);
        }
        for &byte in rest {
            self.remainder = after(self.remainder, byte);
        }
    }

    /// The checksum.
    pub fn finalize(&self) -> u64 {
        !self.remainder
    }
}

fn after(remainder: u64, byte: u8) -> u64 {
    TABLES[0][(remainder as u8 ^ byte) as usize] ^ (remainder >> 8)
}

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder & 1;
            remainder = (remainder >> 1) ^ (carry * POLYNOMIAL);
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut row = 1;
    while row < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[row - 1][byte];
            tables[row][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        row += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Division by the polynomial, one bit at a time.
    fn definition(data: &[u8]) -> u64 {
        let mut remainder = !0u64;
        for byte in data {
            remainder ^= u64::from(*byte);
            for _ in 0..8 {
                remainder = (remainder >> 1) ^ ((remainder & 1) * POLYNOMIAL);
            }
        }
        !remainder
    }

    fn checksum(parts: &[&[u8]]) -> u64 {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        parts.iter().for_each(|part| digest.update(part));
        digest.finalize()
    }

    #[test]
    fn published_values_agree() {
        assert_eq!(checksum(&[b"123456789"]), 0xae8b_1486_0a79_9888);
        assert_eq!(checksum(&[]), 0);
    }

    #[test]
    fn every_length_and_every_split_agrees_with_the_definition() {
        let data: Vec<u8> = (0..40u32).map(|i| (i * 151 + 7) as u8).collect();
        for length in 0..=data.len() {
            let expected = definition(&data[..length]);
            for split in 0..=length {
                assert_eq!(checksum(&[&data[..split], &data[split..length]]), expected, "{length} bytes, {split}");
            }
        }
    }
}
