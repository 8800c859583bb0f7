//! Decoding of image files into frames.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use image::codecs::bmp::BmpDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::pnm::PnmDecoder;
use image::codecs::tga::TgaDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageFormat, ImageResult, Limits};

use super::codec::ImageCodec;
use super::grey_alpha::{GreyAlphaDecoder, is_grey_alpha};
use super::guard::{self, Input, Retry};
use super::pages::{AtPage, Page};
use super::{exif, iptc, jpeg, png, tiff};
use crate::error::{Error, Result};
use crate::frame::{Depth, Frame, Samples, Size};
use crate::stream::ImageTags;

/// The number of bytes at the start of a file that identify its format.
pub(crate) const HEAD: u64 = 16;

/// Bytes at the start of a JPEG file that nearly always hold its headers. The decoder reads its whole input into
/// memory, and all images of a folder are probed before the first is decoded.
const JPEG_HEADERS: u64 = 256 << 10;

/// The headers of an image.
pub(crate) struct Headers {
    pub size: Size,
    pub depth: Depth,
    pub alpha: bool,
    pub tags: ImageTags,
    orientation: Orientation,
    /// Bytes of the decoded image.
    bytes: u64,
}

/// A decoded image.
pub(crate) struct Decoded {
    pub frame: Frame,
    pub headers: Headers,
    /// What is missing of a damaged image.
    pub problem: Option<String>,
}

impl Headers {
    fn read(decoder: &mut impl ImageDecoder, format: ImageFormat, tags: ImageTags) -> ImageResult<Headers> {
        let (w, h) = decoder.dimensions();
        let size = Size { h: h as usize, w: w as usize };
        let (color, bytes) = (decoder.color_type(), decoder.total_bytes());
        let mut tags = ImageTags { icc: decoder.icc_profile().ok().flatten(), ..tags };
        if format == ImageFormat::Tiff {
            let orientation = decoder.orientation()?;
            return Ok(Headers::new(size, color, bytes, tags, Some(orientation)));
        }
        // Damaged tags do not matter for the pixels.
        tags.exif = decoder.exif_metadata().ok().flatten();
        tags.xmp = decoder.xmp_metadata().ok().flatten();
        tags.iptc = decoder.iptc_metadata().ok().flatten().and_then(|block| iptc::unwrapped(&block));
        Ok(Headers::new(size, color, bytes, tags, None))
    }

    /// Headers of an image that another program decodes.
    pub fn decoded(size: Size, depth: Depth, alpha: bool, tags: ImageTags) -> Headers {
        Headers { size, depth, alpha, tags, orientation: Orientation::NoTransforms, bytes: 0 }
    }

    /// Headers from the stored size. Without an orientation, that of EXIF counts.
    fn new(size: Size, color: ColorType, bytes: u64, mut tags: ImageTags, orientation: Option<Orientation>) -> Headers {
        let exif = tags.exif.take().map(|exif| exif.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec).unwrap_or(exif));
        let tagged = || Orientation::from_exif(exif::orientation(exif.as_deref()?)?);
        let orientation = orientation.or_else(tagged).unwrap_or(Orientation::NoTransforms);
        let upright = |mut exif: Vec<u8>| {
            exif::set_upright(&mut exif);
            exif
        };
        let grey = !color.has_color();
        // A profile of another colour space does not apply to the output.
        let space: &[u8] = if grey { b"GRAY" } else { b"RGB " };
        let icc = tags.icc.take().filter(|profile| profile.get(16..20) == Some(space));
        Headers {
            size: if swaps_sides(orientation) { Size { h: size.w, w: size.h } } else { size },
            depth: depth(color),
            alpha: color.has_alpha(),
            tags: ImageTags { grey, icc, exif: exif.map(upright), ..tags },
            orientation,
            bytes,
        }
    }
}

/// Fails if the size exceeds the limits, or if a file of `length` bytes cannot hold an image of `bytes` bytes.
pub(crate) fn check(size: Size, bytes: u64, length: u64, path: &Path) -> Result<()> {
    if !size.is_plausible() {
        return Err(Error::TooLarge { path: path.to_owned(), size });
    }
    match guard::is_plausible(bytes, length) {
        true => Ok(()),
        false => Err(Error::Implausible { path: path.to_owned(), size, length }),
    }
}

fn depth(color: ColorType) -> Depth {
    match color {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => Depth::Eight,
        _ => Depth::Sixteen,
    }
}

