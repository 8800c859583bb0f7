//! Estimates of disk space.

use std::path::Path;

use crate::error::{Error, Result};
use crate::frame::Depth;
use crate::stream::{Info, Kind};
use crate::video::{Codec, Container, Options, SEGMENT_FRAMES};
use crate::{animation_format, is_y4m, y4m};

/// The disk space of an output, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The finished output. For compressed formats an estimate: frames with much grain need several times as much.
    pub output: u64,
    /// The most that temporary files need in addition: segments before they are joined, and spooled frames.
    pub work: u64,
}

/// Compressed size of a lossless image, relative to its samples.
const LOSSLESS: f64 = 0.5;

/// What is written.
#[derive(Clone, Copy)]
enum Output {
    Y4m,
    Images,
    Animation,
    Video,
}

/// Estimates the disk space of an output of `frames` frames that arrive in batches of `batch`.
pub fn disk(info: &Info, options: &Options, frames: usize, batch: usize) -> Disk {
    let output = match &info.kind {
        _ if options.codec.is_some() => Output::Video,
        Kind::Video(_) => Output::Video,
        Kind::Y4m(_) => Output::Y4m,
        Kind::Image | Kind::Pages | Kind::Folder => Output::Images,
        Kind::Animation(_) => Output::Animation,
    };
    estimate(output, info, options, frames, batch)
}

fn estimate(output: Output, info: &Info, options: &Options, frames: usize, batch: usize) -> Disk {
    let bytes = |bits: f64| (info.size.pixels() as f64 * frames as f64 * bits / 8.0) as u64;
    let depth = if info.depth == Depth::Eight { 8.0 } else { 16.0 };
    match output {
        Output::Y4m => {
            let format = match &info.kind {
                Kind::Y4m(format) => format.clone(),
                Kind::Video(video) => video.y4m_format(),
                Kind::Image | Kind::Pages | Kind::Folder | Kind::Animation(_) => y4m::Format::for_depth(info.depth),
            };
            let frame = y4m::frame_bytes(&format, info.size) as u64;
            Disk { output: frame.saturating_mul(frames as u64), work: 0 }
        }
        Output::Images => Disk { output: bytes(3.0 * depth * LOSSLESS), work: 0 },
        // The frames of an animation wait in a folder.
        Output::Animation => {
            let output = bytes(3.0 * depth * LOSSLESS);
            Disk { output, work: output }
        }
        Output::Video => {
            let pixels = info.pixels();
            let codec = options.codec.unwrap_or(Codec::default_for(Container::Matroska, pixels.bits));
            let pixels = codec.stored_pixels(pixels);
            let output = bytes(codec.bits_per_pixel(pixels, options.crf));
            // The current segment, and those before it while their encoders complete them.
            let spooled = ((1 + options.encoders) * SEGMENT_FRAMES + batch).min(frames) as u64;
            Disk { output, work: output + spooled * pixels.frame_bytes(info.size) as u64 }
        }
    }
}

/// Fails if the disk of `path` has less free space than an output and its temporary files still need by estimate after
/// `done` frames. Passes if the number of frames or the free space is unknown.
pub(crate) fn check_free(path: &Path, info: &Info, options: &Options, done: usize) -> Result<()> {
    let output = match Container::of(path) {
        Some(_) if !info.kind.is_still() => Output::Video,
        _ if is_y4m(path) => Output::Y4m,
        _ if animation_format(path, info).is_some() => Output::Animation,
        _ => Output::Images,
    };
    let folder = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let Some((frames, free)) = info.frames.zip(free_bytes(folder)) else { return Ok(()) };
    let disk = |frames| estimate(output, info, options, frames, 0);
    // Segments and frames of animations are joined in a new file: it needs the space of all frames.
    let is_joined = matches!(output, Output::Animation | Output::Video);
    let joined = if is_joined { disk(frames.min(done)).output } else { 0 };
    let Disk { output, work } = disk(frames.saturating_sub(done));
    let needed = output.saturating_add(work).saturating_add(joined);
    match needed > free {
        true => Err(Error::DiskSpace { path: path.to_owned(), needed, free }),
        false => Ok(()),
    }
}

/// The bytes that an unprivileged process may still write to the disk of a folder.
#[cfg(unix)]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let folder = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut space = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with a zero byte, and the structure is writable and of the type that the call fills.
    if unsafe { libc::statvfs(folder.as_ptr(), space.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: all bit patterns are valid for these integers, and the call succeeded.
    let space = unsafe { space.assume_init() };
    // The types of the fields differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Some((space.f_bavail as u64).saturating_mul(space.f_frsize as u64))
}

/// The bytes that this user may still write to the disk of a folder.
#[cfg(windows)]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    use std::os::windows::ffi::OsStrExt;
    use std::ptr::null_mut;
    use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;
    let folder = std::path::absolute(folder).ok()?;
    let folder: Vec<u16> = folder.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: the path ends with a zero, the number is writable, and the other two places may be null.
    let known = unsafe { GetDiskFreeSpaceExW(folder.as_ptr(), &mut free, null_mut(), null_mut()) } != 0;
    known.then_some(free)
}

/// Other systems are not asked.
#[cfg(not(any(unix, windows)))]
pub fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_output_larger_than_the_disk_is_refused() {
        let folder = temp_dir::TempDir::new().unwrap();
        let info = crate::sample().info().clone();
        let huge = Info { frames: Some(usize::MAX >> 20), ..info.clone() };
        let short = Info { frames: Some(9), ..info };
        for name in ["a.y4m", "a.mkv", "a"] {
            let check = |info: &Info| check_free(&folder.path().join(name), info, &Options::default(), 0);
            check(&short).unwrap();
            if cfg!(any(unix, windows)) {
                let error = check(&huge).unwrap_err();
                assert!(matches!(error, Error::DiskSpace { needed, free, .. } if needed > free), "{error}");
            }
        }
    }
}
