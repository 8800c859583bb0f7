//! The description of a video file: everything that its output copies.

use std::path::{Path, PathBuf};

use super::fields::FieldAction;
use super::pipe::Pipe;
use super::timeline::Timeline;
use super::tracks::{self, Track};
use super::{Clip, Codec, Container, Options, Pixels};
use crate::format::{Format, Matrix, Range};
use crate::frame::{Mark, Rate};
use crate::planes::{Layout, Model};

/// The description of a video file. Its output copies colour tags, HDR metadata, tracks and frame times from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Video {
    pub(crate) path: PathBuf,
    /// The index of the video stream in the file.
    pub(crate) index: usize,
    /// The name of the container in ffmpeg.
    pub(crate) format: String,
    pub(crate) clip: Clip,
    /// What is done with the fields of interlaced video.
    pub(crate) fields: FieldAction,
    pub(crate) field_note: Option<String>,
    /// The time base of the stream, before any filter.
    pub(crate) time_base: Rate,
    /// The decoder that reads alpha, where the default decoder ignores it.
    pub(crate) alpha_decoder: Option<&'static str>,
    pub(crate) pipe: Pipe,
    pub(crate) layout: Layout,
    pub(crate) tags: Tags,
    pub(crate) hdr: Hdr,
    /// Width of a pixel divided by its height.
    pub(crate) aspect: Option<Rate>,
    pub(crate) tracks: Vec<Track>,
    pub(crate) chapters: Vec<Chapter>,
    /// The title and the language of the stream, if it has them.
    pub(crate) names: Vec<(String, String)>,
    /// The timecode of the first frame of the file, as it is written there.
    pub(crate) timecode: Option<String>,
    pub(crate) timeline: Timeline,
    /// Microseconds by which the file begins before time zero: newer versions of ffmpeg write the silence that an audio
    /// encoder adds to Matroska so.
    pub(crate) early: i64,
}

impl Video {
    /// What `output` cannot keep of this video, one line each.
    pub fn losses(&self, output: &Path, options: &Options) -> Vec<String> {
        let mut losses = Vec::new();
        let container = Container::of(output);
        let default = |container| options.codec.unwrap_or(Codec::default_for(container, self.layout.bits));
        let codec = container.map(default);
        if let Some(codec) = codec.filter(|codec| self.layout.alpha && !codec.keeps_alpha()) {
            losses.push(format!(
                "the video has transparency, which {codec} does not hold and which is left out; \
                 ProRes in .mov and FFV1 in .mkv keep it"
            ));
        }
        if let Some(container) = container {
            losses.extend(tracks::plan(&self.tracks, container, options).losses);
        }
        losses
    }

    /// A line that says how interlaced video becomes frames; `None` for video that is not interlaced.
    pub fn field_note(&self) -> Option<&str> {
        self.field_note.as_deref()
    }

    /// The marks of the frames that were read so far, from `first` on.
    pub(crate) fn marks(&self, first: usize) -> Vec<Mark> {
        self.timeline.marks(first)
    }

    /// Sets the marks of an earlier run.
    pub(crate) fn expect_marks(&self, marks: &[Mark]) {
        self.timeline.set_earlier_marks(marks.to_vec());
    }

    /// Fills an empty timeline.
    pub(crate) fn set_marks(&self, marks: &[Mark]) {
        marks.iter().for_each(|mark| self.timeline.push(*mark));
    }

    /// The planar pixel format that ffmpeg delivers.
    pub(crate) fn pixels(&self) -> Pixels {
        self.pipe.pixels
    }

    /// The Y4M format that loses the least of this video.
    pub(crate) fn y4m_format(&self) -> Format {
        let mut format = Format::for_depth(self.layout.depth());
        if let Model::Yuv { chroma, range, .. } = self.layout.model {
            (format.chroma, format.range, format.bits) = (chroma, Some(range), self.layout.bits);
        }
        format.aspect = self.aspect.map(|aspect| aspect.to_string());
        format
    }
}

/// A chapter. Times are microseconds since the start of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chapter {
    pub start: i64,
    pub end: i64,
    /// The title and other names.
    pub tags: Vec<(String, String)>,
}

/// Colour tags, with the names that ffmpeg uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tags {
    pub range: Range,
    pub matrix: Matrix,
    pub space: Option<String>,
    pub primaries: Option<String>,
    pub transfer: Option<String>,
    pub location: Option<String>,
}

/// HDR metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hdr {
    /// The mastering display: x and y of green, blue, red and white in 1/50000, then the maximum and minimum luminance
    /// in 1/10000 cd/m².
    pub mastering: Option<[u32; 10]>,
    /// The content light level, MaxCLL and MaxFALL, in cd/m².
    pub light: Option<[u32; 2]>,
}
