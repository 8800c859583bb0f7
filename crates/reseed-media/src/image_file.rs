//! Image files: PNG, JPEG, WebP and TIFF.
//!
//! Images are read as RGB: grey and palettes are expanded. Alpha is kept separately and never premultiplied; a format
//! without alpha drops it. The orientation tag is applied, because outputs have no such tag. The first image of an
//! animation or of a multi-page TIFF is read.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::codecs::tiff::TiffEncoder;
use image::codecs::webp::WebPEncoder;
use image::metadata::Orientation;
use image::{
    ColorType, DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, ImageResult,
};

use crate::error::{Error, Result};
use crate::frame::{Depth, Frame, Rate, Samples, Size};
use crate::partial::Partial;
use crate::stream::{Info, Kind, Sink, Source};

/// The number of bytes at the start of a file that identify its format.
pub(crate) const HEAD: u64 = 16;

const JPEG_QUALITY: u8 = 95;

/// Bytes at the start of a JPEG file that nearly always hold its headers. The decoder reads its whole input into
/// memory, and all images of a folder are probed before the first is decoded.
const JPEG_HEADERS: u64 = 256 << 10;

/// An image format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageCodec {
    Png,
    Jpeg,
    WebP,
    Tiff,
}

impl ImageCodec {
    pub fn from_extension(path: &Path) -> Option<ImageCodec> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "png" => Some(ImageCodec::Png),
            "jpg" | "jpeg" => Some(ImageCodec::Jpeg),
            "webp" => Some(ImageCodec::WebP),
            "tif" | "tiff" => Some(ImageCodec::Tiff),
            _ => None,
        }
    }

    pub fn from_content(head: &[u8]) -> Option<ImageCodec> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(ImageCodec::Png),
            [0xff, 0xd8, 0xff, ..] => Some(ImageCodec::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageCodec::WebP),
            [b'I', b'I', b'*' | b'+', 0, ..] | [b'M', b'M', 0, b'*' | b'+', ..] => Some(ImageCodec::Tiff),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ImageCodec::Png => "PNG",
            ImageCodec::Jpeg => "JPEG",
            ImageCodec::WebP => "WebP",
            ImageCodec::Tiff => "TIFF",
        }
    }

    fn format(self) -> ImageFormat {
        match self {
            ImageCodec::Png => ImageFormat::Png,
            ImageCodec::Jpeg => ImageFormat::Jpeg,
            ImageCodec::WebP => ImageFormat::WebP,
            ImageCodec::Tiff => ImageFormat::Tiff,
        }
    }

    fn has_alpha(self) -> bool {
        self != ImageCodec::Jpeg
    }

    fn has_sixteen_bits(self) -> bool {
        matches!(self, ImageCodec::Png | ImageCodec::Tiff)
    }
}

/// The headers of an image.
pub(crate) struct Headers {
    pub size: Size,
    pub depth: Depth,
    pub alpha: bool,
    pub icc: Option<Vec<u8>>,
    orientation: Orientation,
}

impl Headers {
    fn read(decoder: &mut impl ImageDecoder) -> ImageResult<Headers> {
        let orientation = decoder.orientation()?;
        let (w, h) = decoder.dimensions();
        let size = Size { h: h as usize, w: w as usize };
        let size = if swaps_sides(orientation) { Size { h: size.w, w: size.h } } else { size };
        let depth = match decoder.color_type() {
            ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => Depth::Eight,
            _ => Depth::Sixteen,
        };
        let alpha = decoder.color_type().has_alpha();
        // Outputs are RGB, so that profiles of other colour spaces do not apply.
        let icc = decoder.icc_profile()?.filter(|profile| profile.get(16..20) == Some(b"RGB "));
        Ok(Headers { size, depth, alpha, icc, orientation })
    }
}

fn swaps_sides(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH
    )
}

/// An open image file of a known format.
struct ImageFile {
    path: PathBuf,
    file: File,
    codec: ImageCodec,
}

impl ImageFile {
    fn open(path: &Path) -> Result<ImageFile> {
        let cannot_read = |cause| Error::Read { path: path.to_owned(), cause };
        let mut file = File::open(path).map_err(cannot_read)?;
        let mut head = Vec::new();
        (&mut file).take(HEAD).read_to_end(&mut head).map_err(cannot_read)?;
        file.rewind().map_err(cannot_read)?;
        match (ImageCodec::from_content(&head), ImageCodec::from_extension(path)) {
            (Some(codec), _) => Ok(ImageFile { path: path.to_owned(), file, codec }),
            (None, Some(named)) => Err(Error::WrongExtension { path: path.to_owned(), format: named.name() }),
            (None, None) => Err(Error::UnknownInput { path: path.to_owned() }),
        }
    }

