//! The tags of TIFF files, which are those of EXIF among those of the image, and the writing of TIFF files.

use std::io::{Cursor, Read, Seek, Write};

use image::error::EncodingError;
use image::{ColorType, ImageError, ImageFormat, ImageResult};
use tiff::encoder::colortype::{self, Gray8, Gray16, RGB8, RGB16, RGBA8, RGBA16};
use tiff::encoder::{DirectoryEncoder, TiffEncoder, TiffKind, TiffValue};
use tiff::tags::{ExtraSamples, Tag, Type};
use tiff::{Directory, TiffError, TiffResult};

use super::exif::{Directories, Entry, Order};
use super::iptc;
use crate::frame::Size;
use crate::stream::ImageTags;

const XMP: u16 = 700;
const IPTC: u16 = 33_723;
const PHOTOSHOP: u16 = 34_377;
const EXIF_POINTER: u16 = 34_665;
const GPS_POINTER: u16 = 34_853;
const INTEROPERABILITY_POINTER: u16 = 40_965;

/// Tags of the image directory that describe the photograph, not how its pixels are stored: document, description,
/// maker, model, resolution, software, date, artist, computer, rating, copyright, and those of Windows.
fn is_descriptive(tag: u16) -> bool {
    let single = [269, 270, 271, 272, 282, 283, 285, 296, 305, 306, 315, 316, 18_246, 18_249, 33_432];
    single.contains(&tag) || (40_091..=40_095).contains(&tag)
}

/// The EXIF and IPTC of the first image.
pub(super) fn tags(input: &mut (impl Read + Seek)) -> ImageTags {
    let Some(mut directories) = Directories::read(input) else { return ImageTags::default() };
    let find = |tag: u16| directories.main.iter().find(|entry| entry.tag == tag).map(|entry| entry.value.clone());
    let iptc = find(IPTC).or_else(|| find(PHOTOSHOP)).and_then(|block| iptc::unwrapped(&block));
    let xmp = find(XMP);
    directories.main.retain(|entry| is_descriptive(entry.tag));
    // It points to a directory that is not copied.
    directories.exif.retain(|entry| entry.tag != INTEROPERABILITY_POINTER);
    ImageTags { exif: directories.to_block(), xmp, iptc, ..ImageTags::default() }
}

/// Writes images to one file, one page each.
pub(crate) struct Pages<'a> {
    encoder: TiffEncoder<Output<'a>>,
}

/// One type, because the encoder is compiled anew for each type of output.
type Output<'a> = Box<dyn WriteSeek + Send + 'a>;

trait WriteSeek: Write + Seek {}

impl<T: Write + Seek> WriteSeek for T {}

impl<'a> Pages<'a> {
    pub fn new(output: impl Write + Seek + Send + 'a) -> ImageResult<Pages<'a>> {
        let output: Output = Box::new(output);
        Ok(Pages { encoder: TiffEncoder::new(output).map_err(failed)? })
    }

    pub fn write(&mut self, size: Size, color: ColorType, samples: &[u8], tags: &ImageTags) -> ImageResult<()> {
        let deep: Vec<u16> = match color.bytes_per_pixel() > color.channel_count() {
            true => samples.chunks_exact(2).map(|sample| u16::from_ne_bytes([sample[0], sample[1]])).collect(),
            false => Vec::new(),
        };
        let written = match color {
            ColorType::L8 => self.page::<Gray8>(size, samples, false, tags),
            ColorType::La8 => self.page::<Gray8>(size, samples, true, tags),
            ColorType::Rgb8 => self.page::<RGB8>(size, samples, false, tags),
            ColorType::Rgba8 => self.page::<RGBA8>(size, samples, false, tags),
            ColorType::L16 => self.page::<Gray16>(size, &deep, false, tags),
            ColorType::La16 => self.page::<Gray16>(size, &deep, true, tags),
            ColorType::Rgb16 => self.page::<RGB16>(size, &deep, false, tags),
            _ => self.page::<RGBA16>(size, &deep, false, tags),
        };
        written.map_err(failed)
    }

    /// Writes a page, with an additional alpha sample per pixel if `alpha` is set.
    fn page<C: colortype::ColorType>(
        &mut self,
        size: Size,
        samples: &[C::Inner],
        alpha: bool,
        tags: &ImageTags,
    ) -> TiffResult<()>
    where
        [C::Inner]: TiffValue,
    {
        let exif = tags.exif.as_ref().and_then(|exif| Directories::read(&mut Cursor::new(exif)));
        let exif = exif.map(|directories| directories.in_order(Order::NATIVE));
        let mut pointers: Vec<(u16, u32)> = Vec::new();
        for (tag, entries) in exif.iter().flat_map(|all| [(EXIF_POINTER, &all.exif), (GPS_POINTER, &all.gps)]) {
            if !entries.is_empty() {
                let mut directory = self.encoder.extra_directory()?;
                write_entries(&mut directory, entries, |tag| tag != INTEROPERABILITY_POINTER)?;
                pointers.push((tag, directory.finish_with_offsets()?.offset));
            }
        }
        let mut image = self.encoder.new_image::<C>(size.w as u32, size.h as u32)?;
        if alpha {
            image.extra_samples(&[ExtraSamples::UnassociatedAlpha])?;
        }
        let directory = image.encoder();
        if let Some(exif) = &exif {
            write_entries(directory, &exif.main, is_descriptive)?;
        }
        for (tag, offset) in pointers {
            directory.write_tag(Tag::from_u16_exhaustive(tag), offset)?;
        }
        if let Some(icc) = &tags.icc {
            directory.write_tag(Tag::IccProfile, icc.as_slice())?;
        }
        if let Some(xmp) = &tags.xmp {
            directory.write_tag(Tag::from_u16_exhaustive(XMP), xmp.as_slice())?;
        }
        if let Some(iptc) = &tags.iptc {
            directory.write_tag(Tag::from_u16_exhaustive(IPTC), iptc.as_slice())?;
        }
        image.write_data(samples)
    }
}

fn write_entries<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, Output<'_>, K>,
    entries: &[Entry],
    wanted: impl Fn(u16) -> bool,
) -> TiffResult<()> {
    for Entry { tag, kind, value } in entries.iter().filter(|entry| wanted(entry.tag)) {
        let Some(kind) = Type::from_u16(*kind) else { continue };
        let entry = directory.write_entry_bytes(kind, value)?;
        directory.extend_from(&Directory::from_iter([(Tag::from_u16_exhaustive(*tag), entry)]));
    }
    Ok(())
}

fn failed(cause: TiffError) -> ImageError {
    match cause {
        TiffError::IoError(cause) => ImageError::IoError(cause),
        cause => ImageError::Encoding(EncodingError::new(ImageFormat::Tiff.into(), cause)),
    }
}
