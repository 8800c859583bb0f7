//! Animated GIF: ffmpeg chooses the colours and compresses, and the exact delays are set afterwards.

use std::path::Path;

use super::{Animation, AnimationFormat};
use crate::error::{Error, Result};

/// Fails if the format needs ffmpeg and ffmpeg is missing.
pub(super) fn check(format: AnimationFormat, path: &Path) -> Result<()> {
    match format {
        AnimationFormat::Gif if cfg!(feature = "ffmpeg") => crate::ffmpeg_path().map(drop),
        AnimationFormat::Gif => Err(Error::FfmpegDisabled { path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Joins the numbered images of a folder into the file `to`; errors name `output`.
#[cfg(feature = "ffmpeg")]
pub(super) fn write(folder: &Path, to: &Path, output: &Path, animation: &Animation, alpha: bool) -> Result<()> {
    crate::ffmpeg::join_gif(folder, to, output, alpha)?;
    let cannot_write = |cause| Error::Write { path: output.to_owned(), cause };
    let mut file = std::fs::read(to).map_err(cannot_write)?;
    let delays = animation.in_ticks(100);
    let found = set_delays(&mut file, &delays);
    if found != Some(delays.len()) {
        let reason = format!("{} of {} frames were written", found.unwrap_or(0), delays.len());
        return Err(Error::EncoderFailed { path: output.to_owned(), reason });
    }
    set_plays(&mut file, animation.plays);
    let synced = std::fs::write(to, file).and_then(|()| std::fs::File::options().write(true).open(to)?.sync_all());
    synced.map_err(cannot_write)
}

#[cfg(not(feature = "ffmpeg"))]
pub(super) fn write(_: &Path, _: &Path, output: &Path, _: &Animation, _: bool) -> Result<()> {
    Err(Error::FfmpegDisabled { path: output.to_owned() })
}

/// A block of a GIF file.
enum Block {
    /// The control of the next image; its delay is at this position, which only outputs need.
    #[cfg_attr(not(feature = "ffmpeg"), allow(dead_code, reason = "GIF is written through ffmpeg"))]
    Control(usize),
    /// The number of plays is at this position.
    Plays(usize),
    Image,
    Other,
}

/// Calls `each` for all blocks; `None` for a damaged file.
fn blocks(file: &[u8], mut each: impl FnMut(Block)) -> Option<()> {
    /// Bytes of the table of colours that `flags` announce.
    fn colours(flags: u8) -> usize {
        if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
    }
    /// The position after a list of sub-blocks.
    fn after(file: &[u8], mut at: usize) -> Option<usize> {
        loop {
            let length = usize::from(*file.get(at)?);
            at += 1 + length;
            if length == 0 {
                return Some(at);
            }
        }
    }
    let mut at = 13 + colours(*file.get(10)?);
    loop {
        match *file.get(at)? {
            0x21 => {
                let content = at + 2;
                each(match file.get(at + 1)? {
                    0xf9 if file.get(content) == Some(&4) => Block::Control(content + 2),
                    0xff if file.get(content + 1..content + 12) == Some(b"NETSCAPE2.0") => Block::Plays(content + 14),
                    _ => Block::Other,
                });
                at = after(file, content)?;
            }
            0x2c => {
                each(Block::Image);
                at = after(file, at + 11 + colours(*file.get(at + 9)?))?;
            }
            _ => return Some(()),
        }
    }
}

/// How often a file is played, 0 for ever. Without a statement it is once.
pub(super) fn plays(file: &[u8]) -> u32 {
    let mut plays = 1;
    // What comes before the damage counts.
    let _ = blocks(file, |block| {
        if let Block::Plays(at) = block
            && let Some([low, high]) = file.get(at..at + 2)
        {
            plays = u32::from(u16::from_le_bytes([*low, *high]));
        }
    });
    plays
}

/// Sets the delays of all images in hundredths of a second; returns the number of images that have one.
#[cfg(feature = "ffmpeg")]
fn set_delays(file: &mut [u8], delays: &[u64]) -> Option<usize> {
    let (mut places, mut images) = (Vec::new(), 0);
    blocks(file, |block| match block {
        Block::Control(at) => places.push(at),
        Block::Image => images += 1,
        Block::Plays(_) | Block::Other => {}
    })?;
    for (at, delay) in places.iter().zip(delays) {
        let delay = u16::try_from(*delay).unwrap_or(u16::MAX).to_le_bytes();
        file.get_mut(*at..at + 2)?.copy_from_slice(&delay);
    }
    Some(places.len().min(images))
}

#[cfg(feature = "ffmpeg")]
fn set_plays(file: &mut [u8], plays: u32) {
    let mut place = None;
    let _ = blocks(file, |block| {
        if let Block::Plays(at) = block {
            place = Some(at);
        }
    });
    let plays = u16::try_from(plays).unwrap_or(u16::MAX).to_le_bytes();
    if let Some(bytes) = place.and_then(|at| file.get_mut(at..at + 2)) {
        bytes.copy_from_slice(&plays);
    }
}
