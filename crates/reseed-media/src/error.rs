//! What can go wrong with files, each as one line that says which file and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::frame::Size;

/// The result of everything here that touches the world.
pub type Result<T> = std::result::Result<T, Error>;

/// A file, folder or pipe that could not be read or written.
///
/// The underlying cause is part of each line, not a `source()`, so that printing the chain does not say it twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to open or read.
    #[error("{path}: cannot read: {cause}; check its name and permissions")]
    Read {
        /// What was being read.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The system refused to create, write or rename.
    #[error("{path}: cannot write: {cause}")]
    Write {
        /// What was being written.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// Neither name nor content is that of a picture.
    #[error("{path}: not a PNG, JPEG, WebP or TIFF picture")]
    UnknownInput {
        /// The file.
        path: PathBuf,
    },
    /// The extension promises what the content does not keep.
    #[error("{path}: named as {named} but its content is not {named}; export it again as {named}")]
    NotAsNamed {
        /// The file.
        path: PathBuf,
        /// The format its extension stands for.
        named: &'static str,
    },
    /// A picture that starts right but cannot be decoded.
    #[error("{path}: the {format} picture is damaged or of an unusual kind ({reason}); export it again",
        reason = one_line(.cause))]
    Decode {
        /// The file.
        path: PathBuf,
        /// The format its content begins as.
        format: &'static str,
        /// The decoder's reason.
        cause: image::ImageError,
    },
    /// A picture larger than is sensible to hold in memory.
    #[error("{path}: {size} is larger than the {max_side} pixels a side and {max_pixels} in all that can be held; crop or scale it down",
        max_side = Size::MAX_SIDE, max_pixels = Size::MAX_PIXELS)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: Size,
    },
    /// A folder that holds nothing to read.
    #[error("{path}: no images in this folder, nor videos; put .png, .jpg, .webp or .tiff files in it")]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The pictures of a folder are not frames of one video.
    #[error("{first} is {first_size} but {other} is {other_size}; all images of a folder must have the same size")]
    MixedSizes {
        /// The folder's first picture.
        first: PathBuf,
        /// Its size.
        first_size: Size,
        /// The first picture that differs.
        other: PathBuf,
        /// Its size.
        other_size: Size,
    },
    /// A folder that could be two things.
    #[error("{picture} is an image and {video} a video; put images and videos in folders of their own")]
    MixedKinds {
        /// A video in it.
        video: PathBuf,
        /// A picture in it.
        picture: PathBuf,
    },
    /// A part was asked for of what has no times.
    #[error("{path}: an image has no start and no end; leave out --start and --end")]
    NoTimes {
        /// The picture.
        path: PathBuf,
    },
    /// A Y4M header that cannot be understood.
    #[error("{path}: the Y4M header {problem}; make it again with `ffmpeg -i VIDEO -pix_fmt yuv420p FILE.y4m`")]
    Header {
        /// The file or pipe.
        path: PathBuf,
        /// What is wrong with its first line.
        problem: HeaderProblem,
    },
    /// A Y4M frame does not begin where it should.
    #[error("{path}: frame {frame} does not begin with FRAME; the file is damaged, make it again")]
    LostFrame {
        /// The file or pipe.
        path: PathBuf,
        /// Counted from one.
        frame: usize,
    },
    /// A Y4M stream ends inside a frame.
    #[error("{path}: ends in the middle of frame {frame}; the file is incomplete, copy or make it again")]
    Truncated {
        /// The file or pipe.
        path: PathBuf,
        /// Counted from one.
        frame: usize,
    },
    /// The output's name does not fit what would be written there.
    #[error("{path}: cannot be written under this name; give {expected}")]
    UnknownOutput {
        /// The output.
        path: PathBuf,
        /// What would be accepted.
        expected: &'static str,
    },
    /// The folder that should receive the output is missing.
    #[error("{path}: cannot be written because the folder {parent} does not exist; create it first")]
    NoParent {
        /// The output.
        path: PathBuf,
        /// The missing folder.
        parent: PathBuf,
    },
    /// A file is to be written where a folder is.
    #[error("{path}: is a folder; give the name of a file")]
    IsFolder {
        /// The output.
        path: PathBuf,
    },
    /// A folder is to be written where a file is.
    #[error("{path}: is a file; give the name of a new or empty folder")]
    IsFile {
        /// The output.
        path: PathBuf,
    },
    /// The output folder holds files that are not ours to replace.
    #[error("{path}: this folder is not empty; give a new name or empty it first")]
    FolderNotEmpty {
        /// The output folder.
        path: PathBuf,
    },
    /// The temporary folder of an interrupted run.
    #[error("{path}: left behind by an interrupted run; delete it and start again")]
    LeftOver {
        /// The temporary folder.
        path: PathBuf,
    },
    /// An unfinished output that has less than was written to it.
    #[error("{path}: frame {frame}, which was written, is not in it; start the job anew")]
    Lost {
        /// The unfinished output.
        path: PathBuf,
        /// Counted from one.
        frame: usize,
    },
    /// ffmpeg or ffprobe is not there.
    #[error(
        "{program} was not found; install it with `{}`, or say with RESEED_FFMPEG where it is",
        crate::video::install_command()
    )]
    NoFfmpeg {
        /// Which of the two.
        program: &'static str,
    },
    /// A program that is there but does not run.
    #[error("{program}: cannot be started: {cause}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A program that runs but is not what it should be.
    #[error("{program}: does not work as ffmpeg: {reason}")]
    BadFfmpeg {
        /// The program.
        program: PathBuf,
        /// Its last words.
        reason: String,
    },
    /// ffmpeg cannot make sense of a file.
    #[error("{path}: ffmpeg cannot read it: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// ffmpeg's reason.
        reason: String,
    },
    /// A file with other things in it than pictures.
    #[error("{path}: there is no video in it")]
    NoVideo {
        /// The file.
        path: PathBuf,
    },
    /// A video whose end is missing.
    #[error(
        "{path}: its header says {promised:.1} s, but its end is missing; copy it again, or use what is there with --end"
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Seconds that the header promises.
        promised: f64,
    },
    /// The decoder ended before the video did.
    #[error("{path}: ffmpeg died while reading it: {reason}")]
    DecoderDied {
        /// The file.
        path: PathBuf,
        /// Its last words.
        reason: String,
    },
    /// An encoder, or the joining of its segments, ended badly.
    #[error("{path}: ffmpeg died while writing it: {reason}")]
    EncoderDied {
        /// The output.
        path: PathBuf,
        /// Its last words.
        reason: String,
    },
    /// ffmpeg was built without what was asked for.
    #[error("this ffmpeg has no encoder for {codec} (it would be {names}); choose another --codec")]
    NoEncoder {
        /// The codec.
        codec: String,
        /// ffmpeg's names for its encoders.
        names: String,
    },
    /// A codec and a container that do not go together.
    #[error("{path}: this kind of file does not hold {codec}, only {holds}; choose another --codec, or write .mkv")]
    WrongContainer {
        /// The output.
        path: PathBuf,
        /// The codec.
        codec: &'static str,
        /// What the container takes.
        holds: &'static str,
    },
    /// A size that a codec cannot store.
    #[error("{path}: {codec} stores even sides only, not {size}; ask for another size or for --codec ffv1")]
    OddSize {
        /// The output.
        path: PathBuf,
        /// The size.
        size: Size,
        /// The codec.
        codec: &'static str,
    },
    /// A picture that the format cannot hold.
    #[error("{path}: cannot be written as {format} ({reason}); try .png", reason = one_line(.cause))]
    Encode {
        /// The output.
        path: PathBuf,
        /// The format its extension stands for.
        format: &'static str,
        /// The encoder's reason.
        cause: image::ImageError,
    },
}

/// The codecs' own messages run over several lines.
fn one_line(cause: &image::ImageError) -> String {
    cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is wrong with a Y4M header line; reads on from "the Y4M header".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderProblem {
    /// Some other kind of stream.
    #[error("does not begin with YUV4MPEG2")]
    NotY4m,
    /// More bytes than any header needs.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    /// The stream ended within the line.
    #[error("ends before its line does")]
    Unfinished,
    /// Bytes that are not UTF-8.
    #[error("is not text")]
    NotText,
    /// A parameter that every header needs.
    #[error("has no {0}")]
    Missing(&'static str),
    /// A parameter whose value makes no sense.
    #[error("has the invalid parameter {0:?}")]
    Invalid(String),
    /// A chroma format outside those that are read here.
    #[error("has the unknown chroma format {0:?}")]
    Chroma(String),
    /// A size outside what can be held in memory.
    #[error("has the impossible size {0}")]
    Size(Size),
}
