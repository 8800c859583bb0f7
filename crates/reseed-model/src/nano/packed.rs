//! Unpacks the files of the embedded model, whose format `tools/nano` describes.
//!
//! Every job with the model waits for this. The lower bytes of its f16 values are noise and are stored as they are. The
//! codes of the upper bytes are in several streams, because a stream can decode its next byte only after the one before
//! it: a core decodes a byte of each stream at the same time.

use std::alloc::{Layout, handle_alloc_error};

use rayon::prelude::*;

/// Unpacked bytes of every part but the last: upper bytes, lower bytes and result stay in a core's caches.
const PART: usize = 1 << 15;
/// Streams of codes.
const STREAMS: usize = 4;
/// Most bits of a code.
const LONGEST: usize = 11;
/// Codes that are certainly in the bits of a stream after a refill.
const PER_REFILL: usize = 5;
/// Files begin on a huge page and own their last one: other pages would take longer than the unpacking.
const HUGE_PAGE: usize = 2 << 20;

/// The unpacked file. It is never freed.
pub fn unpack(packed: &[u8]) -> &'static [u8] {
    let mut fields = Fields(packed);
    let length = fields.number(4);
    let parts: Vec<&[u8]> = (0..length.div_ceil(PART)).map(|_| fields.sized(2)).collect();
    let size = length.next_multiple_of(HUGE_PAGE);
    let pages = reseed_ops::pages(size).unwrap_or_else(|| handle_alloc_error(Layout::new::<u8>()));
    let file = &mut Box::leak(Box::new(pages))[..length];
    let unpack_part = |upper: &mut [u8; PART / 2], (part, to)| unpack_part(part, upper, to);
    parts.into_par_iter().zip(file.par_chunks_mut(PART)).for_each_init(|| [0; PART / 2], unpack_part);
    file
}

/// Unpacks a part to zeros. `upper` is scratch.
fn unpack_part(part: &[u8], upper: &mut [u8; PART / 2], mut to: &mut [u8]) {
    let mut fields = Fields(part);
    let count = fields.number(2);
    let runs: Vec<[usize; 2]> = (0..count).map(|_| [fields.number(2), fields.number(2)]).collect();
    let upper = &mut upper[..runs.iter().map(|[values, _]| values).sum()];
    let table = table(fields.sized(1));
    let sizes = [(); STREAMS].map(|()| fields.number(2));
    let mut end = part.len() - fields.0.len();
    let starts = sizes.map(|bytes| {
        end += bytes;
        end - bytes
    });
    decode(&table, part, starts, upper);
    let (mut upper, mut lower) = (&*upper, &part[end..]);
    for [values, zeros] in runs {
        let (run, rest) = to.split_at_mut(2 * values);
        interleave(&upper[..values], &lower[..values], run);
        (upper, lower, to) = (&upper[values..], &lower[values..], &mut rest[2 * zeros..]);
    }
}

fn interleave(upper: &[u8], lower: &[u8], to: &mut [u8]) {
    let (pairs, _) = to.as_chunks_mut();
    pairs.iter_mut().zip(lower.iter().zip(upper)).for_each(|(to, (&lower, &upper))| *to = [lower, upper]);
}

/// For all bits that a stream may begin with, the byte that they decode to and, in the lower bits, the length of its code.
type Table = [u16; 1 << LONGEST];

/// The table of the canonical code. `lengths` has two lengths per byte, zero for a value that does not occur, of the
/// values without their upper bit: it is the sign, for which every code has one more bit.
fn table(lengths: &[u8]) -> Table {
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

/// Decodes the streams of a part, which begin at `starts` and have the bytes of `to` in turns.
fn decode(table: &Table, part: &[u8], starts: [usize; STREAMS], to: &mut [u8]) {
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
