//! Encoding of frames into image files.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use image::codecs::jpeg::JpegEncoder;
use image::error::EncodingError;
use image::{ColorType, ImageEncoder, ImageError, ImageFormat, ImageResult};

use super::codec::ImageCodec;
use super::tiff::Pages;
use super::{exif, jpeg, png};
use crate::error::{Error, Result};
use crate::frame::{Depth, Frame, Samples, Size};
use crate::stream::ImageTags;

const JPEG_QUALITY: u8 = 95;

/// Encodes `frame` into `file`; errors name `path`.
pub(crate) fn write(file: File, path: &Path, codec: ImageCodec, frame: &Frame, tags: &ImageTags) -> Result<()> {
    let mut output = BufWriter::new(file);
    encode(&mut output, codec, frame, tags).map_err(|cause| encode_error(path, codec, cause))?;
    output.flush().map_err(|cause| Error::Write { path: path.to_owned(), cause })
}

pub(crate) fn encode_error(path: &Path, codec: ImageCodec, cause: ImageError) -> Error {
    match cause {
        ImageError::IoError(cause) => Error::Write { path: path.to_owned(), cause },
        cause => Error::Encode { path: path.to_owned(), format: codec.name(), cause },
    }
}

fn encode(output: impl Write + Seek + Send, codec: ImageCodec, frame: &Frame, tags: &ImageTags) -> ImageResult<()> {
    let (samples, color) = interleaved(frame, codec, tags.grey);
    let tags = with_size(tags, frame.size);
    match codec {
        ImageCodec::Jpeg => encode_jpeg(output, frame.size, color, samples.as_bytes(), &tags),
        ImageCodec::WebP => encode_webp(output, frame.size, color, samples.as_bytes(), &tags),
        ImageCodec::Tiff => Pages::new(output)?.write(frame.size, color, samples.as_bytes(), &tags),
        _ => png::write(output, frame.size, color, samples.as_bytes(), &tags),
    }
}

/// Tags that state the size of the output.
pub(crate) fn with_size(tags: &ImageTags, size: Size) -> ImageTags {
    let mut tags = tags.clone();
    if let Some(exif) = &mut tags.exif {
        exif::set_size(exif, size);
    }
    tags
}

/// The samples of a frame as a format stores them: in its depth, grey if wanted and possible, with alpha if possible.
/// A format without alpha gets the frame on white.
pub(crate) fn interleaved(frame: &Frame, codec: ImageCodec, grey: bool) -> (Samples, ColorType) {
    let eight = frame.depth() == Depth::Eight || !codec.has_sixteen_bits();
    let fit = |samples: &Samples| samples.to_depth(if eight { Depth::Eight } else { Depth::Sixteen });
    let (mut colour, alpha) = (fit(&frame.samples), frame.alpha.as_ref().map(fit));
    if let Some(alpha) = alpha.as_ref().filter(|_| !codec.has_alpha()) {
        put_on_white(&mut colour, alpha);
    }
    let alpha = alpha.filter(|_| codec.has_alpha());
    let (colour, channels) = match grey && codec.has_grey() {
        true => (colour.luma(), 1),
        false => (colour, 3),
    };
    let color = match (colour.depth(), channels, alpha.is_some()) {
        (Depth::Eight, 1, false) => ColorType::L8,
        (Depth::Eight, 1, true) => ColorType::La8,
        (Depth::Eight, _, false) => ColorType::Rgb8,
        (Depth::Eight, _, true) => ColorType::Rgba8,
        (_, 1, false) => ColorType::L16,
        (_, 1, true) => ColorType::La16,
        (_, _, false) => ColorType::Rgb16,
        (_, _, true) => ColorType::Rgba16,
    };
    let samples = match (colour, alpha) {
        (Samples::U8(colour), Some(Samples::U8(alpha))) => Samples::U8(join(&colour, &alpha, channels)),
        (Samples::U16(colour), Some(Samples::U16(alpha))) => Samples::U16(join(&colour, &alpha, channels)),
        (colour, _) => colour,
    };
    (samples, color)
}

