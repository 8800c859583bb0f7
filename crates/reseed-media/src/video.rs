//! Videos: which part is read, how the output is compressed, and what the output copies from its source.

mod codec;
mod container;
#[cfg(feature = "ffmpeg")]
mod description;
mod fields;
#[cfg(not(feature = "ffmpeg"))]
mod no_ffmpeg;
#[cfg(feature = "ffmpeg")]
mod pipe;
mod pixels;
mod text;
#[cfg(feature = "ffmpeg")]
mod timeline;
#[cfg(feature = "ffmpeg")]
mod tracks;
mod work;

use std::time::Duration;

use crate::frame::Rate;

pub use codec::Codec;
pub use container::{Container, is_video_name};
#[cfg(feature = "ffmpeg")]
pub use description::Video;
pub use fields::Deinterlace;
#[cfg(not(feature = "ffmpeg"))]
pub use no_ffmpeg::Video;
pub use text::{is_option_name, parse_time};
#[cfg(windows)]
pub use work::remove_empty_work;
pub use work::{JOB_FILE, discard_work, has_segments, work_folder};

pub(crate) use pixels::{Family, Pixels};
pub(crate) use work::{SEGMENT_FRAMES, is_segment};

#[cfg(feature = "ffmpeg")]
pub(crate) use self::{
    codec::CodecKind,
    description::{Chapter, Hdr, Tags},
    fields::{FieldAction, Parity},
    pipe::Pipe,
    timeline::{Clock, Timeline},
    tracks::{KeptTrack, Track, TrackKind, plan as plan_tracks},
    work::{GROWING_SPOOL, MARKS_FILE, SEGMENT_LIST, UNFINISHED_SEGMENT, is_work_file, parse_spool_name, spool_name},
};

/// A part of a video: the frames at or after `start` and before `end`. `deinterlace` says how fields become frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clip {
    /// The start time; the beginning of the video by default.
    pub start: Option<Duration>,
    /// The end time; the end of the video by default.
    pub end: Option<Duration>,
    /// How interlaced video is read.
    pub deinterlace: Deinterlace,
    /// The rate of a folder of images; 25 frames per second by default.
    pub rate: Option<Rate>,
}

impl Clip {
    /// Whether the clip has neither a start nor an end.
    pub fn is_whole(&self) -> bool {
        self.start.is_none() && self.end.is_none()
    }
}

/// How a video is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The codec. By default H.264 for eight bits, HEVC for more, AV1 in WebM.
    pub codec: Option<Codec>,
    /// The constant rate factor: lower is better and larger. By default a value that suits the codec.
    pub crf: Option<u32>,
    /// Further options of the encoder, name and value.
    pub encoder_args: Vec<(String, String)>,
    /// Whether to copy audio.
    pub audio: bool,
    /// Whether to copy subtitles.
    pub subtitles: bool,
    /// Whether to copy chapters.
    pub chapters: bool,
    /// Whether to copy the title and other metadata.
    pub metadata: bool,
    /// Whether to copy fonts and other attachments.
    pub attachments: bool,
    /// Whether [`Sink::sync`](crate::Sink::sync) saves every frame, not only those of finished segments. Frames of the
    /// unfinished segment are then stored twice.
    pub resumable: bool,
    /// The most encoders that run at once, each on a segment of its own. Several run only in a resumable job whose
    /// encoder is slower than its frames arrive. By default one for eight CPU threads, and at most four.
    pub encoders: usize,
}

impl Default for Options {
    fn default() -> Options {
        let (audio, subtitles, chapters, metadata, attachments) = (true, true, true, true, true);
        let (codec, crf, encoder_args, resumable) = (None, None, Vec::new(), false);
        let encoders = std::thread::available_parallelism().map_or(1, |threads| (threads.get() / 8).clamp(1, 4));
        Options { codec, crf, encoder_args, audio, subtitles, chapters, metadata, attachments, resumable, encoders }
    }
}
