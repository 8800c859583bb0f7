//! Single pictures: PNG, JPEG, WebP and TIFF.
//!
//! A picture becomes plain RGB: grey and palettes are expanded. Alpha stands beside the colours and is never multiplied
//! into them; a format that holds none drops it, so that colours under transparent pixels show. The camera's
//! orientation tag is applied, because the output carries no such tag. Of an animation or a TIFF of many pages the first
//! is taken.

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

/// How many bytes from the start of a file suffice to recognise it.
pub(crate) const HEAD: u64 = 16;

const JPEG_QUALITY: u8 = 95;

/// How much of a JPEG file holds its headers in all but odd cases: the decoder reads whatever it is given into memory,
/// and a folder of thousands is probed before its first frame.
const JPEG_HEADERS: u64 = 256 << 10;

/// The picture formats that are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Png,
    Jpeg,
    WebP,
    Tiff,
}

impl Codec {
    pub fn from_extension(path: &Path) -> Option<Codec> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "png" => Some(Codec::Png),
            "jpg" | "jpeg" => Some(Codec::Jpeg),
            "webp" => Some(Codec::WebP),
            "tif" | "tiff" => Some(Codec::Tiff),
            _ => None,
        }
    }

    pub fn from_content(head: &[u8]) -> Option<Codec> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Codec::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Codec::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Codec::WebP),
            [b'I', b'I', b'*' | b'+', 0, ..] | [b'M', b'M', 0, b'*' | b'+', ..] => Some(Codec::Tiff),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Codec::Png => "PNG",
            Codec::Jpeg => "JPEG",
            Codec::WebP => "WebP",
            Codec::Tiff => "TIFF",
        }
    }

    fn format(self) -> ImageFormat {
        match self {
            Codec::Png => ImageFormat::Png,
            Codec::Jpeg => ImageFormat::Jpeg,
            Codec::WebP => ImageFormat::WebP,
            Codec::Tiff => ImageFormat::Tiff,
        }
    }

    fn holds_alpha(self) -> bool {
        self != Codec::Jpeg
    }

    fn holds_sixteen_bits(self) -> bool {
        matches!(self, Codec::Png | Codec::Tiff)
    }
}

/// What a picture's headers say, without its pixels.
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
        let size = if turns_sideways(orientation) { Size { h: size.w, w: size.h } } else { size };
        let depth = match decoder.color_type() {
            ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => Depth::Eight,
            _ => Depth::Sixteen,
        };
        let alpha = decoder.color_type().has_alpha();
        // Profiles of other colour spaces describe samples that are not RGB, which is all we write.
        let icc = decoder.icc_profile()?.filter(|profile| profile.get(16..20) == Some(b"RGB "));
        Ok(Headers { size, depth, alpha, icc, orientation })
    }
}

fn turns_sideways(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH
    )
}

/// A picture file whose first bytes have been recognised.
struct PictureFile {
    path: PathBuf,
    file: File,
    codec: Codec,
}

impl PictureFile {
    fn open(path: &Path) -> Result<PictureFile> {
        let cannot_read = |cause| Error::Read { path: path.to_owned(), cause };
        let mut file = File::open(path).map_err(cannot_read)?;
        let mut head = Vec::new();
        (&mut file).take(HEAD).read_to_end(&mut head).map_err(cannot_read)?;
        file.rewind().map_err(cannot_read)?;
        match (Codec::from_content(&head), Codec::from_extension(path)) {
            (Some(codec), _) => Ok(PictureFile { path: path.to_owned(), file, codec }),
            (None, Some(named)) => Err(Error::NotAsNamed { path: path.to_owned(), named: named.name() }),
            (None, None) => Err(Error::UnknownInput { path: path.to_owned() }),
        }
    }