/// Joins colour and alpha.
fn join<T: Copy>(colour: &[T], alpha: &[T], channels: usize) -> Vec<T> {
    let pixels = colour.chunks_exact(channels).zip(alpha);
    pixels.flat_map(|(pixel, alpha)| pixel.iter().copied().chain([*alpha])).collect()
}

/// Composites colours on white by their alpha.
fn put_on_white(colour: &mut Samples, alpha: &Samples) {
    fn put<T: Copy + Into<u64> + TryFrom<u64>>(colour: &mut [T], alpha: &[T], white: u64) {
        for (pixel, alpha) in colour.chunks_exact_mut(3).zip(alpha) {
            let alpha: u64 = (*alpha).into();
            for sample in pixel {
                let value: u64 = (*sample).into();
                // The mean of two samples is a sample, so that the conversion succeeds.
                *sample = T::try_from((value * alpha + white * (white - alpha) + white / 2) / white).unwrap_or(*sample);
            }
        }
    }
    match (colour, alpha) {
        (Samples::U8(colour), Samples::U8(alpha)) => put(colour, alpha, 255),
        (Samples::U16(colour), Samples::U16(alpha)) => put(colour, alpha, 65_535),
        _ => unreachable!("colour and alpha have one depth"),
    }
}

fn encode_jpeg(
    mut output: impl Write,
    size: Size,
    color: ColorType,
    samples: &[u8],
    tags: &ImageTags,
) -> ImageResult<()> {
    let mut file = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut file, JPEG_QUALITY);
    if let Some(icc) = &tags.icc {
        encoder.set_icc_profile(icc.clone()).map_err(ImageError::Unsupported)?;
    }
    encoder.write_image(samples, size.w as u32, size.h as u32, color.into())?;
    output.write_all(&jpeg::with_tags(&file, tags)).map_err(ImageError::IoError)
}

fn encode_webp(output: impl Write, size: Size, color: ColorType, samples: &[u8], tags: &ImageTags) -> ImageResult<()> {
    let mut encoder = image_webp::WebPEncoder::new(output);
    if let Some(icc) = &tags.icc {
        encoder.set_icc_profile(icc.clone());
    }
    if let Some(exif) = &tags.exif {
        encoder.set_exif_metadata(exif.clone());
    }
    if let Some(xmp) = &tags.xmp {
        encoder.set_xmp_metadata(xmp.clone());
    }
    encode_vp8l(encoder, size, color, samples)
}

/// Writes a WebP file through `encoder`.
pub(crate) fn encode_vp8l<W: Write>(
    encoder: image_webp::WebPEncoder<W>,
    size: Size,
    color: ColorType,
    samples: &[u8],
) -> ImageResult<()> {
    let kind = if color.has_alpha() { image_webp::ColorType::Rgba8 } else { image_webp::ColorType::Rgb8 };
    encoder.encode(samples, size.w as u32, size.h as u32, kind).map_err(|cause| match cause {
        image_webp::EncodingError::IoError(cause) => ImageError::IoError(cause),
        cause => ImageError::Encoding(EncodingError::new(ImageFormat::WebP.into(), cause)),
    })
}

/// What a format cannot store of an image, one line each.
pub(crate) fn losses(codec: ImageCodec, alpha: bool, tags: &ImageTags) -> Vec<String> {
    let format = codec.name();
    let too_long = |tag: &Option<Vec<u8>>, holds: fn(usize) -> bool| {
        codec == ImageCodec::Jpeg && tag.as_ref().is_some_and(|tag| !holds(tag.len()))
    };
    let mut losses = Vec::new();
    if alpha && !codec.has_alpha() {
        losses.push(format!("{format} stores no transparency: the image is put on white; write .png to keep it"));
    }
    let lost = [
        ("EXIF", too_long(&tags.exif, jpeg::holds_exif)),
        ("XMP", too_long(&tags.xmp, jpeg::holds_xmp)),
        ("IPTC", too_long(&tags.iptc, jpeg::holds_iptc) || (codec == ImageCodec::WebP && tags.iptc.is_some())),
    ];
    let lost = lost.into_iter().filter(|(_, lost)| *lost);
    losses.extend(lost.map(|(name, _)| format!("{format} cannot store this {name}: left out; write .png to keep it")));
    losses
}
