//! Files to frames and back: Y4M video, single pictures (PNG, JPEG, WebP, TIFF) and folders of pictures by ourselves, and
//! every other video through ffmpeg ([`video`]). A [`Source`] yields RGB [`Frame`]s one at a time in constant memory; a [`Sink`] takes them and puts a
//! complete file in place only when it is finished. Nothing here knows tensors or models: resizing, restoring and
//! pacing belong to the pipeline that stands between the two.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
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

pub mod demo;
mod disk;
mod error;
mod folder;
mod frame;
pub mod metrics;
mod partial;
mod picture;
mod planes;
mod rows;
mod stream;
mod trim;
pub mod video;
pub mod wide;
pub mod y4m;

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

pub use disk::{Disk, disk};
pub use error::{Error, HeaderProblem, Result};
pub use folder::videos_in;
pub use frame::{Depth, Frame, Rate, Samples, Size};
pub use partial::{discard, discard_unfinished};
pub use stream::{Info, Kind, Sink, Source};

use picture::Codec;
use video::{Clip, Container, Options};

const PIPE: &str = "-";

/// Opens a picture, a video, a folder of pictures in natural name order (2 before 10), or, for `-`, Y4M on standard
/// input. A file is what its content says it is; its extension only helps to explain what is wrong with it. What is
/// neither a picture nor Y4M is left to ffmpeg.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    open_clip(path, Clip::default())
}

/// Opens a part of what [`open`] opens.
pub fn open_clip(path: &Path, clip: Clip) -> Result<Box<dyn Source>> {
    let native = open_native(path)?;
    match native {
        Some(source) if clip == Clip::default() => Ok(source),
        Some(source) if source.info().kind == Kind::Image => Err(Error::NoTimes { path: path.to_owned() }),
        Some(source) => Ok(Box::new(trim::Trimmed::new(source, clip)?)),
        None => video::open(path, clip),
    }
}

/// What needs no ffmpeg.
fn open_native(path: &Path) -> Result<Option<Box<dyn Source>>> {
    if path == Path::new(PIPE) {
        return Ok(Some(Box::new(y4m::Reader::new(io::stdin(), "standard input")?)));
    }
    let cannot_read = |cause| Error::Read { path: path.to_owned(), cause };
    let metadata = fs::metadata(path).map_err(cannot_read)?;
    if metadata.is_dir() {
        return Ok(Some(Box::new(folder::FolderSource::open(path)?)));
    }
    let mut file = File::open(path).map_err(cannot_read)?;
    let mut head = Vec::new();
    (&mut file).take(picture::HEAD).read_to_end(&mut head).map_err(cannot_read)?;

    if head.starts_with(y4m::MAGIC) {
        return if metadata.is_file() {
            let file = File::open(path).map_err(cannot_read)?;
            Ok(Some(Box::new(y4m::Reader::seekable(file, path)?)))
        } else {
            Ok(Some(Box::new(y4m::Reader::new(Cursor::new(head).chain(file), path)?)))
        };
    }
    if Codec::from_content(&head).is_some() {
        return Ok(Some(Box::new(picture::PictureSource::open(path)?)));
    }
    match extension_name(path) {
        Some(named) => Err(Error::NotAsNamed { path: path.to_owned(), named }),
        None => Ok(None),
    }
}

/// Creates an output of the kind that `info` describes, or a video wherever `path` asks for it: `-` is Y4M on standard
/// output, a name ending in `.y4m` is always Y4M, and `.mp4`, `.mkv`, `.mov` and `.webm` are written through ffmpeg.
///
/// Files and folders are written under a temporary name beside their final one and renamed by [`Sink::finish`]; a sink
/// dropped before that leaves nothing behind.
pub fn create(path: &Path, info: &Info) -> Result<Box<dyn Sink>> {
    create_with(path, info, &Options::default())
}

/// The same, with options for videos.
pub fn create_with(path: &Path, info: &Info, options: &Options) -> Result<Box<dyn Sink>> {
    if path == Path::new(PIPE) {
        return Ok(Box::new(y4m::Writer::new(io::stdout(), "standard output", info)?));
    }
    if is_y4m(path) {
        return Ok(Box::new(y4m::Writer::create(path, info)?));
    }
    let unknown = |expected| Error::UnknownOutput { path: path.to_owned(), expected };
    if info.kind != Kind::Image && Container::of(path).is_some() {
        return Ok(Box::new(video::Writer::create(path, info, options)?));
    }
    match (&info.kind, Codec::from_extension(path)) {
        (Kind::Image, Some(codec)) => Ok(Box::new(picture::PictureSink::create(path, codec, info)?)),
        (Kind::Image, None) => Err(unknown("a name ending in .png, .jpg, .webp or .tiff")),
        (Kind::Folder, None) => Ok(Box::new(folder::FolderSink::create(path, info)?)),
        (Kind::Folder, Some(_)) => {
            Err(unknown("the name of a folder, or one ending in .y4m, .mp4, .mkv, .mov or .webm"))
        }
        (Kind::Video(_), None) if path.extension().is_none() => Ok(Box::new(folder::FolderSink::create(path, info)?)),
        (Kind::Y4m(_) | Kind::Video(_), _) => {
            Err(unknown("a name ending in .mp4, .mkv, .mov, .webm or .y4m, or - for standard output"))
        }
    }
}

/// Goes on with an output that a run with the same arguments left unfinished, behind its first `frames` frames. A video's
/// are all there only if it was [resumable](Options::resumable).
pub fn resume_with(path: &Path, info: &Info, options: &Options, frames: usize) -> Result<Box<dyn Sink>> {
    if is_y4m(path) {
        return Ok(Box::new(y4m::Writer::resume(path, info, frames)?));
    }
    if Container::of(path).is_some() {
        return Ok(Box::new(video::Writer::resume(path, info, options, frames)?));
    }
    Ok(Box::new(folder::FolderSink::resume(path, info, frames)?))
}

/// The picture that the bytes of a PNG, JPEG, WebP or TIFF file hold; `name` is what errors call it.
pub fn decode(bytes: &[u8], name: &Path) -> Result<Frame> {
    picture::from_bytes(bytes, name)
}

/// A small clip that travels inside the program: nine frames of 96x64 for tests and examples that need no download.
pub fn sample() -> Box<dyn Source> {
    let clip = Cursor::new(include_bytes!("../assets/sample.y4m"));
    Box::new(y4m::Reader::seekable(clip, PathBuf::from("sample.y4m")).expect("the embedded clip is well formed"))
}

fn is_y4m(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("y4m"))
}

fn extension_name(path: &Path) -> Option<&'static str> {
    if is_y4m(path) { Some("Y4M") } else { Codec::from_extension(path).map(Codec::name) }
}
