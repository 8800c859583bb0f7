//! Reads files into frames and writes frames to files.
//!
//! This crate reads and writes Y4M video, images and folders of images. All other videos go
//! through ffmpeg, which the cargo feature `ffmpeg` (on by default) enables; without it, opening one is
//! [`Error::FfmpegDisabled`]. A [`Source`] yields RGB [`Frame`]s one at a time in constant memory. A [`Sink`] writes
//! them under a temporary name and renames the output when it is finished. The crate knows neither tensors nor models.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = temp_dir::TempDir::new()?;
//! # let copy = folder.path().join("copy.y4m");
//! let mut clip = reseed_media::sample();
//! let mut sink = reseed_media::create(&copy, clip.info())?;
//! while let Some(frame) = clip.next()? {
//!     sink.write(&frame)?;
//! }
//! sink.finish()?;
//!
//! let copy = reseed_media::open(&copy)?;
//! assert_eq!(copy.info().frames, Some(9));
//! assert_eq!(copy.info().size.to_string(), "96x64");
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod animation;
mod delays;
pub mod demo;
mod digest;
mod disk;
mod error;
#[cfg(feature = "ffmpeg")]
mod ffmpeg;
pub mod files;
mod folder;
mod format;
mod frame;
mod image_file;
#[doc(hidden)]
pub mod internals;
pub mod metrics;
mod partial;
pub mod planes;
mod problem;
mod rows;
pub mod segments;
mod stream;
mod trim;
pub mod video;
pub mod wide;
pub mod y4m;

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

pub use delays::Animation;
pub use digest::{Digest, digest, digest_of_file};
pub use disk::{Disk, disk, free_bytes};
pub use error::{Error, HeaderProblem, Result};
pub use folder::{is_image_name, jobs_in, natural_order, output_name, sequence, videos_in};
pub use frame::{Depth, Frame, Mark, Rate, Samples, Size};
pub use partial::{discard, discard_unfinished, has_unfinished};
pub use problem::Problem;
pub use stream::{ImageTags, Info, Kind, Sink, Source};
pub use video::is_video_name;

use animation::{AnimationFormat, AnimationSink, AnimationSource};
use image_file::ImageCodec;
use video::{Clip, Container, Options};

const PIPE: &str = "-";

/// Opens an image, a video, a folder of images in natural name order (2 before 10), the images of a folder that match a
/// pattern such as `frames/%04d.png`, or Y4M on standard input for `-`.
/// The content determines the format of a file; ffmpeg opens every file that is neither an image nor Y4M.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    open_clip(path, Clip::default())
}

/// Opens a part of a video or of a folder; see [`open`].
pub fn open_clip(path: &Path, clip: Clip) -> Result<Box<dyn Source>> {
    let native = open_native(path, clip.rate)?;
    match native {
        Some(source) if clip.rate.is_some() && source.info().kind != Kind::Folder => {
            Err(Error::RateOfOther { path: path.to_owned() })
        }
        None if clip.rate.is_some() => Err(Error::RateOfOther { path: path.to_owned() }),
        Some(source) if clip.is_whole() => Ok(source),
        Some(source) if source.info().kind.is_still() => Err(Error::ClipOfImage { path: path.to_owned() }),
        Some(source) => Ok(Box::new(trim::Trimmed::new(source, clip)?)),
        None => open_video(path, clip),
    }
}

#[cfg(feature = "ffmpeg")]
fn open_video(path: &Path, clip: Clip) -> Result<Box<dyn Source>> {
    files::check_unicode(path)?;
    ffmpeg::open(path, clip)
}

#[cfg(not(feature = "ffmpeg"))]
fn open_video(path: &Path, _clip: Clip) -> Result<Box<dyn Source>> {
    Err(Error::FfmpegDisabled { path: path.to_owned() })
}

/// Fails for a file in a format that can name other files or addresses, such as a playlist, and for formats that are
/// not known to be free of that. For programs that open files of strangers.
pub fn check_self_contained(path: &Path) -> Result<()> {
    match open_native(path, None)? {
        Some(_) => Ok(()),
        #[cfg(feature = "ffmpeg")]
        None => ffmpeg::check_self_contained(path),
        #[cfg(not(feature = "ffmpeg"))]
        None => Err(Error::FfmpegDisabled { path: path.to_owned() }),
    }
}

