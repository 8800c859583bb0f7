//! Image files.
//!
//! PNG, JPEG, WebP, TIFF, BMP, PNM and TGA are decoded by this program, AVIF, HEIC and JPEG XL by ffmpeg. PNG, JPEG,
//! WebP and TIFF are written. Images are read as RGB: grey and palettes are expanded, and a grey image is written as
//! grey again. Alpha is kept separately and never premultiplied; JPEG gets the image on white. The orientation tag is
//! applied and reset. Colour profile, EXIF, XMP and IPTC are copied as far as the format of the output allows.

mod boxes;
mod codec;
mod decode;
mod encode;
mod exif;
mod grey_alpha;
mod guard;
mod iptc;
mod jpeg;
mod pages;
mod pages_file;
pub(crate) mod png;
mod still;
mod tiff;

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::frame::{Frame, Rate, Size};
use crate::partial::Partial;
use crate::problem::Problem;
use crate::stream::{ImageTags, Info, Kind, Sink, Source};

pub(crate) use codec::ImageCodec;
pub(crate) use decode::{Decoded, HEAD, Headers, check, limits, split_alpha};
pub(crate) use encode::{encode_error, encode_vp8l, interleaved, losses, with_size, write};
pub(crate) use guard::{Input, MAX_METADATA, Retry, catch};
pub(crate) use pages::Page;
pub(crate) use pages_file::{PagesSink, PagesSource};

use decode::ImageFile;

/// Reads the headers of an image without decoding it.
pub(crate) fn probe(path: &Path) -> Result<Headers> {
    probe_page(path, Page::default())
}

/// Reads the headers of a page.
pub(crate) fn probe_page(path: &Path, page: Page) -> Result<Headers> {
    let codec = identify(path)?;
    match codec.format() {
        Some(format) => ImageFile::open(path, codec, format, page)?.headers(),
        None => still::headers(path, codec),
    }
}

/// Reads an image.
pub(crate) fn read(path: &Path) -> Result<Decoded> {
    read_page(path, Page::default())
}

/// Reads a page.
pub(crate) fn read_page(path: &Path, page: Page) -> Result<Decoded> {
    let codec = identify(path)?;
    match codec.format() {
        Some(format) => ImageFile::open(path, codec, format, page)?.decode(),
        None => still::read(path, codec),
    }
}

fn identify(path: &Path) -> Result<ImageCodec> {
    let cannot_read = |cause| Error::Read { path: path.to_owned(), cause };
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head)).map_err(cannot_read)?;
    match (ImageCodec::detect(&head, path), ImageCodec::from_extension(path)) {
        (Some(codec), _) => Ok(codec),
        (None, Some(named)) => Err(Error::WrongExtension { path: path.to_owned(), format: named.name() }),
        (None, None) => Err(Error::UnknownInput { path: path.to_owned() }),
    }
}

/// Decodes an image file in memory; errors name `path`.
pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Frame> {
    let codec = ImageCodec::detect(bytes, path).and_then(|codec| Some((codec, codec.format()?)));
    let (codec, format) = codec.ok_or_else(|| Error::UnknownInput { path: path.to_owned() })?;
    Ok(decode::decode(Box::new(Cursor::new(bytes)), bytes.len() as u64, codec, format, path)?.frame)
}

/// Opens an image, or a TIFF file with several pages.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Source>> {
    let pages = pages_file::pages(path)?;
    if pages.len() > 1 {
        return Ok(Box::new(PagesSource::open(path, pages)?));
    }
    let Decoded { frame, headers, problem } = read(path)?;
    let Headers { size, depth, alpha, tags, .. } = headers;
    let (kind, rate) = (Kind::Image, Rate::default());
    let info = Info { size, frames: Some(1), rate, depth, alpha, kind, names: Vec::new(), tags };
    let problems = problem.map(|damage| Problem::Image { path: path.to_owned(), damage }).into_iter().collect();
    Ok(Box::new(ImageSource { info, frame: Some(frame), problems }))
}

/// An image as a source of one frame.
pub(crate) struct ImageSource {
    info: Info,
    frame: Option<Frame>,
    problems: Vec<Problem>,
}

impl Source for ImageSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        Ok(self.frame.take())
    }

    fn problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }
}

/// A sink that writes one image.
pub(crate) struct ImageSink {
    path: PathBuf,
    codec: ImageCodec,
    size: Size,
    tags: ImageTags,
    /// `None` after the frame is written. Declared before `partial`, so that the file closes before it is removed.
    file: Option<File>,
    partial: Partial,
}

impl ImageSink {
    pub fn create(path: &Path, codec: ImageCodec, info: &Info) -> Result<ImageSink> {
        let (file, partial) = Partial::file(path)?;
        let tags = info.tags.clone();
        Ok(ImageSink { path: path.to_owned(), codec, size: info.size, tags, file: Some(file), partial })
    }
}

impl Sink for ImageSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        frame.assert_fits(self.size);
        let file = self.file.take().expect("an image has one frame");
        write(file, &self.path, self.codec, frame, &self.tags)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        assert!(self.file.is_none(), "an image needs a frame");
        self.partial.commit()
    }
}
