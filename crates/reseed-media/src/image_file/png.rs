//! PNG, by rows, so that the rows of a truncated file are kept, and with tags before and after the image.

use std::borrow::Cow;
use std::io::Write;

use image::error::{DecodingError, EncodingError};
use image::{ColorType, ImageError, ImageFormat, ImageResult};
use png::{BitDepth, Compression, Filter, Limits, Reader, Transformations};

use super::guard::{Input, MAX_METADATA};
use super::iptc;
use crate::frame::Size;
use crate::stream::ImageTags;

const XMP_KEYWORD: &str = "XML:com.adobe.xmp";
const IPTC_KEYWORDS: [&str; 2] = ["Raw profile type iptc", "Raw profile type 8bim"];
const EXIF_KEYWORDS: [&str; 2] = ["Raw profile type exif", "Raw profile type APP1"];

/// A decoded image, in native byte order.
pub(super) struct Decoded {
    pub color: ColorType,
    pub samples: Vec<u8>,
    pub tags: ImageTags,
    /// The number of rows that could be read, if not all could.
    pub rows: Option<usize>,
}

fn failed(cause: png::DecodingError) -> ImageError {
    match cause {
        png::DecodingError::IoError(cause) => ImageError::IoError(cause),
        cause => ImageError::Decoding(DecodingError::new(ImageFormat::Png.into(), cause)),
    }
}

/// Starts reading a file; `check` decides by size and by bytes of the decoded image whether to go on.
pub(super) fn read<E>(
    input: Input,
    check: impl FnOnce(Size, u64) -> std::result::Result<(), E>,
) -> ImageResult<std::result::Result<Decoded, E>> {
    let limits = Limits { bytes: MAX_METADATA as usize };
    let mut decoder = png::Decoder::new_with_limits(input, limits);
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(failed)?;
    let (width, height) = reader.info().size();
    let size = Size { h: height as usize, w: width as usize };
    let bytes = reader.output_buffer_size().unwrap_or(usize::MAX);
    if let Err(error) = check(size, bytes as u64) {
        return Ok(Err(error));
    }
    let color = color_type(&reader)?;
    let mut samples = vec![0; bytes];
    let rows = read_rows(&mut reader, &mut samples)?;
    if rows.is_none() {
        // Tags may follow the image. A file that ends before them still has its image.
        let _ = reader.finish();
    }
    if reader.output_color_type().1 == BitDepth::Sixteen {
        samples.chunks_exact_mut(2).for_each(|sample| {
            let value = u16::from_be_bytes([sample[0], sample[1]]);
            sample.copy_from_slice(&value.to_ne_bytes());
        });
    }
    Ok(Ok(Decoded { color, samples, tags: tags(reader.info()), rows }))
}

fn is_system_error(cause: &png::DecodingError) -> bool {
    matches!(cause, png::DecodingError::IoError(cause) if cause.raw_os_error().is_some())
}

/// Reads all rows. Of a file that ends early or is damaged, returns the number of rows before; the rest repeats the
/// last of them.
fn read_rows(reader: &mut Reader<Input>, samples: &mut [u8]) -> ImageResult<Option<usize>> {
    if reader.info().interlaced {
        return reader.next_frame(samples).map(|_| None).map_err(failed);
    }
    let line = reader.output_line_size(reader.info().width).unwrap_or(usize::MAX);
    let mut rows = 0;
    while (rows + 1) * line <= samples.len() {
        match reader.read_row(&mut samples[rows * line..][..line]) {
            Ok(_) => rows += 1,
            Err(cause) if rows > 0 && !is_system_error(&cause) => {
                let last = (rows - 1) * line..rows * line;
                (rows..samples.len() / line).for_each(|row| samples.copy_within(last.clone(), row * line));
                return Ok(Some(rows));
            }
            Err(cause) => return Err(failed(cause)),
        }
    }
    Ok(None)
}

fn color_type(reader: &Reader<Input>) -> ImageResult<ColorType> {
    Ok(match reader.output_color_type() {
        (png::ColorType::Grayscale, BitDepth::Eight) => ColorType::L8,
        (png::ColorType::Grayscale, BitDepth::Sixteen) => ColorType::L16,
        (png::ColorType::GrayscaleAlpha, BitDepth::Eight) => ColorType::La8,
        (png::ColorType::GrayscaleAlpha, BitDepth::Sixteen) => ColorType::La16,
        (png::ColorType::Rgb, BitDepth::Eight) => ColorType::Rgb8,
        (png::ColorType::Rgb, BitDepth::Sixteen) => ColorType::Rgb16,
        (png::ColorType::Rgba, BitDepth::Eight) => ColorType::Rgba8,
        (png::ColorType::Rgba, BitDepth::Sixteen) => ColorType::Rgba16,
        other => {
            let reason = format!("pixels of type {other:?}");
            return Err(ImageError::Decoding(DecodingError::new(ImageFormat::Png.into(), reason)));
        }
    })
}

