//! The segments of a JPEG file: tags that are added to it, and whether its end is missing.

use super::iptc;
use crate::stream::ImageTags;

const EXIF: &[u8] = b"Exif\0\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const PHOTOSHOP: &[u8] = b"Photoshop 3.0\0";

const APP0: u8 = 0xe0;
const APP1: u8 = 0xe1;
const APP13: u8 = 0xed;
const END: u8 = 0xd9;

/// The most bytes of a segment after its marker and its length.
const MAX_SEGMENT: usize = 65_533;

/// Whether a segment can hold EXIF of this length.
pub(super) fn holds_exif(length: usize) -> bool {
    EXIF.len() + length <= MAX_SEGMENT
}

/// Whether a segment can hold XMP of this length.
pub(super) fn holds_xmp(length: usize) -> bool {
    XMP.len() + length <= MAX_SEGMENT
}

/// Whether a segment can hold IPTC of this length.
pub(super) fn holds_iptc(length: usize) -> bool {
    PHOTOSHOP.len() + iptc::wrapped(&[]).len() + length < MAX_SEGMENT
}

/// Adds tags to an encoded file, after its first segment. A tag that is too long for a segment is left out.
pub(super) fn with_tags(file: &[u8], tags: &ImageTags) -> Vec<u8> {
    let first = match file {
        [_, _, 0xff, APP0, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => 2,
    };
    let (start, rest) = file.split_at(first.min(file.len()));
    let mut tagged = start.to_vec();
    let mut segment = |marker: u8, prefix: &[u8], content: &[u8]| {
        let length = prefix.len() + content.len();
        if length <= MAX_SEGMENT {
            tagged.extend([0xff, marker]);
            tagged.extend((length as u16 + 2).to_be_bytes());
            tagged.extend(prefix);
            tagged.extend(content);
        }
    };
    if let Some(exif) = &tags.exif {
        segment(APP1, EXIF, exif);
    }
    if let Some(xmp) = &tags.xmp {
        segment(APP1, XMP, xmp);
    }
    if let Some(iptc) = &tags.iptc {
        segment(APP13, PHOTOSHOP, &iptc::wrapped(iptc));
    }
    tagged.extend(rest);
    tagged
}

/// Whether the file ends in its image data, before the end marker. A decoder fills the missing part with grey.
pub(super) fn is_truncated(file: &[u8]) -> bool {
    let mut at = 2;
    let mut in_scan = false;
    loop {
        // In a scan, a byte 0xff is followed by zero, and restart markers may occur.
        let marker = match file.get(at..at + 2) {
            Some([0xff, marker]) => *marker,
            Some(_) if in_scan => {
                at += 1;
                continue;
            }
            Some(_) => return false,
            None => return in_scan,
        };
        match marker {
            END => return false,
            0xff => at += 1,
            0x00 | 0xd0..=0xd7 if in_scan => at += 2,
            _ => {
                let Some(length) = file.get(at + 2..at + 4) else { return in_scan };
                at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]])).max(2);
                in_scan = in_scan || marker == 0xda;
            }
        }
    }
}
