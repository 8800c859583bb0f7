//! Animated WebP: a container of frames, each compressed without loss.

use std::io::{self, Seek, SeekFrom, Write};

use image::{ColorType, ImageError, ImageResult};

use super::sink::Frames;
use crate::error::Result;
use crate::image_file::{ImageCodec, encode_vp8l, interleaved, with_size};
use crate::stream::ImageTags;

const PROFILE: u8 = 0x20;
const ALPHA: u8 = 0x10;
const EXIF: u8 = 0x08;
const XMP: u8 = 0x04;
const ANIMATION: u8 = 0x02;

/// A frame replaces what is under it, alpha included.
const REPLACE: u8 = 0x02;
/// The longest delay in milliseconds.
const MAX_DELAY: u64 = (1 << 24) - 1;

/// Writes an animation. The outer error is one of reading the frames.
pub(super) fn write<W: Write + Seek>(output: &mut W, frames: &Frames) -> Result<ImageResult<()>> {
    let tags = with_size(&frames.info.tags, frames.info.size);
    if let Err(cause) = start(output, frames, &tags) {
        return Ok(Err(ImageError::IoError(cause)));
    }
    for (i, delay) in frames.animation.in_ticks(1000).into_iter().enumerate() {
        let frame = (frames.read)(i)?;
        let (samples, color) = interleaved(&frame, ImageCodec::WebP, false);
        let bitstream = match bitstream(frames, color, samples.as_bytes()) {
            Ok(bitstream) => bitstream,
            Err(cause) => return Ok(Err(cause)),
        };
        let mut content = vec![0; 6];
        content.extend(canvas(frames));
        content.extend(&(delay.min(MAX_DELAY) as u32).to_le_bytes()[..3]);
        content.push(REPLACE);
        content.extend(bitstream);
        if let Err(cause) = chunk(output, b"ANMF", &content) {
            return Ok(Err(ImageError::IoError(cause)));
        }
    }
    Ok(end(output, &tags).map_err(ImageError::IoError))
}

/// Width and height, each less one, in 24 bits.
fn canvas(frames: &Frames) -> Vec<u8> {
    let side = |side: usize| (side as u32 - 1).to_le_bytes();
    let (w, h) = (side(frames.info.size.w), side(frames.info.size.h));
    [&w[..3], &h[..3]].concat()
}

fn start(output: &mut (impl Write + Seek), frames: &Frames, tags: &ImageTags) -> io::Result<()> {
    // The length of the file follows when it is known.
    output.write_all(b"RIFF\0\0\0\0WEBP")?;
    let given = [(tags.icc.is_some(), PROFILE), (frames.info.alpha, ALPHA), (tags.exif.is_some(), EXIF)];
    let given = given.into_iter().chain([(tags.xmp.is_some(), XMP)]);
    let flags = given.filter(|(given, _)| *given).fold(ANIMATION, |flags, (_, flag)| flags | flag);
    let mut extended = vec![flags, 0, 0, 0];
    extended.extend(canvas(frames));
    chunk(output, b"VP8X", &extended)?;
    if let Some(icc) = &tags.icc {
        chunk(output, b"ICCP", icc)?;
    }
    let plays = u16::try_from(frames.animation.plays).unwrap_or(u16::MAX).to_le_bytes();
    chunk(output, b"ANIM", &[0, 0, 0, 0, plays[0], plays[1]])
}

fn end(output: &mut (impl Write + Seek), tags: &ImageTags) -> io::Result<()> {
    if let Some(exif) = &tags.exif {
        chunk(output, b"EXIF", exif)?;
    }
    if let Some(xmp) = &tags.xmp {
        chunk(output, b"XMP ", xmp)?;
    }
    let length = output.stream_position()? - 8;
    let too_long = || io::Error::other("the animation is longer than 4 GiB");
    let length = u32::try_from(length).map_err(|_| too_long())?;
    output.seek(SeekFrom::Start(4))?;
    output.write_all(&length.to_le_bytes())
}

fn chunk(output: &mut impl Write, name: &[u8; 4], content: &[u8]) -> io::Result<()> {
    output.write_all(name)?;
    output.write_all(&(content.len() as u32).to_le_bytes())?;
    output.write_all(content)?;
    // Chunks have an even length.
    output.write_all(&[0][..content.len() % 2])
}

/// The chunk with the compressed pixels of a frame: what follows the header of a file with one image.
fn bitstream(frames: &Frames, color: ColorType, samples: &[u8]) -> ImageResult<Vec<u8>> {
    const FILE_HEADER: usize = 12;
    let mut file = Vec::new();
    encode_vp8l(image_webp::WebPEncoder::new(&mut file), frames.info.size, color, samples)?;
    Ok(file.split_off(FILE_HEADER.min(file.len())))
}
