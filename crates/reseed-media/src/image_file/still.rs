//! Images that ffmpeg decodes: AVIF, HEIC and JPEG XL.

use std::path::Path;

use super::boxes::{self, Metadata};
use super::codec::ImageCodec;
use super::decode::{Decoded, Headers};
use crate::error::{Error, Result};
use crate::stream::{Info, Source};
use crate::video::Clip;

/// Opens an image as a video of one frame.
fn open(path: &Path, codec: ImageCodec) -> Result<Box<dyn Source>> {
    crate::open_video(path, Clip::default()).map_err(|error| unsupported(path, codec, error))
}

/// The error of an image that this ffmpeg cannot decode.
fn unsupported(path: &Path, codec: ImageCodec, error: Error) -> Error {
    let reason = match error {
        Error::Unreadable { reason, .. } | Error::DecoderFailed { reason, .. } => reason,
        Error::NoVideo { .. } => "no image found".to_owned(),
        error => return error,
    };
    Error::UnsupportedImage { path: path.to_owned(), format: codec.name(), reason }
}

/// The headers of an image. One of tiles, of which ffmpeg decodes a single one, is an error.
fn headers_of(path: &Path, codec: ImageCodec, info: &Info) -> Result<Headers> {
    let Metadata { tags, tiled } = boxes::read(path);
    let size = info.size;
    if let Some(whole) = tiled.filter(|whole| whole.pixels() != size.pixels()) {
        let reason = format!("it decodes one tile of {size}, but the image has {whole}");
        return Err(Error::UnsupportedImage { path: path.to_owned(), format: codec.name(), reason });
    }
    Ok(Headers::decoded(size, info.depth, info.alpha, tags))
}

pub(super) fn headers(path: &Path, codec: ImageCodec) -> Result<Headers> {
    headers_of(path, codec, open(path, codec)?.info())
}

pub(super) fn read(path: &Path, codec: ImageCodec) -> Result<Decoded> {
    let mut source = open(path, codec)?;
    let headers = headers_of(path, codec, source.info())?;
    let frame = source.next().map_err(|error| unsupported(path, codec, error))?;
    let none = || Error::NoVideo { path: path.to_owned() };
    let frame = frame.ok_or_else(none).map_err(|error| unsupported(path, codec, error))?;
    Ok(Decoded { frame, headers, problem: None })
}