/// Opens formats that need no ffmpeg; `None` for other files. The images of a folder have the rate `rate`, if given.
fn open_native(path: &Path, rate: Option<Rate>) -> Result<Option<Box<dyn Source>>> {
    if path == Path::new(PIPE) {
        return Ok(Some(Box::new(y4m::Reader::new(io::stdin(), "standard input")?)));
    }
    if folder::is_sequence(path) {
        return Ok(Some(Box::new(folder::FolderSource::open(path, rate)?)));
    }
    files::check_name(path)?;
    let cannot_read = |cause| Error::Read { path: path.to_owned(), cause };
    let metadata = fs::metadata(path).map_err(cannot_read)?;
    if metadata.is_dir() {
        return Ok(Some(Box::new(folder::FolderSource::open(path, rate)?)));
    }
    let mut file = File::open(path).map_err(cannot_read)?;
    let mut head = Vec::new();
    (&mut file).take(image_file::HEAD).read_to_end(&mut head).map_err(cannot_read)?;

    if head.starts_with(y4m::MAGIC) {
        return if metadata.is_file() {
            let file = File::open(path).map_err(cannot_read)?;
            Ok(Some(Box::new(y4m::Reader::seekable(file, path)?)))
        } else {
            Ok(Some(Box::new(y4m::Reader::new(Cursor::new(head).chain(file), path)?)))
        };
    }
    if let Some(format) = animation::is_animated(path, &head)? {
        return Ok(Some(Box::new(AnimationSource::open(path, format)?)));
    }
    if ImageCodec::detect(&head, path).is_some() {
        return Ok(Some(image_file::open(path)?));
    }
    match extension_format(path) {
        Some(format) => Err(Error::WrongExtension { path: path.to_owned(), format }),
        None => Ok(None),
    }
}

/// Creates an output for the stream that `info` describes. `-` is Y4M on standard output. A path ending in `.y4m` is
/// Y4M. Paths ending in `.mp4`, `.mkv`, `.mov` and `.webm` are written through ffmpeg. Other paths are images or
/// folders of images.
///
/// Files and folders have a temporary name until [`Sink::finish`] renames them. A sink that is dropped earlier removes
/// its temporary files.
pub fn create(path: &Path, info: &Info) -> Result<Box<dyn Sink>> {
    create_with(path, info, &Options::default())
}

/// Creates an output with options for videos; see [`create`].
pub fn create_with(path: &Path, info: &Info, options: &Options) -> Result<Box<dyn Sink>> {
    if path == Path::new(PIPE) {
        return Ok(Box::new(y4m::Writer::new(io::stdout(), "standard output", info)?));
    }
    files::check_name(path)?;
    disk::check_free(path, info, options, 0)?;
    if is_y4m(path) {
        return Ok(Box::new(y4m::Writer::create(path, info)?));
    }
    let unknown = |expected| Error::UnknownOutput { path: path.to_owned(), expected };
    if !info.kind.is_still() && Container::of(path).is_some() {
        return create_video(path, info, options, None);
    }
    if let Some(format) = animation_format(path, info) {
        return Ok(Box::new(AnimationSink::create(path, format, info)?));
    }
    match (&info.kind, ImageCodec::for_output(path)) {
        (Kind::Image, Some(codec)) => Ok(Box::new(image_file::ImageSink::create(path, codec, info)?)),
        (Kind::Image, None) => Err(unknown("a name ending in .png, .jpg, .webp or .tiff")),
        (Kind::Pages, Some(ImageCodec::Tiff)) => Ok(Box::new(image_file::PagesSink::create(path, info)?)),
        (Kind::Pages, None) if path.extension().is_none() => Ok(Box::new(folder::FolderSink::create(path, info)?)),
        (Kind::Pages, _) => Err(unknown("a name ending in .tiff for all pages, or the name of a folder")),
        (Kind::Folder, None) => Ok(Box::new(folder::FolderSink::create(path, info)?)),
        (Kind::Folder, Some(_)) => {
            Err(unknown("the name of a folder, or one ending in .mp4, .mkv, .mov, .webm, .y4m, .gif, .apng or .webp"))
        }
        (Kind::Video(_) | Kind::Animation(_), None) if path.extension().is_none() => {
            Ok(Box::new(folder::FolderSink::create(path, info)?))
        }
        (Kind::Y4m(_) | Kind::Video(_) | Kind::Animation(_), _) => Err(unknown(
            "a name ending in .mp4, .mkv, .mov, .webm, .y4m, .gif, .apng or .webp, or - for standard output",
        )),
    }
}

/// Whether an output is a video without transparency.
fn is_opaque(output: &Path, options: &Options) -> bool {
    let stores = options.codec.is_some_and(|codec| ["ffv1", "prores"].contains(&codec.name()));
    is_y4m(output) || output == Path::new(PIPE) || (Container::of(output).is_some() && !stores)
}

