//! Errors of reading and writing files. Each message is one line: what failed, why, and what to do.

mod text;

use std::io;
use std::path::PathBuf;

use crate::frame::Size;
use text::{install_command, one_line, takes};

/// The result of reading or writing.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of reading or writing a file, folder or pipe.
///
/// Messages include the underlying cause; it is not a `source()`, so that printing the chain does not repeat it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Opening or reading failed.
    #[error("{path}: cannot read: {cause}; check its name and permissions")]
    Read {
        /// The file, folder or pipe.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Creating, writing or renaming failed.
    #[error("{path}: cannot write: {cause}; check permissions and free disk space")]
    Write {
        /// The file, folder or pipe.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The content is no image of a known format.
    #[error("{path}: not an image of a known format; convert it to PNG, JPEG, WebP or TIFF")]
    UnknownInput {
        /// The file.
        path: PathBuf,
    },
    /// The content does not have the format of the extension.
    #[error("{path}: named as {format} but its content is not {format}; export it again as {format}")]
    WrongExtension {
        /// The file.
        path: PathBuf,
        /// The format of its extension.
        format: &'static str,
    },
    /// Decoding an image failed.
    #[error("{path}: cannot decode the damaged or unsupported {format} image ({reason}); export it again",
        reason = one_line(.cause))]
    Decode {
        /// The file.
        path: PathBuf,
        /// The format of its content.
        format: &'static str,
        /// The error of the decoder.
        cause: image::ImageError,
    },
    /// The size exceeds the limits of [`Size`].
    #[error("{path}: {size} exceeds the limit of {max_side} pixels per side or {max_pixels} pixels in total; \
         crop it or scale it down",
        max_side = Size::MAX_SIDE, max_pixels = Size::MAX_PIXELS)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: Size,
    },
    /// ffmpeg cannot decode an image.
    #[error("{path}: ffmpeg cannot decode {format} images here ({reason}); install a newer one, or convert it to PNG")]
    UnsupportedImage {
        /// The file.
        path: PathBuf,
        /// The format of its content.
        format: &'static str,
        /// The message of ffmpeg.
        reason: String,
    },
    /// The pages of a TIFF file have different sizes.
    #[error("{path}: page 1 is {first_size} but page {page} is {other_size}; split it into files of pages of one size")]
    MixedPages {
        /// The file.
        path: PathBuf,
        /// The size of its first page.
        first_size: Size,
        /// The first page of another size, counted from one.
        page: usize,
        /// Its size.
        other_size: Size,
    },
    /// The header declares more pixels than a file of this length can hold.
    #[error("{path}: declares {size} pixels in a file of {length} bytes, which cannot hold them; export it again")]
    Implausible {
        /// The file.
        path: PathBuf,
        /// The declared size.
        size: Size,
        /// The length of the file in bytes.
        length: u64,
    },
    /// A folder has no images and no videos.
    #[error("{path}: no images in this folder and no videos; put .png, .jpg, .webp or .tiff files in it")]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The images of a folder have different sizes.
    #[error("{first} is {first_size} but {other} is {other_size}; all images of a folder must have the same size")]
    MixedSizes {
        /// The first image.
        first: PathBuf,
        /// Its size.
        first_size: Size,
        /// The first image of another size.
        other: PathBuf,
        /// Its size.
        other_size: Size,
    },
    /// A folder has both images and videos.
    #[error("{image} is an image and {video} is a video; put images and videos in folders of their own")]
    MixedKinds {
        /// A video in it.
        video: PathBuf,
        /// An image in it.
        image: PathBuf,
    },
    /// A rate was given for something else than a folder of images.
    #[error("{path}: has its own times, or none; only a folder of images of one size can be given a rate")]
    RateOfOther {
        /// The input.
        path: PathBuf,
    },
    /// A part by time was requested of an image.
    #[error("{path}: an image has no start time and no end time; open it without them")]
    ClipOfImage {
        /// The image.
        path: PathBuf,
    },
    /// A Y4M header is invalid.
    #[error("{path}: the Y4M header {problem}; create the file again with `ffmpeg -i VIDEO -pix_fmt yuv420p FILE.y4m`")]
    Header {
        /// The file or pipe.
        path: PathBuf,
        /// The reason.
        problem: HeaderProblem,
    },
    /// A Y4M frame does not begin with its header line.
    #[error("{path}: frame {frame} does not begin with FRAME; the file is damaged, create it again")]
    BadFrameHeader {
        /// The file or pipe.
        path: PathBuf,
        /// Counted from one.
        frame: usize,
    },
    /// A Y4M stream ends inside a frame.
    #[error("{path}: ends in the middle of frame {frame}; the file is incomplete, copy or create it again")]
    Truncated {
        /// The file or pipe.
        path: PathBuf,
        /// Counted from one.
        frame: usize,
    },
    /// No output format matches the name.
    #[error("{path}: cannot be written under this name; give {expected}")]
    UnknownOutput {
        /// The output.
        path: PathBuf,
        /// The names that are accepted.
        expected: &'static str,
    },
    /// The folder of the output does not exist.
    #[error("{path}: cannot be written because the folder {parent} does not exist; create it first")]
    NoParent {
        /// The output.
        path: PathBuf,
        /// The missing folder.
        parent: PathBuf,
    },
    /// The path of an output file is a folder.
    #[error("{path}: is a folder; give the name of a file")]
    IsFolder {
        /// The output.
        path: PathBuf,
    },
    /// The path of an output folder is a file.
    #[error("{path}: is a file; give the name of a new or empty folder")]
    IsFile {
        /// The output.
        path: PathBuf,
    },
    /// The output folder has files.
    #[error("{path}: this folder is not empty; give a new name or empty it first")]
    FolderNotEmpty {
        /// The output folder.
        path: PathBuf,
    },
    /// The temporary folder of the output already exists.
    #[error("{path}: this temporary folder of an interrupted run already exists; delete it and start again")]
    TemporaryExists {
        /// The temporary folder.
        path: PathBuf,
    },
    /// An unfinished output lacks a frame that was saved.
    #[error("{path}: cannot resume, saved frame {frame} is missing or damaged; start the job from the beginning")]
    MissingFrame {
        /// The unfinished output or its work folder.
        path: PathBuf,
        /// Counted from one.
        frame: usize,
    },
    /// Saved frames of an unfinished output are not those that were written.
    #[error("{path}: cannot resume, saved frames are damaged; start the job from the beginning")]
    DamagedFrames {
        /// The unfinished output.
        path: PathBuf,
    },
    /// Windows, or ffmpeg on Windows, takes the name for something else.
    #[error("{path}: {reason}; choose another name")]
    BadName {
        /// The path.
        path: PathBuf,
        /// What is wrong with the name.
        reason: &'static str,
    },
    /// The library was built without ffmpeg support.
    #[error("{path}: cannot be used without ffmpeg; build with the cargo feature `ffmpeg`, or convert videos to .y4m")]
    FfmpegDisabled {
        /// The video, or ffmpeg itself.
        path: PathBuf,
    },
    /// ffmpeg or ffprobe is not installed.
    #[error("{program} was not found; install it with `{}`, or set RESEED_FFMPEG to its path", install_command())]
    NoFfmpeg {
        /// The name of the missing program.
        program: &'static str,
    },
    /// ffmpeg or ffprobe cannot be started.
    #[error("{program}: cannot be started: {cause}; install ffmpeg again")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// ffmpeg starts but does not list its encoders.
    #[error("{program}: does not work as ffmpeg: {reason}; install ffmpeg again")]
    FfmpegFailed {
        /// The program.
        program: PathBuf,
        /// The last message of ffmpeg.
        reason: String,
    },
    /// ffmpeg cannot read a file.
    #[error("{path}: ffmpeg cannot read it: {reason}; check that it is a video and that it plays")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The message of ffmpeg.
        reason: String,
    },
    /// A file has no video stream.
    #[error("{path}: there is no video in it; give a file with a video stream")]
    NoVideo {
        /// The file.
        path: PathBuf,
    },
    /// ffmpeg failed while decoding.
    #[error("{path}: ffmpeg failed while reading it: {reason}; check that the file plays to its end")]
    DecoderFailed {
        /// The file.
        path: PathBuf,
        /// The last message of ffmpeg.
        reason: String,
    },
    /// ffmpeg failed while encoding or joining segments.
    #[error("{path}: ffmpeg failed while writing it: {reason}; check free disk space and the encoder options")]
    EncoderFailed {
        /// The output.
        path: PathBuf,
        /// The first message of ffmpeg, or what is wrong with the file.
        reason: String,
    },
    /// ffmpeg has no encoder for the codec.
    #[error("ffmpeg has no encoder for {codec} ({names}); choose another codec or install a full build of ffmpeg")]
    NoEncoder {
        /// The codec.
        codec: String,
        /// The names of its encoders in ffmpeg.
        names: String,
    },
    /// The container cannot store the codec.
    #[error("{path}: this kind of file does not hold {codec}, only {holds}; choose another codec, or write .mkv")]
    WrongContainer {
        /// The output.
        path: PathBuf,
        /// The codec.
        codec: &'static str,
        /// The codecs that the container stores.
        holds: &'static str,
    },
    /// The codec does not accept the quality setting.
    #[error("a CRF of {crf} is not possible with {codec}, which takes {}; choose another value or another codec",
        takes(.range))]
    BadCrf {
        /// The codec.
        codec: String,
        /// The setting.
        crf: u32,
        /// The least and the greatest value, if the codec has such a setting.
        range: Option<(u32, u32)>,
    },
    /// A frame is not the one that a plan was made with.
    #[error("{path}: frame {frame} is not the one that the job was planned with; plan it again")]
    FrameChanged {
        /// The input.
        path: PathBuf,
        /// The number of the frame, from 1 on.
        frame: usize,
    },
    /// The disk has too little free space.
    #[error("{path}: needs about {} MiB of disk space, but {} MiB are free; free some space or write to another disk",
        .needed >> 20, .free >> 20)]
    DiskSpace {
        /// The output.
        path: PathBuf,
        /// Bytes of the output and its temporary files, estimated.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// The codec cannot store the size.
    #[error("{path}: {codec} stores even sides only, not {size}; choose an even size, or the codec ffv1")]
    OddSize {
        /// The output.
        path: PathBuf,
        /// The size.
        size: Size,
        /// The codec.
        codec: &'static str,
    },
    /// Encoding an image failed.
    #[error("{path}: cannot be written as {format} ({reason}); write .png instead", reason = one_line(.cause))]
    Encode {
        /// The output.
        path: PathBuf,
        /// The format of its extension.
        format: &'static str,
        /// The error of the encoder.
        cause: image::ImageError,
    },
}

/// The reason why a Y4M header is invalid. Its message continues "the Y4M header".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderProblem {
    /// The stream is not Y4M.
    #[error("does not begin with YUV4MPEG2")]
    NotY4m,
    /// The line is too long.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    /// The stream ends inside the line.
    #[error("is incomplete")]
    Unfinished,
    /// The line is not UTF-8.
    #[error("is not text")]
    NotText,
    /// A required parameter is missing.
    #[error("has no {0}")]
    Missing(&'static str),
    /// A parameter has an invalid value.
    #[error("has the invalid parameter {0:?}")]
    Invalid(String),
    /// The chroma format is not supported.
    #[error("has the unknown chroma format {0:?}")]
    Chroma(String),
    /// The size is zero or exceeds the limits of [`Size`].
    #[error("has the invalid size {0}")]
    Size(Size),
}