fn tags(info: &png::Info) -> ImageTags {
    let text = |keywords: &[&str]| {
        let compressed = info.compressed_latin1_text.iter().find(|text| keywords.contains(&text.keyword.as_str()));
        let plain = info.uncompressed_latin1_text.iter().find(|text| keywords.contains(&text.keyword.as_str()));
        let inflated = compressed.cloned().and_then(|mut text| text.decompress_text().and(text.get_text()).ok());
        inflated.or(plain.map(|text| text.text.clone()))
    };
    let profile = |keywords: &[&str]| text(keywords).and_then(|text| iptc::from_profile_text(&text));
    let xmp = info.utf8_text.iter().find(|text| text.keyword == XMP_KEYWORD);
    ImageTags {
        icc: info.icc_profile.as_ref().map(|profile| profile.to_vec()),
        exif: info.exif_metadata.as_ref().map(|exif| exif.to_vec()).or_else(|| profile(&EXIF_KEYWORDS)),
        xmp: xmp.cloned().and_then(|mut text| text.decompress_text().and(text.get_text()).ok()).map(String::into_bytes),
        iptc: profile(&IPTC_KEYWORDS).and_then(|block| iptc::unwrapped(&block)),
        ..ImageTags::default()
    }
}

/// The type and depth of samples in the format's own terms.
pub(crate) fn layout(color: ColorType) -> (png::ColorType, BitDepth) {
    let kind = match color.channel_count() {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    };
    let deep = color.bytes_per_pixel() > color.channel_count();
    (kind, if deep { BitDepth::Sixteen } else { BitDepth::Eight })
}

/// An encoder with the settings of all PNG outputs.
pub(crate) fn encoder<'a, W: Write>(
    output: W,
    size: Size,
    color: ColorType,
    tags: &'a ImageTags,
) -> ImageResult<png::Encoder<'a, W>> {
    let mut info = png::Info::with_size(size.w as u32, size.h as u32);
    info.icc_profile = tags.icc.as_deref().map(Cow::Borrowed);
    info.exif_metadata = tags.exif.as_deref().map(Cow::Borrowed);
    let mut encoder = png::Encoder::with_info(output, info).map_err(cannot_encode)?;
    let (kind, depth) = layout(color);
    encoder.set_color(kind);
    encoder.set_depth(depth);
    // Balanced compression is about forty times slower.
    encoder.set_compression(Compression::Fast);
    encoder.set_filter(Filter::Adaptive);
    if let Some(xmp) = tags.xmp.as_ref().and_then(|xmp| str::from_utf8(xmp).ok()) {
        encoder.add_itxt_chunk(XMP_KEYWORD.to_owned(), xmp.to_owned()).map_err(cannot_encode)?;
    }
    if let Some(iptc) = &tags.iptc {
        let text = iptc::to_profile_text("iptc", &iptc::wrapped(iptc));
        encoder.add_ztxt_chunk(IPTC_KEYWORDS[0].to_owned(), text).map_err(cannot_encode)?;
    }
    Ok(encoder)
}

pub(crate) fn cannot_encode(cause: png::EncodingError) -> ImageError {
    match cause {
        png::EncodingError::IoError(cause) => ImageError::IoError(cause),
        cause => ImageError::Encoding(EncodingError::new(ImageFormat::Png.into(), cause)),
    }
}

/// Samples in the byte order of the format.
pub(crate) fn big_endian(samples: &[u8], color: ColorType) -> Cow<'_, [u8]> {
    match layout(color).1 {
        BitDepth::Sixteen => {
            let value = |sample: &[u8]| u16::from_ne_bytes([sample[0], sample[1]]).to_be_bytes();
            Cow::Owned(samples.chunks_exact(2).flat_map(value).collect())
        }
        _ => Cow::Borrowed(samples),
    }
}

/// Writes an image.
pub(super) fn write(
    output: impl Write,
    size: Size,
    color: ColorType,
    samples: &[u8],
    tags: &ImageTags,
) -> ImageResult<()> {
    let mut writer = encoder(output, size, color, tags)?.write_header().map_err(cannot_encode)?;
    writer.write_image_data(&big_endian(samples, color)).map_err(cannot_encode)?;
    writer.finish().map_err(cannot_encode)
}