    fn headers(&self) -> Result<Headers> {
        let read = || -> ImageResult<Headers> {
            if self.codec == ImageCodec::Jpeg {
                let mut start = Vec::new();
                (&self.file).take(JPEG_HEADERS).read_to_end(&mut start)?;
                let headers = decoder(Cursor::new(start), self.codec).and_then(|mut d| Headers::read(&mut d));
                if headers.is_ok() {
                    return headers;
                }
                (&self.file).rewind()?;
            }
            Headers::read(&mut decoder(BufReader::new(&self.file), self.codec)?)
        };
        check_size(read().map_err(|cause| decode_error(&self.path, self.codec, cause))?, &self.path)
    }

    fn decode(&self) -> Result<(Frame, Headers)> {
        decode(BufReader::new(&self.file), self.codec, &self.path)
    }
}

fn decode_error(path: &Path, codec: ImageCodec, cause: image::ImageError) -> Error {
    Error::Decode { path: path.to_owned(), format: codec.name(), cause }
}

fn check_size(headers: Headers, path: &Path) -> Result<Headers> {
    match headers.size.is_plausible() {
        true => Ok(headers),
        false => Err(Error::TooLarge { path: path.to_owned(), size: headers.size }),
    }
}

fn decode(input: impl BufRead + Seek, codec: ImageCodec, path: &Path) -> Result<(Frame, Headers)> {
    let failed = |cause| decode_error(path, codec, cause);
    let mut decoder = decoder(input, codec).map_err(failed)?;
    let headers = check_size(Headers::read(&mut decoder).map_err(failed)?, path)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    image.apply_orientation(headers.orientation);
    let (samples, alpha) = match (headers.depth, headers.alpha) {
        (Depth::Eight, false) => (Samples::U8(image.into_rgb8().into_raw()), None),
        (Depth::Sixteen, false) => (Samples::U16(image.into_rgb16().into_raw()), None),
        (Depth::Eight, true) => {
            let (colour, alpha) = split_alpha(&image.into_rgba8().into_raw());
            (Samples::U8(colour), Some(Samples::U8(alpha)))
        }
        (Depth::Sixteen, true) => {
            let (colour, alpha) = split_alpha(&image.into_rgba16().into_raw());
            (Samples::U16(colour), Some(Samples::U16(alpha)))
        }
    };
    Ok((Frame { size: headers.size, samples, alpha }, headers))
}

/// Splits RGBA into RGB and alpha.
fn split_alpha<T: Copy>(rgba: &[T]) -> (Vec<T>, Vec<T>) {
    let colour = rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    (colour, rgba.iter().skip(3).step_by(4).copied().collect())
}

/// Joins RGB and alpha to RGBA.
fn join_alpha<T: Copy>(colour: &[T], alpha: &[T]) -> Vec<T> {
    colour.chunks_exact(3).zip(alpha).flat_map(|(rgb, a)| [rgb[0], rgb[1], rgb[2], *a]).collect()
}

fn decoder<'a>(input: impl BufRead + Seek + 'a, codec: ImageCodec) -> ImageResult<impl ImageDecoder + 'a> {
    let mut reader = ImageReader::with_format(input, codec.format());
    // The size is checked by `check_size`; this limits the additional memory of a decoder.
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(16 * Size::MAX_PIXELS as u64);
    reader.limits(limits);
    reader.into_decoder()
}

/// Reads the headers of an image without decoding it.
pub(crate) fn probe(path: &Path) -> Result<Headers> {
    ImageFile::open(path)?.headers()
}

/// Reads an image.
pub(crate) fn read(path: &Path) -> Result<Frame> {
    Ok(ImageFile::open(path)?.decode()?.0)
}

/// Decodes an image file in memory; errors name `path`.
pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Frame> {
    let codec = ImageCodec::from_content(bytes).ok_or_else(|| Error::UnknownInput { path: path.to_owned() })?;
    Ok(decode(Cursor::new(bytes), codec, path)?.0)
}

