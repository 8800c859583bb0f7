//! IPTC: captions and credits. They are kept as the bare data set; JPEG and PNG wrap it in a Photoshop resource.

/// The start of a Photoshop resource.
const RESOURCE: &[u8] = b"8BIM";
/// The Photoshop resource that holds IPTC.
const IPTC_RESOURCE: u16 = 0x0404;
/// The first byte of an IPTC data set.
const DATA_SET: u8 = 0x1c;

/// The IPTC data set in Photoshop resources, or `block` itself if it is one; `None` without one.
pub(super) fn unwrapped(block: &[u8]) -> Option<Vec<u8>> {
    let mut rest = block.strip_prefix(b"Photoshop 3.0\0").unwrap_or(block);
    if rest.first() == Some(&DATA_SET) {
        return Some(rest.to_vec());
    }
    while let Some(resource) = rest.strip_prefix(RESOURCE) {
        let id = u16::from_be_bytes(resource.get(..2)?.try_into().ok()?);
        // The name is a length and its characters, padded to an even number of bytes, and so is the content.
        let name = (usize::from(*resource.get(2)?) + 1).next_multiple_of(2);
        let after_name = resource.get(2 + name..)?;
        let length = u32::from_be_bytes(after_name.get(..4)?.try_into().ok()?) as usize;
        let content = after_name.get(4..4usize.checked_add(length)?)?;
        if id == IPTC_RESOURCE {
            return Some(content.to_vec()).filter(|content| !content.is_empty());
        }
        rest = after_name.get(4 + length.next_multiple_of(2)..)?;
    }
    None
}

/// A Photoshop resource with the data set.
pub(super) fn wrapped(iptc: &[u8]) -> Vec<u8> {
    let mut resource = RESOURCE.to_vec();
    resource.extend(IPTC_RESOURCE.to_be_bytes());
    resource.extend([0, 0]);
    resource.extend((iptc.len() as u32).to_be_bytes());
    resource.extend(iptc);
    resource.extend(std::iter::repeat_n(0, iptc.len() % 2));
    resource
}

/// The bytes of a profile that a PNG text holds as hexadecimal digits, after its name and its length.
pub(super) fn from_profile_text(text: &str) -> Option<Vec<u8>> {
    let (_name, rest) = text.trim_start().split_once(char::is_whitespace)?;
    let (length, digits) = rest.trim_start().split_once(char::is_whitespace)?;
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    let bytes: Option<Vec<u8>> =
        digits.chunks_exact(2).map(|pair| Some(16 * digit(pair[0])? + digit(pair[1])?)).collect();
    bytes.filter(|bytes| length.parse() == Ok(bytes.len()))
}

/// The reverse of [`from_profile_text`].
pub(super) fn to_profile_text(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("\n{name}\n{:>8}\n", bytes.len());
    for line in bytes.chunks(36) {
        line.iter().for_each(|byte| text += &format!("{byte:02x}"));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTION: &[u8] = b"\x1c\x02\x78\x00\x03cat";

    #[test]
    fn a_data_set_survives_the_photoshop_resource() {
        let mut block = b"Photoshop 3.0\x008BIM\x03\xed\x03abc\0\0\0\x01x\0".to_vec();
        block.extend(wrapped(CAPTION));
        assert_eq!(unwrapped(&block).as_deref(), Some(CAPTION));
        assert_eq!(unwrapped(CAPTION).as_deref(), Some(CAPTION));
        assert_eq!((unwrapped(b"8BIM"), unwrapped(b""), unwrapped(&block[..block.len() - 4])), (None, None, None));
    }

    #[test]
    fn a_data_set_survives_the_text_of_a_png() {
        let text = to_profile_text("iptc", CAPTION);
        assert_eq!(from_profile_text(&text).as_deref(), Some(CAPTION));
        assert_eq!(from_profile_text("\niptc\n 9\n1c02"), None, "the length must be right");
    }
}
