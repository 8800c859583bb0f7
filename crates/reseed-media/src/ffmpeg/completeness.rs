//! Checks without ffprobe whether a file holds all the bytes that its container announces.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::path::Path;

/// Top-level boxes of an MP4 file that are walked; a file with more is not known to be complete.
const MAX_BOXES: usize = 1000;
/// Bytes at the end that are not all zero in a complete file. Interrupted downloads may have their full length.
const TAIL: u64 = 4096;

/// Whether an MP4, MOV or Matroska file is complete for certain.
pub(super) fn is_complete(path: &Path) -> bool {
    let check = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok((announced(&mut file, length)? == Some(length)) && has_data_at_end(&mut file, length)?)
    };
    Result::unwrap_or(check(), false)
}

/// The length in bytes by the headers of the container; `None` if they do not say it.
fn announced(file: &mut (impl Read + Seek), length: u64) -> Result<Option<u64>> {
    let mut start = [0; 4];
    file.read_exact(&mut start)?;
    file.rewind()?;
    if start == [0x1a, 0x45, 0xdf, 0xa3] { matroska(file) } else { boxes(file, length) }
}

/// The end of the last box. The fragments of a fragmented file are not announced.
fn boxes(file: &mut (impl Read + Seek), length: u64) -> Result<Option<u64>> {
    let mut at = 0u64;
    for _ in 0..MAX_BOXES {
        if at >= length {
            return Ok(Some(at));
        }
        file.seek(SeekFrom::Start(at))?;
        let mut header = [0; 8];
        file.read_exact(&mut header)?;
        let [a, b, c, d, kind @ ..] = header;
        let size = match u32::from_be_bytes([a, b, c, d]) {
            0 => return Ok(Some(length)),
            1 => {
                let mut size = [0; 8];
                file.read_exact(&mut size)?;
                u64::from_be_bytes(size)
            }
            size => size.into(),
        };
        if size < 8 || kind == *b"moof" {
            return Ok(None);
        }
        at = at.saturating_add(size);
    }
    Ok(None)
}

/// The end of the segment, which holds everything after the header.
fn matroska(file: &mut (impl Read + Seek)) -> Result<Option<u64>> {
    file.seek(SeekFrom::Start(4))?;
    let Some(header) = variable_integer(file)? else { return Ok(None) };
    let at = file.stream_position()?.saturating_add(header);
    file.seek(SeekFrom::Start(at))?;
    let mut name = [0; 4];
    file.read_exact(&mut name)?;
    match (name, variable_integer(file)?) {
        ([0x18, 0x53, 0x80, 0x67], Some(size)) => Ok(Some(file.stream_position()?.saturating_add(size))),
        _ => Ok(None),
    }
}

/// Reads a size of EBML: the zeros before the first one bit count the bytes that follow. All ones mean an unknown size.
fn variable_integer(file: &mut impl Read) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes[..1])?;
    let following = bytes[0].leading_zeros() as usize;
    if following > 7 {
        return Ok(None);
    }
    file.read_exact(&mut bytes[1..=following])?;
    let bits = 7 * (following + 1);
    let value = (u64::from_be_bytes(bytes) >> (8 * (7 - following))) & ((1 << bits) - 1);
    Ok((value != (1 << bits) - 1).then_some(value))
}

fn has_data_at_end(file: &mut (impl Read + Seek), length: u64) -> Result<bool> {
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(tail.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Cursor;

    use super::*;

    fn mp4(parts: &[(&[u8; 4], usize)]) -> Vec<u8> {
        let part = |(kind, bytes): &(&[u8; 4], usize)| {
            let size = (*bytes as u32 + 8).to_be_bytes();
            [&size[..], &kind[..], &vec![7; *bytes]].concat()
        };
        parts.iter().flat_map(part).collect()
    }

    fn mkv(size: &[u8], bytes: usize) -> Vec<u8> {
        [&[0x1a, 0x45, 0xdf, 0xa3, 0x82, 1, 2, 0x18, 0x53, 0x80, 0x67], size, &vec![7; bytes]].concat()
    }

    fn length(bytes: &[u8]) -> Option<u64> {
        announced(&mut Cursor::new(bytes), bytes.len() as u64).unwrap_or(None)
    }

    #[test]
    fn the_boxes_of_an_mp4_file_announce_its_length() {
        let whole = mp4(&[(b"ftyp", 16), (b"moov", 100), (b"mdat", 300)]);
        assert_eq!(length(&whole), Some(440));
        assert_eq!(length(&whole[..400]), Some(440));
        assert_eq!(length(&whole[..135]), None, "the header of a box is cut");
        assert_eq!(length(&mp4(&[(b"ftyp", 16), (b"moof", 100)])), None);
        let long = [&[0, 0, 0, 1][..], b"mdat", &5000u64.to_be_bytes(), &[7; 50]].concat();
        assert_eq!(length(&long), Some(5000));
        assert_eq!(length(&[&[0, 0, 0, 0][..], b"mdat", &[7; 50]].concat()), Some(58), "a box up to the end");
        assert_eq!(length(&[&[0, 0, 0, 3][..], b"mdat"].concat()), None);
    }

    #[test]
    fn the_segment_of_a_matroska_file_announces_its_length() {
        for size in [&[0x80 + 40][..], &[0x40, 40], &[0x10, 0, 0, 40], &[1, 0, 0, 0, 0, 0, 0, 40]] {
            assert_eq!(length(&mkv(size, 40)), Some(51 + size.len() as u64));
            assert_eq!(length(&mkv(size, 30)), Some(51 + size.len() as u64));
        }
        assert_eq!(length(&mkv(&[0xff], 40)), None);
        assert_eq!(length(&mkv(&[1, 255, 255, 255, 255, 255, 255, 255], 40)), None);
        assert_eq!(length(&mkv(&[0], 40)), None);
        assert_eq!(length(&mkv(&[], 0)), None);
    }

    #[test]
    fn a_file_of_full_length_that_ends_in_zeros_is_not_complete() {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.child("in.mkv");
        let mut bytes = mkv(&[0x50, 0, 0], 1 << 20);
        std::fs::write(&path, &bytes).unwrap();
        assert!(!is_complete(&path), "the segment ends within the file");
        bytes = mkv(&[0x10, 0x10, 0, 0], 1 << 20);
        std::fs::write(&path, &bytes).unwrap();
        assert!(is_complete(&path));
        let end = bytes.len() - 5000;
        bytes[end..].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        assert!(!is_complete(&path));
        assert!(!is_complete(&folder.child("missing.mkv")));
    }
}