/// The format of an animation that is written to `path`; `None` if the output is none.
fn animation_format(path: &Path, info: &Info) -> Option<AnimationFormat> {
    let animated = matches!(info.kind, Kind::Animation(_));
    AnimationFormat::for_output(path, animated).filter(|_| !info.kind.is_still())
}

/// What `output` cannot keep of the stream that `info` describes, one line each.
pub fn losses(info: &Info, output: &Path, options: &Options) -> Vec<String> {
    match (&info.kind, ImageCodec::for_output(output)) {
        (Kind::Video(video), _) => video.losses(output, options),
        (Kind::Image, Some(codec)) => image_file::losses(codec, info.alpha, &info.tags),
        (Kind::Folder | Kind::Animation(_), _) if info.alpha && is_opaque(output, options) => {
            vec!["the images have transparency, which this video leaves out; write .webp or a folder to keep it".into()]
        }
        (Kind::Folder, None) if info.alpha && output.extension().is_none() => {
            let codecs = info.names.iter().filter_map(|name| ImageCodec::for_output(Path::new(name)));
            let lossy = codecs.filter(|codec| !codec.has_alpha()).take(1);
            lossy.flat_map(|codec| image_file::losses(codec, true, &ImageTags::default())).collect()
        }
        _ => Vec::new(),
    }
}

/// Continues an unfinished output of a run with the same arguments after its first `frames` frames. A video keeps all
/// of its frames only if it was created [resumable](Options::resumable).
pub fn resume_with(path: &Path, info: &Info, options: &Options, frames: usize) -> Result<Box<dyn Sink>> {
    disk::check_free(path, info, options, frames)?;
    if is_y4m(path) {
        return Ok(Box::new(y4m::Writer::resume(path, info, frames)?));
    }
    if Container::of(path).is_some() {
        return create_video(path, info, options, Some(frames));
    }
    if let Some(format) = animation_format(path, info) {
        return Ok(Box::new(AnimationSink::resume(path, format, info, frames)?));
    }
    Ok(Box::new(folder::FolderSink::resume(path, info, frames)?))
}

/// Whether the output that [`create_with`] creates at `path` needs even sides: a video of 4:2:0 or 4:2:2, unless its
/// codec allows odd ones.
pub fn needs_even_sides(path: &Path, info: &Info, options: &Options) -> bool {
    let container = Container::of(path).filter(|_| info.kind != Kind::Image && !is_y4m(path));
    container.is_some_and(|container| {
        let pixels = info.pixels();
        options.codec.unwrap_or(video::Codec::default_for(container, pixels.bits)).needs_even_sides(pixels)
    })
}

#[cfg(feature = "ffmpeg")]
fn create_video(path: &Path, info: &Info, options: &Options, resume: Option<usize>) -> Result<Box<dyn Sink>> {
    files::check_unicode(path)?;
    Ok(Box::new(ffmpeg::Writer::open(path, info, options, resume)?))
}

#[cfg(not(feature = "ffmpeg"))]
fn create_video(path: &Path, _info: &Info, _options: &Options, _resume: Option<usize>) -> Result<Box<dyn Sink>> {
    Err(Error::FfmpegDisabled { path: path.to_owned() })
}

/// The path of the ffmpeg program that videos are read and written with.
pub fn ffmpeg_path() -> Result<PathBuf> {
    #[cfg(feature = "ffmpeg")]
    return ffmpeg::path();
    #[cfg(not(feature = "ffmpeg"))]
    Err(Error::FfmpegDisabled { path: PathBuf::from("ffmpeg") })
}

/// Identifies the build of ffmpeg, which the bytes of an encoded video depend on.
pub fn ffmpeg_version() -> Result<String> {
    #[cfg(feature = "ffmpeg")]
    return ffmpeg::version();
    #[cfg(not(feature = "ffmpeg"))]
    Err(Error::FfmpegDisabled { path: PathBuf::from("ffmpeg") })
}

/// Decodes an image file in memory, of any format that needs no ffmpeg; errors name it `name`.
pub fn decode(bytes: &[u8], name: &Path) -> Result<Frame> {
    image_file::from_bytes(bytes, name)
}

/// An embedded clip of nine frames of 96x64, for tests and examples.
pub fn sample() -> Box<dyn Source> {
    y4m::sample()
}

fn is_y4m(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("y4m"))
}

/// The name of the native format that the extension of `path` belongs to.
fn extension_format(path: &Path) -> Option<&'static str> {
    if is_y4m(path) { Some("Y4M") } else { ImageCodec::from_extension(path).map(ImageCodec::name) }
}