fn swaps_sides(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH
    )
}

/// An open image file of a format that this crate decodes.
pub(super) struct ImageFile {
    path: PathBuf,
    file: File,
    length: u64,
    codec: ImageCodec,
    format: ImageFormat,
    page: Page,
}

impl ImageFile {
    /// Opens a page of a TIFF file, or another image at its only page.
    pub fn open(path: &Path, codec: ImageCodec, format: ImageFormat, page: Page) -> Result<ImageFile> {
        let cannot_read = |cause| Error::Read { path: path.to_owned(), cause };
        let file = File::open(path).map_err(cannot_read)?;
        let length = file.metadata().map_err(cannot_read)?.len();
        Ok(ImageFile { path: path.to_owned(), file, length, codec, format, page })
    }

    fn input(&self) -> Input<'_> {
        Box::new(BufReader::new(AtPage::new(Retry(&self.file), self.page)))
    }

    pub fn headers(&self) -> Result<Headers> {
        let read = || -> ImageResult<Headers> {
            if self.format == ImageFormat::Jpeg {
                let mut start = Vec::new();
                (&self.file).take(JPEG_HEADERS).read_to_end(&mut start)?;
                let headers = read_headers(Box::new(Cursor::new(start)), self.format);
                (&self.file).rewind()?;
                if headers.is_ok() {
                    return headers;
                }
            }
            read_headers(self.input(), self.format)
        };
        let headers = guard::catch(self.format, read);
        let headers = headers.map_err(|cause| decode_error(&self.path, self.codec, cause))?;
        check(headers.size, headers.bytes, self.length, &self.path)?;
        Ok(headers)
    }

    pub fn decode(&self) -> Result<Decoded> {
        decode(self.input(), self.length, self.codec, self.format, &self.path)
    }
}

fn read_headers(mut input: Input, format: ImageFormat) -> ImageResult<Headers> {
    let tags = stored_tags(&mut input, format)?;
    Headers::read(&mut decoder(input, format)?, format, tags)
}

/// The tags that the decoder of a format does not read.
fn stored_tags(input: &mut Input, format: ImageFormat) -> ImageResult<ImageTags> {
    if format != ImageFormat::Tiff {
        return Ok(ImageTags::default());
    }
    let tags = tiff::tags(input);
    input.rewind()?;
    Ok(tags)
}

/// An error of the system is a read error; any other error is one of the content.
fn decode_error(path: &Path, codec: ImageCodec, cause: ImageError) -> Error {
    match cause {
        ImageError::IoError(cause) if cause.raw_os_error().is_some() => Error::Read { path: path.to_owned(), cause },
        cause => Error::Decode { path: path.to_owned(), format: codec.name(), cause },
    }
}

/// Decodes an image file of `length` bytes; errors name `path`.
pub(super) fn decode(
    input: Input,
    length: u64,
    codec: ImageCodec,
    format: ImageFormat,
    path: &Path,
) -> Result<Decoded> {
    let read = || match format {
        ImageFormat::Png => decode_png(input, length, path),
        _ => decode_other(input, length, format, path),
    };
    guard::catch(format, read).unwrap_or_else(|cause| Err(decode_error(path, codec, cause)))
}

fn decode_png(input: Input, length: u64, path: &Path) -> ImageResult<Result<Decoded>> {
    let mut stored = Size { h: 0, w: 0 };
    let decoded = png::read(input, |size, bytes| {
        stored = size;
        check(size, bytes, length, path)
    })?;
    let png::Decoded { color, samples, tags, rows } = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return Ok(Err(error)),
    };
    let headers = Headers::new(stored, color, samples.len() as u64, tags, None);
    let problem =
        rows.map(|rows| format!("only {rows} of {} rows can be read; the rows below repeat the last", stored.h));
    Ok(Ok(Decoded { frame: frame(image(color, stored, samples), &headers), headers, problem }))
}

