//! EXIF: a TIFF structure of directories, which is edited in place or built from the directories of a TIFF file.
//!
//! Edits keep every offset, because maker notes refer to bytes by their position.

use std::io::{Read, Seek, SeekFrom};

use crate::frame::Size;

const ORIENTATION: u16 = 0x0112;
const EXIF_POINTER: u16 = 0x8769;
const GPS_POINTER: u16 = 0x8825;
const IMAGE_WIDTH: u16 = 0x0100;
const IMAGE_HEIGHT: u16 = 0x0101;
const PIXELS_X: u16 = 0xa002;
const PIXELS_Y: u16 = 0xa003;

const SHORT: u16 = 3;
const LONG: u16 = 4;

/// Limits for directories of hostile files.
const MAX_ENTRIES: u16 = 4096;
const MAX_VALUE: u64 = 1 << 20;

/// The byte order of a TIFF structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The order that the first four bytes tell; `None` if they begin no TIFF structure.
    fn of(head: &[u8]) -> Option<Order> {
        match head.get(..4)? {
            b"II*\0" => Some(Order::Little),
            b"MM\0*" => Some(Order::Big),
            _ => None,
        }
    }

    pub const NATIVE: Order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };

    fn u16(self, bytes: [u8; 2]) -> u16 {
        if self == Order::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        if self == Order::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn bytes_16(self, value: u16) -> [u8; 2] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn bytes_32(self, value: u32) -> [u8; 4] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }
}

/// Bytes per element of a field type, and bytes per number in it; `None` for an unknown type.
fn widths(kind: u16) -> Option<(u64, usize)> {
    match kind {
        1 | 2 | 6 | 7 => Some((1, 1)),
        3 | 8 => Some((2, 2)),
        4 | 9 | 11 | 13 => Some((4, 4)),
        5 | 10 => Some((8, 4)),
        12 => Some((8, 8)),
        _ => None,
    }
}

/// A view of an EXIF block for edits in place.
struct Block<'a> {
    bytes: &'a mut [u8],
    order: Order,
}