    fn headers(&self) -> Result<Headers> {
        let read = || -> ImageResult<Headers> {
            if self.codec == Codec::Jpeg {
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
        plausible(read().map_err(|cause| damaged(&self.path, self.codec, cause))?, &self.path)
    }

    fn decode(&self) -> Result<(Frame, Headers)> {
        decode(BufReader::new(&self.file), self.codec, &self.path)
    }
}

fn damaged(path: &Path, codec: Codec, cause: image::ImageError) -> Error {
    Error::Decode { path: path.to_owned(), format: codec.name(), cause }
}

fn plausible(headers: Headers, path: &Path) -> Result<Headers> {
    match headers.size.is_plausible() {
        true => Ok(headers),
        false => Err(Error::TooLarge { path: path.to_owned(), size: headers.size }),
    }
}

fn decode(input: impl BufRead + Seek, codec: Codec, path: &Path) -> Result<(Frame, Headers)> {
    let damaged = |cause| damaged(path, codec, cause);
    let mut decoder = decoder(input, codec).map_err(damaged)?;
    let headers = plausible(Headers::read(&mut decoder).map_err(damaged)?, path)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    picture.apply_orientation(headers.orientation);
    let (samples, alpha) = match (headers.depth, headers.alpha) {
        (Depth::Eight, false) => (Samples::U8(picture.into_rgb8().into_raw()), None),
        (Depth::Sixteen, false) => (Samples::U16(picture.into_rgb16().into_raw()), None),
        (Depth::Eight, true) => {
            let (colour, alpha) = apart(&picture.into_rgba8().into_raw());
            (Samples::U8(colour), Some(Samples::U8(alpha)))
        }
        (Depth::Sixteen, true) => {
            let (colour, alpha) = apart(&picture.into_rgba16().into_raw());
            (Samples::U16(colour), Some(Samples::U16(alpha)))
        }
    };
    Ok((Frame { size: headers.size, samples, alpha }, headers))
}

/// RGBA as RGB and A.
fn apart<T: Copy>(rgba: &[T]) -> (Vec<T>, Vec<T>) {
    let colour = rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    (colour, rgba.iter().skip(3).step_by(4).copied().collect())
}

/// RGB and A as RGBA.
fn together<T: Copy>(colour: &[T], alpha: &[T]) -> Vec<T> {
    colour.chunks_exact(3).zip(alpha).flat_map(|(rgb, a)| [rgb[0], rgb[1], rgb[2], *a]).collect()
}

fn decoder<'a>(input: impl BufRead + Seek + 'a, codec: Codec) -> ImageResult<impl ImageDecoder + 'a> {
    let mut reader = ImageReader::with_format(input, codec.format());
    // The size is checked by `plausible`; this bounds only what a decoder may want beside the picture itself.
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(16 * Size::MAX_PIXELS as u64);
    reader.limits(limits);
    reader.into_decoder()
}

/// What a picture's headers say, read without decoding it.
pub(crate) fn probe(path: &Path) -> Result<Headers> {
    PictureFile::open(path)?.headers()
}

/// The whole picture.
pub(crate) fn read(path: &Path) -> Result<Frame> {
    Ok(PictureFile::open(path)?.decode()?.0)
}

/// The picture that these bytes are a file of; `path` is the name by which errors call it.
pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Frame> {
    let codec = Codec::from_content(bytes).ok_or_else(|| Error::UnknownInput { path: path.to_owned() })?;
    Ok(decode(Cursor::new(bytes), codec, path)?.0)
}

/// Encodes `frame` into `file`; `path` is the name by which errors call it.
pub(crate) fn write(file: File, path: &Path, codec: Codec, frame: &Frame, icc: Option<&[u8]>) -> Result<()> {
    let mut output = BufWriter::new(file);
    encode(&mut output, codec, frame, icc).map_err(|cause| match cause {
        image::ImageError::IoError(cause) => Error::Write { path: path.to_owned(), cause },
        cause => Error::Encode { path: path.to_owned(), format: codec.name(), cause },
    })?;
    output.flush().map_err(|cause| Error::Write { path: path.to_owned(), cause })
}