fn decode_other(mut input: Input, length: u64, format: ImageFormat, path: &Path) -> ImageResult<Result<Decoded>> {
    let tags = stored_tags(&mut input, format)?;
    let mut problem = None;
    if format == ImageFormat::Jpeg {
        let mut file = Vec::new();
        input.read_to_end(&mut file)?;
        let lost = || format!("it ends after {} bytes, before its last row; the missing part is grey", file.len());
        problem = jpeg::is_truncated(&file).then(lost);
        input = Box::new(Cursor::new(file));
    }
    let mut decoder = decoder(input, format)?;
    let headers = Headers::read(&mut decoder, format, tags)?;
    if let Err(error) = check(headers.size, headers.bytes, length, path) {
        return Ok(Err(error));
    }
    decoder.set_limits(limits(guard::max_alloc(headers.bytes, length)))?;
    let image = DynamicImage::from_decoder(decoder)?;
    Ok(Ok(Decoded { frame: frame(image, &headers), headers, problem }))
}

/// An image from its samples in native byte order.
fn image(color: ColorType, size: Size, samples: Vec<u8>) -> DynamicImage {
    let (w, h) = (size.w as u32, size.h as u32);
    let complete = "samples of all pixels";
    let deep = |samples: &[u8]| -> Vec<u16> {
        samples.chunks_exact(2).map(|sample| u16::from_ne_bytes([sample[0], sample[1]])).collect()
    };
    match color {
        ColorType::L8 => ImageBuffer::from_raw(w, h, samples).map(DynamicImage::ImageLuma8).expect(complete),
        ColorType::La8 => ImageBuffer::from_raw(w, h, samples).map(DynamicImage::ImageLumaA8).expect(complete),
        ColorType::Rgb8 => ImageBuffer::from_raw(w, h, samples).map(DynamicImage::ImageRgb8).expect(complete),
        ColorType::Rgba8 => ImageBuffer::from_raw(w, h, samples).map(DynamicImage::ImageRgba8).expect(complete),
        ColorType::L16 => ImageBuffer::from_raw(w, h, deep(&samples)).map(DynamicImage::ImageLuma16).expect(complete),
        ColorType::La16 => ImageBuffer::from_raw(w, h, deep(&samples)).map(DynamicImage::ImageLumaA16).expect(complete),
        ColorType::Rgb16 => ImageBuffer::from_raw(w, h, deep(&samples)).map(DynamicImage::ImageRgb16).expect(complete),
        _ => ImageBuffer::from_raw(w, h, deep(&samples)).map(DynamicImage::ImageRgba16).expect(complete),
    }
}

/// The upright frame of an image.
fn frame(mut image: DynamicImage, headers: &Headers) -> Frame {
    image.apply_orientation(headers.orientation);
    let (samples, alpha) = match (headers.depth, headers.alpha) {
        (Depth::Eight, false) => (Samples::U8(image.into_rgb8().into_raw()), None),
        (Depth::Eight, true) => {
            let (colour, alpha) = split_alpha(&image.into_rgba8().into_raw());
            (Samples::U8(colour), Some(Samples::U8(alpha)))
        }
        (_, false) => (Samples::U16(image.into_rgb16().into_raw()), None),
        (_, true) => {
            let (colour, alpha) = split_alpha(&image.into_rgba16().into_raw());
            (Samples::U16(colour), Some(Samples::U16(alpha)))
        }
    };
    Frame { size: headers.size, samples, alpha }
}

/// Splits RGBA into RGB and alpha.
pub(crate) fn split_alpha<T: Copy>(rgba: &[T]) -> (Vec<T>, Vec<T>) {
    let colour = rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    (colour, rgba.iter().skip(3).step_by(4).copied().collect())
}

pub(crate) fn limits(max_alloc: u64) -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(max_alloc);
    limits
}

/// A decoder that has read the headers. It allocates little before its limits are set for the declared size.
fn decoder<'a>(mut input: Input<'a>, format: ImageFormat) -> ImageResult<Box<dyn ImageDecoder + 'a>> {
    if format == ImageFormat::Tiff && is_grey_alpha(&mut input)? {
        return Ok(Box::new(GreyAlphaDecoder::new(input)?));
    }
    Ok(match format {
        ImageFormat::Png => Box::new(PngDecoder::with_limits(input, limits(guard::MAX_METADATA))?),
        ImageFormat::Jpeg => Box::new(JpegDecoder::new(input)?),
        ImageFormat::WebP => Box::new(WebPDecoder::new(input)?),
        ImageFormat::Tiff => Box::new(TiffDecoder::new(input)?),
        ImageFormat::Bmp => Box::new(BmpDecoder::new(input)?),
        ImageFormat::Tga => Box::new(TgaDecoder::new(input)?),
        _ => Box::new(PnmDecoder::new(input)?),
    })
}
