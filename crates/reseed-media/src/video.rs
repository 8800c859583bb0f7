//! Any video that ffmpeg reads, and the videos it writes, through child processes and pipes.
//!
//! A reader decodes the planes of a file as they are stored and this crate converts them; the time of every frame is
//! kept. A [`Writer`] writes segments of [`SEGMENT_FRAMES`] frames, each by an encoder of its own, into a hidden folder
//! beside the output, and joins them at the end with everything else that the source holds: audio, subtitles, chapters,
//! tags. A segment is finished or not there, and its bytes depend on its own frames only, so that work can be taken up
//! where it stopped.

mod codec;
mod encoder;
mod marks;
mod mux;
mod pixels;
mod probe;
mod reader;
mod seek;
mod segments;
mod spool;
mod timeline;
mod tools;
mod tracks;
mod uncached;
mod writer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Result;
use crate::frame::Rate;
use crate::planes::{Layout, Matrix};
use crate::stream::Source;
use crate::y4m::Range;

pub use codec::Codec;
pub use segments::{JOB_FILE, SEGMENT_FRAMES, discard_work, work_folder};
pub use tracks::{Container, is_video_name};
pub use writer::Writer;
pub(crate) use writer::{bits_per_pixel, plane_bytes};

pub(crate) use tools::install_command;

use pixels::Pipe;
use timeline::Timeline;

/// The part of a video that is wanted. Frames are taken from `start` on and before `end`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clip {
    /// Where it begins; at the beginning unless given.
    pub start: Option<Duration>,
    /// Where it ends; at the end unless given.
    pub end: Option<Duration>,
}

/// How a video is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The codec; unless given H.264 for eight bits, HEVC for more, AV1 in WebM.
    pub codec: Option<Codec>,
    /// The constant quality: lower is better and larger. The codec's own unless given.
    pub crf: Option<u32>,
    /// Further options of the encoder, name and value.
    pub encoder_args: Vec<(String, String)>,
    /// Whether audio is copied.
    pub audio: bool,
    /// Whether subtitles are.
    pub subtitles: bool,
    /// Whether chapters are.
    pub chapters: bool,
    /// Whether titles and other tags are.
    pub metadata: bool,
    /// Whether fonts and other attachments are.
    pub attachments: bool,
    /// Whether [`Sink::secure`](crate::Sink::secure) makes every frame safe, not only those of finished segments: frames
    /// lie twice on the disk until then.
    pub resumable: bool,
}

impl Default for Options {
    fn default() -> Options {
        let (audio, subtitles, chapters, metadata, attachments) = (true, true, true, true, true);
        let (codec, crf, encoder_args, resumable) = (None, None, Vec::new(), false);
        Options { codec, crf, encoder_args, audio, subtitles, chapters, metadata, attachments, resumable }
    }
}

/// What is known of a video file: everything that its output takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Video {
    path: PathBuf,
    /// The stream within the file.
    index: usize,
    clip: Clip,
    pipe: Pipe,
    layout: Layout,
    tags: Tags,
    hdr: Hdr,
    /// Width of a pixel to its height.
    aspect: Option<Rate>,
    tracks: Vec<Track>,
    /// The title and the language of the stream, where it has them.
    names: Vec<(String, String)>,
    timeline: Timeline,
}

impl Video {
    /// What of it cannot be taken over into `output`, each as one line.
    pub fn losses(&self, output: &Path, options: &Options) -> Vec<String> {
        let mut losses = Vec::new();
        if self.pipe.alpha {
            losses.push("the video has transparency, which is left out".to_owned());
        }
        if let Some(container) = Container::of(output) {
            losses.extend(tracks::plan(&self.tracks, container, options).losses);
        }
        losses
    }

    /// The Y4M format that keeps the most of it.
    pub(crate) fn y4m_format(&self) -> crate::y4m::Format {
        use crate::planes::Model;
        let mut format = crate::y4m::Format::for_depth(self.layout.depth());
        if let Model::Yuv { chroma, range, .. } = self.layout.model {
            (format.chroma, format.range, format.bits) = (chroma, Some(range), self.layout.bits);
        }
        format.aspect = self.aspect.map(|aspect| aspect.to_string());
        format
    }
}

/// The ffmpeg that would be used.
pub fn ffmpeg() -> Result<PathBuf> {
    Ok(tools::Tools::find()?.ffmpeg)
}

/// Opens a video through ffmpeg, whatever its kind.
pub fn open(path: &Path, clip: Clip) -> Result<Box<dyn Source>> {
    let tools = tools::Tools::find()?;
    let info = probe::probe(&tools, path, clip)?;
    Ok(Box::new(reader::Reader::new(tools, info)?))
}

/// Colour as it is tagged, in ffmpeg's words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tags {
    range: Range,
    matrix: Matrix,
    space: Option<String>,
    primaries: Option<String>,
    transfer: Option<String>,
    location: Option<String>,
}

/// What a film says of the display it was made on and of its own light.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hdr {
    /// Green, blue, red and white, x and y in 1/50000; the most and the least light in 1/10000 cd/m².
    mastering: Option<[u32; 10]>,
    /// Brightest pixel and brightest frame, cd/m².
    light: Option<[u32; 2]>,
}

/// A stream that travels beside the pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Track {
    index: usize,
    kind: TrackKind,
    codec: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrackKind {
    Audio,
    Subtitle,
    Attachment,
    Cover,
}