fn encode(output: impl Write + Seek, codec: Codec, frame: &Frame, icc: Option<&[u8]>) -> ImageResult<()> {
    let alpha = frame.alpha.as_ref().filter(|_| codec.holds_alpha());
    let narrow = frame.depth() == Depth::Sixteen && !codec.holds_sixteen_bits();
    let samples = match narrow {
        true => Cow::Owned(frame.samples.to_eight_bits()),
        false => Cow::Borrowed(&frame.samples),
    };
    let alpha = alpha.map(|alpha| if narrow { Cow::Owned(alpha.to_eight_bits()) } else { Cow::Borrowed(alpha) });
    let mixed;
    let (bytes, color): (&[u8], _) = match (&*samples, alpha.as_deref()) {
        (Samples::U8(colour), Some(Samples::U8(alpha))) => {
            mixed = Samples::U8(together(colour, alpha));
            (mixed.as_bytes(), ExtendedColorType::Rgba8)
        }
        (Samples::U16(colour), Some(Samples::U16(alpha))) => {
            mixed = Samples::U16(together(colour, alpha));
            (mixed.as_bytes(), ExtendedColorType::Rgba16)
        }
        (Samples::U8(_), _) => (samples.as_bytes(), ExtendedColorType::Rgb8),
        (Samples::U16(_), _) => (samples.as_bytes(), ExtendedColorType::Rgb16),
    };
    let picture = Encodable { bytes, size: frame.size, color, icc };
    match codec {
        // Balanced compression is some forty times slower.
        Codec::Png => picture.encode(PngEncoder::new_with_quality(output, CompressionType::Fast, FilterType::Adaptive)),
        Codec::Jpeg => picture.encode(JpegEncoder::new_with_quality(output, JPEG_QUALITY)),
        Codec::WebP => picture.encode(WebPEncoder::new_lossless(output)),
        Codec::Tiff => picture.encode(TiffEncoder::new(output)),
    }
}

struct Encodable<'a> {
    bytes: &'a [u8],
    size: Size,
    color: ExtendedColorType,
    icc: Option<&'a [u8]>,
}

impl Encodable<'_> {
    fn encode(&self, mut encoder: impl ImageEncoder) -> ImageResult<()> {
        if let Some(icc) = self.icc {
            encoder.set_icc_profile(icc.to_vec()).map_err(image::ImageError::Unsupported)?;
        }
        encoder.write_image(self.bytes, self.size.w as u32, self.size.h as u32, self.color)
    }
}

/// One picture as a stream of one frame.
pub(crate) struct PictureSource {
    info: Info,
    frame: Option<Frame>,
}

impl PictureSource {
    pub fn open(path: &Path) -> Result<PictureSource> {
        let (frame, Headers { size, depth, alpha, icc, .. }) = PictureFile::open(path)?.decode()?;
        let kind = Kind::Image;
        let info = Info { size, frames: Some(1), rate: Rate::default(), depth, alpha, kind, names: Vec::new(), icc };
        Ok(PictureSource { info, frame: Some(frame) })
    }
}

impl Source for PictureSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        Ok(self.frame.take())
    }
}

/// One picture file to be.
pub(crate) struct PictureSink {
    path: PathBuf,
    codec: Codec,
    size: Size,
    icc: Option<Vec<u8>>,
    /// Taken by the one frame that a picture holds. Declared before `partial`, so that it closes before that removes it.
    file: Option<File>,
    partial: Partial,
}

impl PictureSink {
    pub fn create(path: &Path, codec: Codec, info: &Info) -> Result<PictureSink> {
        let (file, partial) = Partial::file(path)?;
        let icc = info.icc.clone();
        Ok(PictureSink { path: path.to_owned(), codec, size: info.size, icc, file: Some(file), partial })
    }
}

impl Sink for PictureSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        frame.assert_fits(self.size);
        let file = self.file.take().expect("a picture holds one frame");
        write(file, &self.path, self.codec, frame, self.icc.as_deref())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        assert!(self.file.is_none(), "a picture needs a frame");
        self.partial.commit()
    }
}
