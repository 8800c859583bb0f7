//! The pages of a TIFF file. A page is read through a view of the file in which its directory is the first.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};

/// The most pages of a file.
const MAX_PAGES: usize = 1 << 16;
/// The most entries of a directory.
const MAX_ENTRIES: u64 = 4096;

/// The tag that marks thumbnails and masks.
const SUBFILE_TYPE: u64 = 254;
const THUMBNAIL: u64 = 1;
const MASK: u64 = 4;

/// A page of a file; by default the only image of a file of any format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The pointer to the directory as the header stores it, its length, and its place in the header.
    pointer: [u8; 8],
    length: usize,
    at: u64,
}

/// The two layouts of a TIFF file.
#[derive(Clone, Copy)]
struct Layout {
    little: bool,
    big_tiff: bool,
}

impl Layout {
    fn of(head: &[u8; 8]) -> Option<Layout> {
        match head {
            [b'I', b'I', magic @ (42 | 43), 0, ..] => Some(Layout { little: true, big_tiff: *magic == 43 }),
            [b'M', b'M', 0, magic @ (42 | 43), ..] => Some(Layout { little: false, big_tiff: *magic == 43 }),
            _ => None,
        }
    }

    fn number(self, bytes: &[u8]) -> u64 {
        let append = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if self.little { bytes.iter().rev().fold(0, append) } else { bytes.iter().fold(0, append) }
    }

    /// Bytes of an offset.
    fn width(self) -> usize {
        if self.big_tiff { 8 } else { 4 }
    }

    fn page(self, offset: u64) -> Page {
        let width = self.width();
        let mut pointer = if self.little { offset.to_le_bytes() } else { offset.to_be_bytes() };
        if !self.little {
            pointer.rotate_left(8 - width);
        }
        Page { pointer, length: width, at: width as u64 }
    }
}

/// The pages of a TIFF file in order, without thumbnails and masks; empty for other files.
pub(super) fn pages(input: &mut (impl Read + Seek)) -> io::Result<Vec<Page>> {
    let mut head = [0; 8];
    input.rewind()?;
    input.read_exact(&mut head)?;
    let Some(layout) = Layout::of(&head) else { return Ok(Vec::new()) };
    let width = layout.width();
    let mut read = |offset: u64, length: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        input.seek(SeekFrom::Start(offset))?;
        input.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let mut next = layout.number(&read(width as u64, width)?);
    let (mut pages, mut seen) = (Vec::new(), HashSet::new());
    while next != 0 && seen.insert(next) && seen.len() <= MAX_PAGES {
        let (count_width, entry_width) = if layout.big_tiff { (8, 20) } else { (2, 12) };
        // A damaged directory ends the list; the pages before it are read.
        let Ok(count) = read(next, count_width).map(|bytes| layout.number(&bytes).min(MAX_ENTRIES) as usize) else {
            break;
        };
        let Ok(table) = read(next + count_width as u64, count * entry_width + width) else { break };
        let (entries, link) = table.split_at(count * entry_width);
        let kind = entries.chunks_exact(entry_width).find(|entry| layout.number(&entry[..2]) == SUBFILE_TYPE);
        let kind = kind.map_or(0, |entry| layout.number(&entry[entry_width - width..][..4]));
        if kind & (THUMBNAIL | MASK) == 0 {
            pages.push(layout.page(next));
        }
        next = layout.number(link);
    }
    Ok(pages)
}

/// A reader of a file in which a page's directory is the first.
pub(super) struct AtPage<R> {
    input: R,
    position: u64,
    page: Page,
}

impl<R: Read + Seek> AtPage<R> {
    /// `input` must be at its start.
    pub fn new(input: R, page: Page) -> AtPage<R> {
        AtPage { input, position: 0, page }
    }
}

impl<R: Read> Read for AtPage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let Page { pointer, length, at } = self.page;
        for (i, byte) in pointer[..length].iter().enumerate() {
            let place = (at + i as u64).checked_sub(self.position).map(|place| place as usize);
            if let Some(place) = place.filter(|place| *place < read) {
                buffer[place] = *byte;
            }
        }
        self.position += read as u64;
        Ok(read)
    }
}

impl<R: Seek> Seek for AtPage<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.position = self.input.seek(position)?;
        Ok(self.position)
    }
}
