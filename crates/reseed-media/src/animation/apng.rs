//! Animated PNG.

use std::io::Write;

use image::{ColorType, ImageResult};

use super::Delay;
use super::sink::Frames;
use crate::error::Result;
use crate::image_file::{ImageCodec, interleaved, png, with_size};

/// Writes an animation. The outer error is one of reading the frames.
pub(super) fn write(output: impl Write, frames: &Frames) -> Result<ImageResult<()>> {
    let (info, animation) = (frames.info, frames.animation);
    let color = if info.alpha { ColorType::Rgba8 } else { ColorType::Rgb8 };
    let tags = with_size(&info.tags, info.size);
    let start = || {
        let mut encoder = png::encoder(output, info.size, color, &tags)?;
        let count = animation.delays.len() as u32;
        encoder.set_animated(count, animation.plays).map_err(png::cannot_encode)?;
        encoder.write_header().map_err(png::cannot_encode)
    };
    let mut writer = match start() {
        Ok(writer) => writer,
        Err(cause) => return Ok(Err(cause)),
    };
    let milliseconds = animation.in_ticks(1000);
    for (i, (delay, milliseconds)) in animation.delays.iter().zip(milliseconds).enumerate() {
        let frame = (frames.read)(i)?;
        let (samples, _) = interleaved(&frame, ImageCodec::Png, false);
        let (num, den) = fraction(*delay, milliseconds);
        let written = writer.set_frame_delay(num, den).and_then(|()| writer.write_image_data(samples.as_bytes()));
        if let Err(cause) = written {
            return Ok(Err(png::cannot_encode(cause)));
        }
    }
    Ok(writer.finish().map_err(png::cannot_encode))
}

/// The fraction of a second that the format stores: exact where two numbers of sixteen bits allow it.
fn fraction(delay: Delay, milliseconds: u64) -> (u16, u16) {
    match (u16::try_from(delay.num), u16::try_from(delay.den)) {
        (Ok(num), Ok(den)) => (num, den),
        _ => match u16::try_from(milliseconds) {
            Ok(milliseconds) => (milliseconds, 1000),
            Err(_) => (u16::try_from(milliseconds / 1000).unwrap_or(u16::MAX), 1),
        },
    }
}
