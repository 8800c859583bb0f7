//! The metadata of AVIF, HEIC and JPEG XL files, which consist of boxes.
//!
//! Damaged metadata is left out: the pixels do not need it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::exif;
use super::guard::{MAX_METADATA, Retry};
use crate::frame::Size;
use crate::stream::ImageTags;

/// The most boxes of a file that are read.
const MAX_BOXES: usize = 4096;

/// What the boxes of an image file tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub tags: ImageTags,
    /// The size of an image that consists of tiles, before rotation.
    pub tiled: Option<Size>,
}

/// Reads the metadata of a file.
pub(super) fn read(path: &Path) -> Metadata {
    let metadata = File::open(path).and_then(|file| from(&mut BufReader::new(Retry(file))));
    metadata.unwrap_or_default()
}

fn from(file: &mut (impl Read + Seek)) -> io::Result<Metadata> {
    let mut metadata = Metadata::default();
    let end = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    for _ in 0..MAX_BOXES {
        if at >= end {
            break;
        }
        let (kind, header, length) = header(file, at, end)?;
        let content = Extent { at: at + header, length: length - header };
        match &kind {
            b"meta" => metadata = items(&load(file, content)?, file).unwrap_or_default(),
            b"Exif" => metadata.tags.exif = exif_block(load(file, content)?),
            b"xml " => metadata.tags.xmp = Some(load(file, content)?),
            _ => {}
        }
        at += length;
    }
    if let Some(exif) = &mut metadata.tags.exif {
        // The orientation of these formats is a property of the image, which the decoder applies.
        exif::set_upright(exif);
    }
    Ok(metadata)
}