impl<'a> Block<'a> {
    fn of(bytes: &'a mut [u8]) -> Option<Block<'a>> {
        let order = Order::of(bytes)?;
        Some(Block { bytes, order })
    }

    fn u16(&self, at: usize) -> Option<u16> {
        Some(self.order.u16(self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(self.order.u32(self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }

    fn set(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = at.checked_add(value.len()).and_then(|end| self.bytes.get_mut(at..end)) {
            place.copy_from_slice(value);
        }
    }

    /// The position of the first directory.
    fn main(&self) -> Option<usize> {
        self.u32(4).map(|offset| offset as usize)
    }

    /// The position of an entry in the directory at `directory`.
    fn find(&self, directory: usize, tag: u16) -> Option<usize> {
        let count = self.u16(directory)?.min(MAX_ENTRIES);
        let entries = (0..usize::from(count)).map(|i| directory + 2 + 12 * i);
        entries.take_while(|at| self.u32(at + 8).is_some()).find(|at| self.u16(*at) == Some(tag))
    }

    /// The value of a short or long entry at `entry`.
    fn number(&self, entry: usize) -> Option<u32> {
        match self.u16(entry + 2)? {
            SHORT => self.u16(entry + 8).map(u32::from),
            LONG => self.u32(entry + 8),
            _ => None,
        }
    }

    fn set_number(&mut self, directory: usize, tag: u16, value: u32) {
        let Some(entry) = self.find(directory, tag) else { return };
        match self.u16(entry + 2) {
            Some(SHORT) => self.set(entry + 8, &self.order.bytes_16(value.min(u16::MAX.into()) as u16)),
            Some(LONG) => self.set(entry + 8, &self.order.bytes_32(value)),
            _ => {}
        }
    }
}

/// The orientation, 1 to 8; `None` without one.
pub(super) fn orientation(exif: &[u8]) -> Option<u8> {
    let mut copy = exif.to_vec();
    let block = Block::of(&mut copy)?;
    let entry = block.find(block.main()?, ORIENTATION)?;
    block.number(entry).filter(|value| (1..=8).contains(value)).map(|value| value as u8)
}

/// Sets the orientation to upright, because the pixels are. The thumbnail of a rotated image is unlinked, because its
/// pixels are not.
pub(super) fn set_upright(exif: &mut [u8]) {
    let rotated = orientation(exif).is_some_and(|orientation| orientation != 1);
    let Some(mut block) = Block::of(exif).filter(|_| rotated) else { return };
    let Some(main) = block.main() else { return };
    block.set_number(main, ORIENTATION, 1);
    if let Some(count) = block.u16(main) {
        block.set(main + 2 + 12 * usize::from(count), &[0; 4]);
    }
}

/// Sets the size of the image in the entries that state it.
pub(super) fn set_size(exif: &mut [u8], size: Size) {
    let Some(mut block) = Block::of(exif) else { return };
    let Some(main) = block.main() else { return };
    let (w, h) = (size.w as u32, size.h as u32);
    block.set_number(main, IMAGE_WIDTH, w);
    block.set_number(main, IMAGE_HEIGHT, h);
    let pointer = block.find(main, EXIF_POINTER).and_then(|entry| block.number(entry));
    if let Some(directory) = pointer {
        block.set_number(directory as usize, PIXELS_X, w);
        block.set_number(directory as usize, PIXELS_Y, h);
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub tag: u16,
    pub kind: u16,
    /// The value in the byte order of its directory.
    pub value: Vec<u8>,
}

/// The directories of EXIF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directories {
    pub order: Order,
    pub main: Vec<Entry>,
    pub exif: Vec<Entry>,
    pub gps: Vec<Entry>,
}

impl Directories {
    /// Reads the directories of a TIFF structure; `None` if `input` is none.
    pub fn read(input: &mut (impl Read + Seek)) -> Option<Directories> {
        let mut head = [0; 8];
        input.seek(SeekFrom::Start(0)).ok()?;
        input.read_exact(&mut head).ok()?;
        let order = Order::of(&head)?;
        let first = order.u32(head[4..].try_into().ok()?);
        let mut main = entries(input, order, first).unwrap_or_default();
        let mut sub = |tag: u16| {
            let pointer = main.iter().find(|entry| entry.tag == tag && entry.value.len() == 4)?;
            entries(input, order, order.u32(pointer.value[..].try_into().ok()?))
        };
        let (exif, gps) = (sub(EXIF_POINTER).unwrap_or_default(), sub(GPS_POINTER).unwrap_or_default());
        main.retain(|entry| ![EXIF_POINTER, GPS_POINTER].contains(&entry.tag));
        Some(Directories { order, main, exif, gps })
    }

    /// The same in another byte order. Values of unknown structure stay as they are.
    pub fn in_order(mut self, order: Order) -> Directories {
        if order != self.order {
            for entry in [&mut self.main, &mut self.exif, &mut self.gps].into_iter().flatten() {
                let (_, width) = widths(entry.kind).unwrap_or((1, 1));
                entry.value.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            self.order = order;
        }
        self
    }

    /// An EXIF block with these directories; `None` if they are empty.
    pub fn to_block(&self) -> Option<Vec<u8>> {
        if self.main.is_empty() && self.exif.is_empty() && self.gps.is_empty() {
            return None;
        }
        let order = self.order;
        let mut block = if order == Order::Little { b"II*\0".to_vec() } else { b"MM\0*".to_vec() };
        block.extend(order.bytes_32(8));
        let mut main = self.main.clone();
        let pointers: Vec<u16> = [(EXIF_POINTER, &self.exif), (GPS_POINTER, &self.gps)]
            .into_iter()
            .filter(|(_, entries)| !entries.is_empty())
            .map(|(tag, _)| tag)
            .collect();
        main.extend(pointers.iter().map(|tag| Entry { tag: *tag, kind: LONG, value: vec![0; 4] }));
        write_directory(&mut block, order, &main);
        for tag in pointers {
            let at = order.bytes_32(block.len() as u32);
            let entries = if tag == EXIF_POINTER { &self.exif } else { &self.gps };
            let mut view = Block { bytes: &mut block, order };
            if let Some(entry) = view.find(8, tag) {
                view.set(entry + 8, &at);
            }
            write_directory(&mut block, order, entries);
        }
        Some(block)
    }
}

/// Reads the entries of the directory at `offset`; skips those of unknown type and those that are too long.
fn entries(input: &mut (impl Read + Seek), order: Order, offset: u32) -> Option<Vec<Entry>> {
    let mut count = [0; 2];
    input.seek(SeekFrom::Start(offset.into())).ok()?;
    input.read_exact(&mut count).ok()?;
    let count = order.u16(count).min(MAX_ENTRIES);
    let mut table = vec![0; 12 * usize::from(count)];
    input.read_exact(&mut table).ok()?;
    let mut entries = Vec::new();
    for row in table.chunks_exact(12) {
        let (tag, kind) = (order.u16([row[0], row[1]]), order.u16([row[2], row[3]]));
        let count = order.u32([row[4], row[5], row[6], row[7]]);
        let Some((width, _)) = widths(kind) else { continue };
        let length = width * u64::from(count);
        let value = match length {
            0..=4 => row[8..8 + length as usize].to_vec(),
            5..=MAX_VALUE => {
                let mut value = vec![0; length as usize];
                let at = order.u32([row[8], row[9], row[10], row[11]]);
                let read = input.seek(SeekFrom::Start(at.into())).and_then(|_| input.read_exact(&mut value));
                if read.is_err() {
                    continue;
                }
                value
            }
            _ => continue,
        };
        entries.push(Entry { tag, kind, value });
    }
    Some(entries)
}

/// Appends a directory in the order of its tags, and the values that do not fit in their entries.
fn write_directory(block: &mut Vec<u8>, order: Order, entries: &[Entry]) {
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.tag);
    let mut values_at = block.len() + 2 + 12 * entries.len() + 4;
    let mut values: Vec<u8> = Vec::new();
    block.extend(order.bytes_16(entries.len() as u16));
    for entry in entries {
        let (width, _) = widths(entry.kind).unwrap_or((1, 1));
        block.extend(order.bytes_16(entry.tag));
        block.extend(order.bytes_16(entry.kind));
        block.extend(order.bytes_32((entry.value.len() as u64 / width) as u32));
        match entry.value.len() {
            0..=4 => {
                let mut inline = [0; 4];
                inline[..entry.value.len()].copy_from_slice(&entry.value);
                block.extend(inline);
            }
            length => {
                block.extend(order.bytes_32(values_at as u32));
                values.extend(&entry.value);
                // Values begin at even offsets.
                values.extend(std::iter::repeat_n(0, length % 2));
                values_at += length + length % 2;
            }
        }
    }
    block.extend([0; 4]);
    block.extend(values);
}
