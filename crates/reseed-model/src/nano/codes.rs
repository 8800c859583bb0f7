//! The codes of the upper bytes.
//!
//! A stream can decode its next byte only after the one before it. Bytes are in several streams, so that a core decodes
//! one of each at the same time.

/// Streams of codes.
pub const STREAMS: usize = 4;
/// Most bits of a code.
const LONGEST: usize = 11;
/// Codes that are certainly in the bits of a stream after a refill.
const PER_REFILL: usize = 5;

/// For all bits that a stream may begin with, the byte that they decode to and, below it, the bits of its code.
pub type Table = [u16; 1 << LONGEST];

/// The table of a canonical code. `lengths` has two lengths per byte, zero for a value that does not occur, of the
/// values without their upper bit: it is the sign, for which every code has one more bit.
pub fn table(lengths: &[u8]) -> Table {
    let length = |value: usize| match lengths.get(value % 128 / 2).map_or(0, |pair| pair >> (value % 2 * 4) & 15) {
        0 => 0,
        length => usize::from(length) + 1,
    };
    let values = || (0..256).map(|value| (value, length(value))).filter(|(_, length)| *length > 0);
    let mut codes = [0u16; LONGEST + 1];
    values().for_each(|(_, length)| codes[length] += 1);
    let mut first = 0;
    codes.iter_mut().for_each(|codes| first = 2 * (first + std::mem::replace(codes, first)));
    let mut table = [0; 1 << LONGEST];
    for (value, length) in values() {
        let bits = codes[length].reverse_bits() >> (16 - length);
        let entries = table[usize::from(bits)..].iter_mut().step_by(1 << length);
        entries.for_each(|entry| *entry = (value << 8 | length) as u16);
        codes[length] += 1;
    }
    table
}

/// Decodes the streams that begin at `starts` of `part` and have the bytes of `to` in turns.
pub fn decode(table: &Table, part: &[u8], starts: [usize; STREAMS], to: &mut [u8]) {
    let mut streams = starts.map(|at| Stream { at, bits: MARK });
    for to in to.chunks_mut(STREAMS * PER_REFILL) {
        streams.iter_mut().for_each(|stream| stream.refill(part));
        let (rounds, last) = to.as_chunks_mut::<STREAMS>();
        for to in rounds {
            to.iter_mut().zip(&mut streams).for_each(|(to, stream)| *to = stream.decode(table));
        }
        last.iter_mut().zip(&mut streams).for_each(|(to, stream)| *to = stream.decode(table));
    }
}

/// The bits of a stream from its lowest one on, below a mark. As many zeros are above it as bits were decoded.
struct Stream {
    at: usize,
    bits: u64,
}

/// The mark of a stream of which nothing was decoded.
const MARK: u64 = 1 << 63;

impl Stream {
    #[inline(always)]
    fn refill(&mut self, part: &[u8]) {
        let decoded = self.bits.leading_zeros();
        self.at += decoded as usize / 8;
        let rest = &part[self.at..];
        let next = rest.first_chunk().map_or_else(|| last_bits(rest), |bytes| u64::from_le_bytes(*bytes));
        self.bits = (next | MARK) >> (decoded % 8);
    }

    #[inline(always)]
    fn decode(&mut self, table: &Table) -> u8 {
        let entry = table[self.bits as usize % table.len()];
        self.bits >>= entry % 64;
        (entry >> 8) as u8
    }
}

/// The bits of fewer than eight bytes, the last ones of a part.
#[cold]
#[inline(never)]
fn last_bits(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}