/// The kind of the box at `at`, the length of its header and its whole length.
fn header(file: &mut (impl Read + Seek), at: u64, end: u64) -> io::Result<([u8; 4], u64, u64)> {
    let mut head = [0; 16];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut head[..8])?;
    let kind = [head[4], head[5], head[6], head[7]];
    let short = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let (header, length) = match short {
        // To the end of the file.
        0 => (8, end - at),
        1 => {
            file.read_exact(&mut head[8..])?;
            (16, head[8..].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        }
        length => (8, u64::from(length)),
    };
    match length >= header && length <= end - at {
        true => Ok((kind, header, length)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A part of a file.
#[derive(Clone, Copy)]
struct Extent {
    at: u64,
    length: u64,
}

fn load(file: &mut (impl Read + Seek), extent: Extent) -> io::Result<Vec<u8>> {
    if extent.length > MAX_METADATA {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(extent.at))?;
    file.take(extent.length).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == extent.length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The TIFF structure in an EXIF box or item, which begins with the offset to it.
fn exif_block(content: Vec<u8>) -> Option<Vec<u8>> {
    let mut bytes = Bytes(&content);
    let offset = bytes.number(4)?;
    bytes.take(usize::try_from(offset).ok()?)?;
    Some(bytes.0.to_vec()).filter(|block| !block.is_empty())
}

/// Bytes that are read from the front; `None` where they are too few.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of up to eight bytes.
    fn number(&mut self, width: usize) -> Option<u64> {
        Some(self.take(width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The version of a box, whose flags are skipped.
    fn version(&mut self) -> Option<u64> {
        Some(self.number(4)? >> 24)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    /// The next box and its kind.
    fn child(&mut self) -> Option<(&'a [u8], Bytes<'a>)> {
        let length = usize::try_from(self.number(4)?).ok()?;
        let kind = self.take(4)?;
        Some((kind, Bytes(self.take(length.checked_sub(8)?)?)))
    }

    fn find(&self, kind: &[u8; 4]) -> Option<Bytes<'a>> {
        let mut rest = Bytes(self.0);
        std::iter::from_fn(|| rest.child()).find(|(found, _)| found == kind).map(|(_, content)| content)
    }
}

/// The metadata of the items of an AVIF or HEIC file, from the content of its `meta` box.
fn items(meta: &[u8], file: &mut (impl Read + Seek)) -> Option<Metadata> {
    let mut meta = Bytes(meta);
    meta.version()?;
    let mut metadata = Metadata::default();
    let kinds = kinds(meta.find(b"iinf")?)?;
    if let Some(properties) = primary(&meta) {
        let tiled = kinds.get(&properties.item).is_some_and(|kind| *kind == ItemKind::Tiled);
        metadata.tiled = properties.size.filter(|_| tiled);
        metadata.tags.icc = properties.icc;
    }
    let places = places(meta.find(b"iloc")?, meta.find(b"idat")).unwrap_or_default();
    for (item, place) in places {
        let mut load = || match &place {
            Place::File(extent) => load(file, *extent).ok(),
            Place::Inside(bytes) => Some(bytes.to_vec()),
        };
        match kinds.get(&item) {
            Some(ItemKind::Exif) => metadata.tags.exif = load().and_then(exif_block),
            Some(ItemKind::Xmp) => metadata.tags.xmp = load(),
            _ => {}
        }
    }
    Some(metadata)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Exif,
    Xmp,
    Tiled,
    Other,
}

/// The kinds of the items, by their number.
fn kinds(mut list: Bytes) -> Option<HashMap<u64, ItemKind>> {
    let width = if list.version()? == 0 { 2 } else { 4 };
    list.take(width)?;
    let mut kinds = HashMap::new();
    while let Some((b"infe", mut entry)) = list.child() {
        let version = entry.version()?;
        let item = entry.number(if version == 2 { 2 } else { 4 })?;
        entry.take(2)?;
        let kind = match entry.take(4)? {
            b"Exif" => ItemKind::Exif,
            b"grid" => ItemKind::Tiled,
            b"mime" => {
                entry.text()?;
                if entry.text()? == b"application/rdf+xml" { ItemKind::Xmp } else { ItemKind::Other }
            }
            _ => ItemKind::Other,
        };
        kinds.insert(item, kind);
    }
    Some(kinds)
}

/// Where the content of an item is.
enum Place<'a> {
    File(Extent),
    Inside(&'a [u8]),
}

/// The places of the items that are in one piece.
fn places<'a>(mut list: Bytes, inside: Option<Bytes<'a>>) -> Option<Vec<(u64, Place<'a>)>> {
    let version = list.version()?;
    let widths = list.number(2)?;
    let width = |shift: u32| (widths >> shift & 15) as usize;
    let (offset_width, length_width, base_width) = (width(12), width(8), width(4));
    let index_width = if version == 0 { 0 } else { width(0) };
    let number_width = if version < 2 { 2 } else { 4 };
    let count = list.number(number_width)?;
    let mut places = Vec::new();
    for _ in 0..count {
        let item = list.number(number_width)?;
        let method = if version == 0 { 0 } else { list.number(2)? & 15 };
        list.take(2)?;
        let base = list.number(base_width)?;
        let extents = usize::try_from(list.number(2)?).ok()?;
        if extents != 1 {
            list.take(extents * (index_width + offset_width + length_width))?;
            continue;
        }
        list.take(index_width)?;
        let at = base.checked_add(list.number(offset_width)?)?;
        let extent = Extent { at, length: list.number(length_width)? };
        let within = || {
            let start = usize::try_from(extent.at).ok()?;
            inside.as_ref()?.0.get(start..start.checked_add(usize::try_from(extent.length).ok()?)?)
        };
        match method {
            0 => places.push((item, Place::File(extent))),
            1 => places.extend(within().map(|bytes| (item, Place::Inside(bytes)))),
            _ => {}
        }
    }
    Some(places)
}

/// The properties of the item that is shown.
#[derive(Default)]
struct Properties {
    item: u64,
    size: Option<Size>,
    icc: Option<Vec<u8>>,
}

fn primary(meta: &Bytes) -> Option<Properties> {
    let mut number = meta.find(b"pitm")?;
    let width = if number.version()? == 0 { 2 } else { 4 };
    let item = number.number(width)?;
    let iprp = meta.find(b"iprp")?;
    let mut all = iprp.find(b"ipco")?;
    let all: Vec<(&[u8], Bytes)> = std::iter::from_fn(|| all.child()).collect();
    let mut properties = Properties { item, ..Properties::default() };
    for index in associated(iprp.find(b"ipma")?, item)? {
        match all.get(index.wrapping_sub(1)) {
            Some((b"ispe", content)) => properties.size = size(content),
            Some((b"colr", Bytes([b'p', b'r', b'o', b'f', icc @ ..] | [b'r', b'I', b'C', b'C', icc @ ..]))) => {
                properties.icc = Some(icc.to_vec()).filter(|profile| profile.get(16..20) == Some(b"RGB "));
            }
            _ => {}
        }
    }
    Some(properties)
}

/// The content of a size property.
fn size(content: &Bytes) -> Option<Size> {
    let mut sides = Bytes(content.0);
    sides.version()?;
    let (w, h) = (sides.number(4)? as usize, sides.number(4)? as usize);
    Some(Size { h, w })
}

/// The properties of an item, counted from 1.
fn associated(mut list: Bytes, wanted: u64) -> Option<Vec<usize>> {
    let head = list.number(4)?;
    let (item_width, index_width) = (if head >> 24 == 0 { 2 } else { 4 }, if head & 1 == 0 { 1 } else { 2 });
    let essential = 1 << (8 * index_width - 1);
    for _ in 0..list.number(4)? {
        let item = list.number(item_width)?;
        let count = list.number(1)?;
        let indices: Option<Vec<usize>> =
            (0..count).map(|_| Some((list.number(index_width)? & (essential - 1)) as usize)).collect();
        let indices = indices?;
        if item == wanted {
            return Some(indices);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const EXIF: &[u8] = b"II*\0\x08\0\0\0\0\0\0\0\0\0";

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32 + 8).to_be_bytes()[..], kind, content].concat()
    }

    /// A box whose content begins with its version.
    fn full(kind: &[u8; 4], version: u8, content: &[u8]) -> Vec<u8> {
        boxed(kind, &[&[version, 0, 0, 0], content].concat())
    }

    fn item(number: u8, kind: &[u8]) -> Vec<u8> {
        full(b"infe", 2, &[&[0, number, 0, 0], kind].concat())
    }

    /// A photograph of tiles: the image, EXIF in the file, XMP in the box of the items, and a profile.
    fn photograph() -> Vec<u8> {
        let ftyp = boxed(b"ftyp", b"heic\0\0\0\0mif1heic");
        let exif = [&[0, 0, 0, 6][..], b"Exif\0\0", EXIF].concat();
        let profile = [&b"prof"[..], &[0; 16], b"RGB ", &[7; 8]].concat();
        let items = [item(1, b"grid\0"), item(2, b"Exif\0"), item(3, b"mime\0application/rdf+xml\0")].concat();
        let meta = |exif_at: u32| {
            let place = |number: u8, method: u8, at: u32, length: usize| {
                [&[0, number, 0, method, 0, 0, 0, 1][..], &at.to_be_bytes(), &(length as u32).to_be_bytes()].concat()
            };
            let places = [&[0x44, 0, 0, 2][..], &place(2, 0, exif_at, exif.len()), &place(3, 1, 1, 5)].concat();
            let size = full(b"ispe", 0, &[0, 0, 15, 192, 0, 0, 11, 208]);
            let shown = [&[0, 0, 0, 1, 0, 1, 2, 0x81, 2][..]].concat();
            let properties =
                [boxed(b"ipco", &[size, boxed(b"colr", &profile)].concat()), full(b"ipma", 0, &shown)].concat();
            let content = [
                full(b"pitm", 0, &[0, 1]),
                full(b"iinf", 0, &[&[0, 3][..], &items].concat()),
                boxed(b"iprp", &properties),
                boxed(b"idat", b"-<xmp/"),
                full(b"iloc", 1, &places),
            ];
            full(b"meta", 0, &content.concat())
        };
        let data_at = ftyp.len() + meta(0).len() + 8;
        [ftyp, meta(data_at as u32), boxed(b"mdat", &exif)].concat()
    }

    #[test]
    fn the_tags_and_the_size_of_a_photograph_are_found() {
        let metadata = from(&mut Cursor::new(photograph())).unwrap();
        assert_eq!(metadata.tags.exif.as_deref(), Some(EXIF));
        assert_eq!(metadata.tags.xmp.as_deref(), Some(&b"<xmp/"[..]));
        assert_eq!(metadata.tags.icc.as_ref().map(Vec::len), Some(28));
        assert_eq!(metadata.tiled, Some(Size { h: 3024, w: 4032 }));
    }

    #[test]
    fn damaged_boxes_end_without_a_panic() {
        let whole = photograph();
        for at in 0..whole.len() {
            let _ = from(&mut Cursor::new(&whole[..at]));
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = from(&mut Cursor::new(damaged));
            }
        }
    }
}