/// Encodes `frame` into `file`; errors name `path`.
pub(crate) fn write(file: File, path: &Path, codec: ImageCodec, frame: &Frame, icc: Option<&[u8]>) -> Result<()> {
    let mut output = BufWriter::new(file);
    encode(&mut output, codec, frame, icc).map_err(|cause| match cause {
        image::ImageError::IoError(cause) => Error::Write { path: path.to_owned(), cause },
        cause => Error::Encode { path: path.to_owned(), format: codec.name(), cause },
    })?;
    output.flush().map_err(|cause| Error::Write { path: path.to_owned(), cause })
}

fn encode(output: impl Write + Seek, codec: ImageCodec, frame: &Frame, icc: Option<&[u8]>) -> ImageResult<()> {
    let alpha = frame.alpha.as_ref().filter(|_| codec.has_alpha());
    let narrow = frame.depth() == Depth::Sixteen && !codec.has_sixteen_bits();
    let samples = match narrow {
        true => Cow::Owned(frame.samples.to_eight_bits()),
        false => Cow::Borrowed(&frame.samples),
    };
    let alpha = alpha.map(|alpha| if narrow { Cow::Owned(alpha.to_eight_bits()) } else { Cow::Borrowed(alpha) });
    let joined;
    let (bytes, color): (&[u8], _) = match (&*samples, alpha.as_deref()) {
        (Samples::U8(colour), Some(Samples::U8(alpha))) => {
            joined = Samples::U8(join_alpha(colour, alpha));
            (joined.as_bytes(), ExtendedColorType::Rgba8)
        }
        (Samples::U16(colour), Some(Samples::U16(alpha))) => {
            joined = Samples::U16(join_alpha(colour, alpha));
            (joined.as_bytes(), ExtendedColorType::Rgba16)
        }
        (Samples::U8(_), _) => (samples.as_bytes(), ExtendedColorType::Rgb8),
        (Samples::U16(_), _) => (samples.as_bytes(), ExtendedColorType::Rgb16),
    };
    let image = EncodableImage { bytes, size: frame.size, color, icc };
    match codec {
        // Balanced compression is about forty times slower.
        ImageCodec::Png => {
            image.encode(PngEncoder::new_with_quality(output, CompressionType::Fast, FilterType::Adaptive))
        }
        ImageCodec::Jpeg => image.encode(JpegEncoder::new_with_quality(output, JPEG_QUALITY)),
        ImageCodec::WebP => image.encode(WebPEncoder::new_lossless(output)),
        ImageCodec::Tiff => image.encode(TiffEncoder::new(output)),
    }
}

struct EncodableImage<'a> {
    bytes: &'a [u8],
    size: Size,
    color: ExtendedColorType,
    icc: Option<&'a [u8]>,
}

impl EncodableImage<'_> {
    fn encode(&self, mut encoder: impl ImageEncoder) -> ImageResult<()> {
        if let Some(icc) = self.icc {
            encoder.set_icc_profile(icc.to_vec()).map_err(image::ImageError::Unsupported)?;
        }
        encoder.write_image(self.bytes, self.size.w as u32, self.size.h as u32, self.color)
    }
}

/// An image as a source of one frame.
pub(crate) struct ImageSource {
    info: Info,
    frame: Option<Frame>,
}

impl ImageSource {
    pub fn open(path: &Path) -> Result<ImageSource> {
        let (frame, Headers { size, depth, alpha, icc, .. }) = ImageFile::open(path)?.decode()?;
        let kind = Kind::Image;
        let info = Info { size, frames: Some(1), rate: Rate::default(), depth, alpha, kind, names: Vec::new(), icc };
        Ok(ImageSource { info, frame: Some(frame) })
    }
}

impl Source for ImageSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        Ok(self.frame.take())
    }
}

/// A sink that writes one image.
pub(crate) struct ImageSink {
    path: PathBuf,
    codec: ImageCodec,
    size: Size,
    icc: Option<Vec<u8>>,
    /// `None` after the frame is written. Declared before `partial`, so that the file closes before it is removed.
    file: Option<File>,
    partial: Partial,
}

impl ImageSink {
    pub fn create(path: &Path, codec: ImageCodec, info: &Info) -> Result<ImageSink> {
        let (file, partial) = Partial::file(path)?;
        let icc = info.icc.clone();
        Ok(ImageSink { path: path.to_owned(), codec, size: info.size, icc, file: Some(file), partial })
    }
}

impl Sink for ImageSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        frame.assert_fits(self.size);
        let file = self.file.take().expect("an image has one frame");
        write(file, &self.path, self.codec, frame, self.icc.as_deref())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        assert!(self.file.is_none(), "an image needs a frame");
        self.partial.commit()
    }
}
